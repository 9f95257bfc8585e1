"""Reports of a trial, checked before the store, and what the ends of attempts and sweeps mean."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import ValidationError

from sweeps.driver.store_writer import Ending
from sweeps.records import LOST, MAX_ATTEMPTS, MISPLACED, Sweep, SweepState, TrialState
from worker.report import Report


class MalformedReport(ValueError):
    """A trial reported something that is not a Report. Only that trial fails."""


def read_reports(result: Mapping[str, Any]) -> list[Report]:
    """Return the Reports in what a trial handed to Tune, in order. Raises MalformedReport."""
    if result.get("silent"):
        return []
    if "report" not in result:
        raise MalformedReport(f"a report has no 'report', only {sorted(result)[:10]}")
    try:
        # A training function may report faster than Tune takes reports.
        return [Report.model_validate(one) for one in (*result.get("before", ()), result["report"])]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MalformedReport(
            f"report.{place}: {first['msg']}, got {str(first['input'])[:80]!r}"
        ) from error


def is_divergent(report: Report, objectives: Iterable[str]) -> bool:
    """Whether the trial is lost: it says so, or an objective is not a finite number."""
    values = (report.metrics.get(name, 0.0) for name in objectives)
    return report.status == "diverged" or not all(map(math.isfinite, values))


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


#: Why a driver ends its sweep early: a person asked, a limit was reached, another driver may take
#: over ("leave") or already has ("lost"). A later one in this list overrides an earlier one.
Stop = Literal["leave", "limit", "pause", "cancel", "lost"]

STRENGTH: dict[Stop, int] = {"leave": 0, "limit": 1, "pause": 2, "cancel": 3, "lost": 4}

_STOPPED: dict[Stop, tuple[str, TrialState]] = {
    "leave": ("stopped with its driver", TrialState.WAITING),
    "limit": ("budget spent", TrialState.CANCELLED),
    "pause": ("paused", TrialState.WAITING),
    "cancel": ("cancelled", TrialState.CANCELLED),
    "lost": ("another driver took over", TrialState.WAITING),
}


def stopped(stop: Stop) -> Ending:
    """The end of an attempt that was told to stop."""
    cause, trial_state = _STOPPED[stop]
    return Ending(TrialState.CANCELLED, trial_state, cause)


def failed(cause: str) -> Ending:
    """The end of an attempt that will not be repeated."""
    return Ending(TrialState.FAILED, TrialState.FAILED, cause)


def lost(error: BaseException | str, attempts: int) -> Ending:
    """The end of an attempt whose worker died: tried again, ``MAX_ATTEMPTS`` times in all."""
    cause = f"{LOST}{error if isinstance(error, str) else describe_error(error)}"
    if attempts < MAX_ATTEMPTS:
        return Ending(TrialState.FAILED, TrialState.WAITING, cause)
    return failed(f"{cause} (attempt {attempts} of {MAX_ATTEMPTS})")


def misplaced(error: BaseException) -> Ending:
    """The end of an attempt on a machine that must not train it: tried again elsewhere."""
    return Ending(TrialState.FAILED, TrialState.WAITING, f"{MISPLACED}{error}")


def reached(state: TrialState, cause: str) -> Ending:
    """The end of an attempt that settles its trial."""
    return Ending(state, state, cause)


def returned(
    last: Report | None, objectives: Iterable[str], reported: Collection[str] = ()
) -> Ending:
    """The end of an attempt whose trainable returned by itself.

    ``reported``: objectives that earlier reports had. Those of a training function count: only its
    own reports say what it has measured, and its last one may be about something else.
    """
    if last is None:
        return failed("ended without a report")
    if last.status != "complete":
        of = "" if last.num_steps is None else f" of {last.num_steps}"
        return failed(f"ended at step {last.step}{of} without a final report")
    for name in objectives:
        if name not in last.metrics and name not in reported:
            return failed(f"the final report has no {name}")
    return reached(TrialState.COMPLETE, "complete")


def outcome_of(
    sweep: Sweep,
    stop: Stop | None,
    *,
    driven: Mapping[str, Any],
    finished: str,
    has_reopened: Callable[[], bool],
) -> tuple[SweepState, str]:
    """State and reason in which a driver that is done gives its sweep back.

    ``driven`` is the spec that it drove by, ``sweep`` the sweep as people have left it since.
    """
    # Asked in the last second, while trials stopped for another reason.
    if sweep.requested in ("cancel", "delete"):
        stop = "cancel"
    elif sweep.requested == "pause" and stop == "leave":
        stop = "pause"
    # Asked while trials stopped for the pause, or while the last ones ran by the old spec.
    if stop == "pause" and sweep.requested == "none":
        return SweepState.QUEUED, "resumed"
    if stop in (None, "limit") and sweep.spec != driven:
        return SweepState.QUEUED, "extended"
    if stop is None and has_reopened():
        return SweepState.QUEUED, "retrying failed trials"
    return sweep_ending(stop, finished, sweep.trials)


def sweep_ending(
    stop: Stop | None, reason: str, trials: Mapping[str, int]
) -> tuple[SweepState, str]:
    """State and reason of a sweep whose driver is done. ``trials`` counts them by state."""
    match stop:
        case "pause":
            return SweepState.PAUSED, "paused"
        case "cancel":
            return SweepState.CANCELLED, "cancelled"
        case "leave" | "lost":
            return SweepState.QUEUED, "the runner stopped"
    count = trials.get(TrialState.FAILED, 0)
    failures = f"{count} trial{'' if count == 1 else 's'} failed"
    if trials.get(TrialState.COMPLETE, 0) or trials.get(TrialState.PRUNED, 0):
        return SweepState.COMPLETE, f"{reason}; {failures}" if count else reason
    if trials.get(TrialState.DIVERGED, 0):
        return SweepState.COMPLETE, "no finite result" + (f"; {failures}" if count else "")
    return (SweepState.FAILED, f"all {failures}") if count else (SweepState.COMPLETE, reason)
