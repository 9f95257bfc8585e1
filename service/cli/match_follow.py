"""Curves that a closed loop can follow: of a formula, a CSV file, a match or one of its trials."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from service.cli.match_input import read_curve, trial_of
from service.client.client import Client

#: Points of a curve; a training config takes 1,000.
_POINTS = 400
#: As many as the service hands out at a time.
_MOST_RECORDS = 10_000

Points = list[tuple[int, float]]


def follow_points(
    formula: dict[str, Any],
    *,
    csv: Path | None,
    match: str | None,
    trial: str | None,
    steps: int,
    lr_schedule: Any,
    service: Callable[[], Client],
) -> Points:
    """(step, effective learning rate) points from the one origin that is given."""
    if sum(map(bool, (formula, csv, match, trial))) != 1:
        raise typer.BadParameter("give one of KEY=VALUE…, --csv, --match and --trial")
    if csv is not None:
        recorded = read_curve(csv)
        return smoothed([(i * recorded["every"], e) for i, e in enumerate(recorded["values"])])
    if match is not None:
        return _of_match(service(), match)
    if trial is not None:
        return _of_trial(service(), trial)
    return _of_formula(formula, steps, lr_schedule)


def smoothed(records: Sequence[tuple[int, float]]) -> Points:
    """Root mean squares over stretches of (step, value) records, at their middle steps."""
    from ndadam.matching.verdict import smooth

    width = max(1, len(records) // _POINTS)
    values = smooth([value for _, value in records], width)
    # Of the records themselves: the service thins them, and then they are not evenly spaced.
    middles = [step for step, _ in records[(width - 1) // 2 :: width]]
    return list(zip(middles, values, strict=False))


def _of_match(service: Client, match_id: str) -> Points:
    """What the trials of a match's source did, over seeds."""
    result = service.get_match(match_id).result or {}
    curves = result.get("curves")
    if not curves:
        raise typer.BadParameter(f"match {match_id} has not measured its source yet")
    every = max(1, math.ceil(len(curves["steps"]) / _POINTS))
    return list(zip(curves["steps"], curves["source"], strict=True))[::every]


def _of_trial(service: Client, reference: str) -> Points:
    """What one trial of a match recorded, step by step."""
    sweep, number = trial_of(reference)
    query = {"name": ["effective_lr"], "max_points": _MOST_RECORDS}
    records = service.metrics(sweep, number, **query).get("effective_lr", [])
    if len(records) < 2:
        raise typer.BadParameter(
            f"trial {reference} has not recorded its effective learning rate, as only trials of "
            "matches do: --match follows a match's source, EffectiveLR records any loop for --csv"
        )
    return smoothed(records)


def _of_formula(fields: dict[str, Any], steps: int, lr_schedule: Any) -> Points:
    from service.submission.prediction import PredictionSpec, answer

    spec = PredictionSpec.model_validate(
        {"source": {"optimizer": "sgd", **fields}, "steps": steps, "lr_schedule": lr_schedule}
    )
    prediction = answer(spec)
    if prediction.trust_until_step < steps:
        typer.echo(
            f"note: from step {prediction.trust_until_step} on this curve is not to be trusted, "
            "because gradients usually collapse there; the loop follows it all the same",
            err=True,
        )
    found = prediction.curve
    every = max(1, len(found) // _POINTS)
    return [(step, value) for step, value in found[::every]]
