"""Curves that a closed loop can follow: from a formula, a CSV file or the trials of a match."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from service.client import Client
from service.match_input import read_curve

#: Points of a curve; a training config takes 1,000.
_POINTS = 400

Points = list[tuple[int, float]]


def follow_points(
    formula: dict[str, Any],
    *,
    csv: Path | None,
    match: str | None,
    steps: int,
    lr_schedule: str,
    service: Callable[[], Client],
) -> Points:
    """(step, effective learning rate) points from the one origin that is given."""
    if sum(map(bool, (formula, csv, match))) != 1:
        raise typer.BadParameter("give one of KEY=VALUE…, --csv and --match")
    if csv is not None:
        recorded = read_curve(csv)
        return smoothed(recorded["values"], recorded["every"])
    if match is not None:
        return _of_match(service(), match)
    return _of_formula(formula, steps, lr_schedule)


def smoothed(values: Sequence[float], every: int) -> Points:
    """Root mean squares over stretches, at their middle steps."""
    from ndadam.fitted_curve import curve_of_records

    width = max(1, len(values) // _POINTS)
    curve = curve_of_records(values, every, 0, lambda step: 1.0, 2, stretches=len(values) // width)
    return list(zip(curve.steps, curve.effective_lr, strict=True))


def _of_match(service: Client, match_id: str) -> Points:
    """What the trials of a match's source did, over seeds."""
    result = service.get_match(match_id).result or {}
    curves = result.get("curves")
    if not curves:
        raise typer.BadParameter(f"match {match_id} has not measured its source yet")
    every = max(1, math.ceil(len(curves["steps"]) / _POINTS))
    return list(zip(curves["steps"], curves["source"], strict=True))[::every]


def _of_formula(fields: dict[str, Any], steps: int, lr_schedule: str) -> Points:
    from service.predictions import PredictionSpec, answer

    spec = PredictionSpec.model_validate(
        {"source": {"optimizer": "sgd", **fields}, "steps": steps, "lr_schedule": lr_schedule}
    )
    found = answer(spec).curve
    every = max(1, len(found) // _POINTS)
    return [(step, value) for step, value in found[::every]]
