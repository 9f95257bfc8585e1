"""The words of the pages without their markup, for reports that are not pages."""

from typing import Any

from dashboards.wording.formatting import sampled_value
from sweeps.figures.quantities import plain, quantity


def symbol(key: str, training: str) -> str:
    """A field's symbol, or its name."""
    return plain(quantity(key, training=training).short)


def settings(params: dict[str, Any], training: str) -> str:
    """``ndadam, αᵛ = 0.05``: the params of a point in one line."""
    parts = [
        sampled_value(value)
        if name == "optimizer"
        else f"{symbol(name, training)} = {sampled_value(value)}"
        for name, value in params.items()
    ]
    return ", ".join(parts) or "all"
