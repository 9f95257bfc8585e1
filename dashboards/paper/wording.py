"""Numbers and names as the paper's report writes them."""

from collections.abc import Mapping
from typing import Any

_SYMBOLS = {
    "lr": "α₀",
    "alpha_v": "α₀ᵛ",
    "weight_decay": "λ",
    "gamma_c": "γ_C",
    "lambda_c": "λ_C",
    "widen_factor": "width",
    "betas": "β",
}
_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "ndadam": "ND-Adam"}


def points(value: float) -> str:
    """Percent with the paper's two digits."""
    return f"{value:z.2f}".replace("-", "\N{MINUS SIGN}")


def point_name(params: Mapping[str, Any]) -> str:
    """A point of a preset in the paper's words."""
    return ", ".join(_field(name, value) for name, value in params.items())


def _field(name: str, value: Any) -> str:
    if name == "optimizer":
        return _OPTIMIZERS.get(str(value), str(value))
    if name == "bn_scale":
        return "BN with scales" if value == "trainable" else "no scales"
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{_SYMBOLS.get(name, name)} = {shown}"
