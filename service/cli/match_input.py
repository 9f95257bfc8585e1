"""What ``ndsweep match run`` sends: a spec file, with a source or a comparison from the options."""

import json
from pathlib import Path
from typing import Any

import typer

Spec = tuple[bytes, str]


def with_options(
    spec: Spec, *, curve: Path | None, compare: int | None, margin: float | None
) -> Spec:
    """The spec with a recorded source and a comparison put into it; as it is without either."""
    if curve is None and compare is None and margin is None:
        return spec
    fields = fields_of(spec)
    if curve is not None:
        fields.setdefault("source", {})["curve"] = read_curve(curve)
    if compare is not None or margin is not None:
        if margin is None:
            raise typer.BadParameter(
                "--compare needs --margin, declared before anything runs: by how much the target "
                "may be worse (errors are fractions, 0.005 is half a point)"
            )
        fields["compare"] = {"margin": margin} | ({"replicates": compare} if compare else {})
    return json.dumps(fields).encode(), "application/json"


def of_trial(spec: Spec, reference: str) -> Spec:
    """A match of a trial: SWEEP/NUMBER, and the spec's fields without base and source."""
    sweep, number = trial_of(reference)
    asked = {"source": {"sweep": sweep, "trial": number}, "match": fields_of(spec)}
    return json.dumps(asked).encode(), "application/json"


def trial_of(reference: str) -> tuple[str, int]:
    """Sweep and number of SWEEP/NUMBER."""
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
    """A CSV file as a recorded curve. Refused with the line that is wrong."""
    from sweeps.match.recorded_curve import read_curve_csv

    try:
        return read_curve_csv(path.read_text(encoding="utf-8")).model_dump(mode="json")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    from sweeps.spec.refusals import explain

    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"the file must be text in UTF-8, and byte {error.start} is none: {error.reason}"
    return explain(error)[0]["reason"] if isinstance(error, ValidationError) else str(error)
