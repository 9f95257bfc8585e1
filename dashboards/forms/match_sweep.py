"""A sweep around what a match found: the target at the matched rate, and the rate varied."""

from typing import Any

from dashboards.match.view import matched_rate, rate_name_of
from sweeps.records import Sweep

#: Half and double the matched rate: wide enough to see the optimum, narrow enough to resolve it.
SPREAD = 2.0


def sweep_from_match(match: Sweep) -> dict[str, Any]:
    """Values of a SweepSpec: the target's settings, its rate in a log range around the match.

    Without a rate yet, the rate is left to be typed in.
    """
    spec, name = match.spec, rate_name_of(match)
    rate = matched_rate(match)
    base = {
        field: value
        for field, value in {**(spec.get("base") or {}), **(spec.get("target") or {})}.items()
        if value is not None and field != name
    }
    notes = f"Around the rate of the match {match.name} ({match.id})."
    if base.get("validation_fraction") == 0:
        # A match measures no error and may train on every image; a sweep chooses by held-out ones.
        del base["validation_fraction"]
        notes += " Some of the images that the match trained on are held out here."
    schedule = ((match.result or {}).get("verdict") or {}).get("schedule")
    if schedule:
        base |= {"lr_schedule": schedule}
        base.setdefault("alpha_s_schedule", (spec.get("base") or {}).get("lr_schedule", "cosine"))
    domain: dict[str, Any] = {"kind": "float", "log": True}
    if rate is not None:
        domain |= {"low": _digits(rate / SPREAD), "high": _digits(rate * SPREAD)}
    sweep: dict[str, Any] = {
        "name": f"{match.name}-around-the-match"[:100],
        "base": base,
        "space": {name: domain},
        "sampler": "random",
        "num_points": 8,
        "replicates": 3,
        "tags": list(match.tags),
        "notes": notes,
    }
    if rate is not None:
        sweep["initial_points"] = [{name: _digits(rate)}]
    if spec.get("resources"):
        sweep["resources"] = spec["resources"]
    return sweep


def _digits(value: float) -> float:
    """Four significant digits: more would claim what no interval supports."""
    return float(f"{value:.4g}")
