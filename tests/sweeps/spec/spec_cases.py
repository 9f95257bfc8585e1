"""Fields of specs, domains, and what a spec is refused for."""

from typing import Any

BASE = {"dataset": "digits", "depth": 10, "widen_factor": 1.0, "epochs": 3}


def real(low: Any, high: Any, **options: Any) -> dict[str, Any]:
    return {"kind": "float", "low": low, "high": high, **options}


def whole(low: Any, high: Any, **options: Any) -> dict[str, Any]:
    return {"kind": "int", "low": low, "high": high, **options}


def choice(*values: Any, **options: Any) -> dict[str, Any]:
    return {"kind": "choice", "values": list(values), **options}


def fields(**changes: Any) -> dict[str, Any]:
    space = {"alpha_v": real(0.001, 0.1, log=True)}
    return {"name": "tiny", "base": BASE, "space": space, "num_points": 5} | changes
