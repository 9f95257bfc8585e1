"""The last words of a batch: what was done, what is left, how fast it went."""

from collections.abc import Mapping, Sequence

from sweeps.batch_plan import PlannedRun
from sweeps.batch_results import RunResult

_HEAD = ("run", "state", "test error", "seconds", "images/s", "on")


def outcome_table(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> str:
    """One line per run, in the order of the plan, and a line of counts."""
    rows = [_HEAD, *(_row(run, results.get(run.name)) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join([*lines, _counts(runs, results)])


def _row(run: PlannedRun, result: RunResult | None) -> tuple[str, ...]:
    if result is None:
        return run.label, "left", "", "", "", ""
    error = result.metrics.get("test_error")
    return (
        run.label,
        result.state if result.state == "complete" else result.exit_cause,
        f"{100 * error:.2f} %" if error is not None and result.state == "complete" else "",
        f"{result.seconds:,.1f}",
        f"{images_per_second(result):,.0f}",
        str(result.provenance.get("card", "")),
    )


def images_per_second(result: RunResult) -> float:
    """Training images over all of a run's time, its start and evaluations included."""
    batch = result.config["batch_size"]
    return result.step * batch / result.seconds if result.seconds > 0 else 0.0


def _counts(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> str:
    states = [results[run.name].state for run in runs if run.name in results]
    left = len(runs) - len(states)
    counts = [f"{states.count(s)} {s}" for s in ("complete", "diverged", "failed")]
    return f"{', '.join(counts)}, {left} left of {len(runs)} runs"
