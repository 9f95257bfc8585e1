"""The words of the pages without their markup, for reports that are not pages."""

import html
import re
from typing import Any

from dashboards.wording.formatting import sampled_value
from dashboards.wording.quantities import quantity

_MARKS = {
    "<sup>v</sup>": "ᵛ",
    "<sup>s</sup>": "ˢ",
    "<sub>C</sub>": "_C",
    "<sub>0</sub>": "₀",
    "<sub>1</sub>": "₁",
    "<sub>2</sub>": "₂",
}


def plain(text: object) -> str:
    """Markup as text: symbols keep their indices, tags go."""
    found = str(text)
    for mark, letter in _MARKS.items():
        found = found.replace(mark, letter)
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def symbol(key: str) -> str:
    """A field's symbol, or its name."""
    return plain(quantity(key).short)


def settings(params: dict[str, Any]) -> str:
    """``ndadam, αᵛ = 0.05``: the params of a point in one line."""
    parts = [
        sampled_value(value) if name == "optimizer" else f"{symbol(name)} = {sampled_value(value)}"
        for name, value in params.items()
    ]
    return ", ".join(parts) or "all"
