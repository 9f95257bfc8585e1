"""The last words of a batch: what was done, what is left, how fast it went."""

import textwrap
from collections.abc import Mapping, Sequence

from sweeps.analysis.formatting import metric_with_unit
from sweeps.analysis.table import aligned
from sweeps.batch.plan import PlannedRun
from sweeps.batch.results import RunResult

_HEAD = ("run", "state", "test error", "seconds", "images/s", "on")
#: Characters of the column of states; failures that are longer are told below the table.
_STATE_WIDTH = 40
#: Characters of a line below the table.
_LINE_WIDTH = 100
#: Runs with the same failure that are named by their files; the others are counted.
_MOST_FILES = 3


def outcome_table(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> str:
    """One line per run, in the order of the plan, a line of counts, and failures in full.

    ``results`` holds those of runs that have ended, by the runs' names.
    """
    rows = [_HEAD, *(_row(run, results.get(run.name)) for run in runs)]
    return "\n".join([*aligned(rows), _counts(runs, results), *_failures(runs, results)])


def _row(run: PlannedRun, result: RunResult | None) -> tuple[str, ...]:
    if result is None:
        return run.label, "left", "", "", "", ""
    error = result.metrics.get("test_error") if result.state == "complete" else None
    return (
        run.label,
        result.state if result.state == "complete" else _short(result.exit_cause),
        "" if error is None else metric_with_unit("test_error", error),
        f"{result.seconds:,.1f}",
        f"{images_per_second(result):,.0f}",
        str(result.provenance.get("card", "")),
    )


def _short(cause: str) -> str:
    words = " ".join(cause.split())
    if len(words) <= _STATE_WIDTH:
        return words
    return words[: _STATE_WIDTH - 2].rsplit(" ", 1)[0] + " …"


def _failures(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> list[str]:
    """Each sentence that the table shortens, once and whole, with the files that hold it."""
    files: dict[str, list[str]] = {}
    for run in runs:
        result = results.get(run.name)
        if result is not None and result.state != "complete":
            files.setdefault(result.exit_cause, []).append(f"{run.name}.json")
    return [
        textwrap.fill(
            f"{_named(names)}: {' '.join(cause.split())}",
            _LINE_WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        for cause, names in files.items()
        if _short(cause) != cause
    ]


def _named(files: Sequence[str]) -> str:
    more = len(files) - _MOST_FILES
    return ", ".join(files[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")


def images_per_second(result: RunResult) -> float:
    """Training images over all of a run's time, its start and evaluations included."""
    batch = result.config["batch_size"]
    return result.step * batch / result.seconds if result.seconds > 0 else 0.0


def _counts(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> str:
    states = [results[run.name].state for run in runs if run.name in results]
    left = len(runs) - len(states)
    counts = [f"{states.count(s)} {s}" for s in ("complete", "diverged", "failed")]
    return f"{', '.join(counts)}, {left} left of {len(runs)} runs"
