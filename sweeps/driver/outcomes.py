"""What arrives from a trial, checked: the last door before the store."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from worker.report import Report


class MalformedReport(ValueError):
    """A trial reported something that is not a Report. Only that trial fails."""


def read_report(result: Mapping[str, Any]) -> Report:
    """Return the Report in what a trial handed to Tune. Raises MalformedReport."""
    if "report" not in result:
        raise MalformedReport(f"a report has no 'report', only {sorted(result)[:10]}")
    try:
        return Report.model_validate(result["report"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MalformedReport(
            f"report.{place}: {first['msg']}, got {str(first['input'])[:80]!r}"
        ) from error


def is_divergent(report: Report, metric: str | None) -> bool:
    """Whether the trial is lost: it says so, or its objective is not a finite number."""
    value = 0.0 if metric is None else report.metrics.get(metric, 0.0)
    return report.status == "diverged" or not math.isfinite(value)


def describe_error(error: BaseException) -> str:
    """The cause of a trial's end in a line, out of memory told apart."""
    cause = getattr(error, "cause", None) or error.__cause__ or error
    text = str(cause).strip()
    # Ray appends the error itself as the last line of a formatted traceback.
    line = text.splitlines()[-1].strip() if text else ""
    name = type(cause).__name__
    if not line.startswith(name.partition("(")[0]):
        line = f"{name}: {line}" if line else name
    memory = "OutOfMemory" in name or "out of memory" in text.lower()
    return f"out of memory: {line}"[:500] if memory else line[:500]
