"""Input of ``ndsweep match``: a spec file, its source or comparison, a curve to follow.

A closed loop can follow the curve of a formula, a CSV file, a match or one of its trials.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from service.client.client import Client

Spec = tuple[bytes, str]


def with_options(
    spec: Spec, *, curve: Path | None, compare: int | None, margin: float | None
) -> Spec:
    """Put a recorded source and a comparison into the spec; without either, return it unchanged."""
    if curve is None and compare is None and margin is None:
        return spec
    fields = fields_of(spec)
    if curve is not None:
        fields.setdefault("source", {})["curve"] = read_curve(curve)
    if compare is not None or margin is not None:
        if margin is None:
            raise typer.BadParameter(
                "--compare needs --margin, declared before any run: by how much the target "
                "may be worse (errors are fractions, 0.005 is half a point)"
            )
        fields["compare"] = {"margin": margin} | ({"replicates": compare} if compare else {})
    return json.dumps(fields).encode(), "application/json"


def of_trial(spec: Spec, reference: str) -> Spec:
    """Build a match of a trial: SWEEP/NUMBER, and the spec's fields without base and source."""
    sweep, number = trial_of(reference)
    asked = {"source": {"sweep": sweep, "trial": number}, "match": fields_of(spec)}
    return json.dumps(asked).encode(), "application/json"


def trial_of(reference: str) -> tuple[str, int]:
    """Return sweep and number of SWEEP/NUMBER."""
    sweep, slash, number = reference.partition("/")
    if not slash or not number.isdecimal():
        raise typer.BadParameter(f"expected SWEEP/NUMBER, got {reference!r}")
    return sweep, int(number)


def fields_of(spec: Spec) -> dict[str, Any]:
    from sweeps.spec.text import load_spec_text

    fields = load_spec_text(spec[0].decode())
    if not isinstance(fields, dict):
        raise typer.BadParameter("a spec must hold fields with names")
    return fields


def read_curve(path: Path) -> dict[str, Any]:
    """Read a CSV file as a recorded curve. Raises BadParameter, which names the wrong line."""
    from sweeps.match.recorded_curve import read_curve_csv

    try:
        return read_curve_csv(path.read_text(encoding="utf-8")).model_dump(mode="json")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    from sweeps.spec.validation_messages import explain

    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"the file must be text in UTF-8, but byte {error.start} is not: {error.reason}"
    return explain(error)[0]["reason"] if isinstance(error, ValidationError) else str(error)


#: Points of a curve; a training config takes 1,000.
_POINTS = 400

#: Largest number of records in one answer of the service.
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
    """Return (step, effective learning rate) points from the one given origin."""
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
    """Average (step, value) records over stretches: root mean squares at their middle steps."""
    from ndadam.statistics.blocked_means import smooth

    width = max(1, len(records) // _POINTS)
    values = smooth([value for _, value in records], width)
    # Steps come from the records: the service thins them, so they may not be evenly spaced.
    middles = [step for step, _ in records[(width - 1) // 2 :: width]]
    return list(zip(middles, values, strict=False))


def _of_match(service: Client, match_id: str) -> Points:
    """Curve of a match's source trials, averaged over seeds."""
    result = service.get_match(match_id).result or {}
    curves = result.get("curves")
    if not curves:
        raise typer.BadParameter(f"match {match_id} has not measured its source yet")
    every = max(1, math.ceil(len(curves["steps"]) / _POINTS))
    return list(zip(curves["steps"], curves["source"], strict=True))[::every]


def _of_trial(service: Client, reference: str) -> Points:
    """Curve that one trial of a match recorded, step by step."""
    sweep, number = trial_of(reference)
    query = {"name": ["effective_lr"], "max_points": _MOST_RECORDS}
    records = service.metrics(sweep, number, **query).get("effective_lr", [])
    if len(records) < 2:
        raise typer.BadParameter(
            f"trial {reference} has no record of its effective learning rate; only trials of "
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
            f"note: from step {prediction.trust_until_step} on do not trust this curve: "
            "gradients usually collapse there; the loop follows the curve nevertheless",
            err=True,
        )
    found = prediction.curve
    every = max(1, len(found) // _POINTS)
    return [(step, value) for step, value in found[::every]]
