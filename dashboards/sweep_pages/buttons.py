"""The buttons of a sweep's and a trial's page, and why an expected button is missing."""

from dataclasses import dataclass

from sweeps.records import Sweep, SweepState, Trial, TrialState
from sweeps.spec.model import MAX_TRIALS


@dataclass(frozen=True)
class Number:
    """A number that an action asks for. Sent to the API under ``name``."""

    name: str
    label: str
    value: int
    least: int
    most: int


@dataclass(frozen=True)
class Action:
    """A button that posts to the API."""

    verb: str
    label: str
    #: Message of the page after the service has accepted the action.
    done: str
    style: str = ""
    #: Numbers that the action needs.
    numbers: tuple[Number, ...] = ()
    #: Explanation before the action: the button opens it, beside a second button that acts.
    about: str = ""
    #: Label of that second button, if it differs from the action's.
    sure: str = ""


_PAUSE = Action("pause", "Pause", "Pause requested: running trials keep their checkpoints.")
_RESUME = Action("resume", "Resume", "Queued again: what is recorded is kept.", "primary")
_CANCEL = Action(
    "cancel",
    "Cancel",
    "Cancel requested: running trials stop at their next report.",
    "danger",
    about="Finished trials are kept; the rest will never run. To continue later, pause instead.",
    sure="Cancel for good",
)


def actions(sweep: Sweep) -> tuple[Action, ...]:
    """The buttons that make sense in the sweep's state."""
    is_sweep = sweep.kind == "sweep"
    found = [*_steering(sweep)]
    if sweep.trials[TrialState.FAILED] and _may_go_on(sweep):
        found.append(_retry(sweep.trials[TrialState.FAILED]))
    if is_sweep and _may_go_on(sweep):
        found.append(_extend(sweep))
    if is_sweep and sweep.state.is_finished() and sweep.best is not None:
        found.append(_CONFIRM)
    return tuple(found)


def retry_note(sweep: Sweep) -> str:
    """Why no trial, or not every failed trial, can be retried; "" if none failed."""
    notes = []
    if sweep.trials[TrialState.FAILED] and not _may_go_on(sweep):
        notes.append(_not_retried(sweep))
    if sweep.trials[TrialState.DIVERGED]:
        notes.append(
            "Diverged trials are not retried: the same settings and seed would diverge again."
        )
    return " ".join(notes)


def retry_of_trial(sweep: Sweep, trial: Trial) -> Action | None:
    """The button of a failed trial's page: it retries every failed trial of the sweep."""
    if trial.state != TrialState.FAILED or not _may_go_on(sweep):
        return None
    return _retry(sweep.trials[TrialState.FAILED])


def trial_note(sweep: Sweep, trial: Trial) -> str:
    """Why a trial that ended without a result is not retried; "" for all others."""
    if trial.state == TrialState.FAILED and not _may_go_on(sweep):
        return _not_retried(sweep)
    return {
        TrialState.DIVERGED: "Not retried: the same settings and seed would diverge again.",
        TrialState.PRUNED: "Not retried: the scheduler stopped this point for being behind others.",
        TrialState.CANCELLED: "Not retried: it was cancelled with its sweep.",
    }.get(trial.state, "")


def _not_retried(sweep: Sweep) -> str:
    """Why failed trials of a cancelled sweep cannot be retried."""
    what = "is being cancelled" if _is_ending(sweep) else "is cancelled"
    return f"Failed trials cannot be retried: the sweep {what}. Clone it to run them."


def _may_go_on(sweep: Sweep) -> bool:
    return sweep.state != SweepState.CANCELLED and not _is_ending(sweep)


def _is_ending(sweep: Sweep) -> bool:
    return sweep.requested in ("cancel", "delete")


def _steering(sweep: Sweep) -> tuple[Action, ...]:
    if sweep.state in (SweepState.COMPLETE, SweepState.CANCELLED):
        return ()
    if sweep.state == SweepState.FAILED:
        return (_RESUME,)
    if sweep.state == SweepState.PAUSED or sweep.requested == "pause":
        return (_RESUME, _CANCEL)
    return () if _is_ending(sweep) else (_PAUSE, _CANCEL)


def _retry(failed: int) -> Action:
    words = "1 failed trial" if failed == 1 else f"{failed} failed trials"
    return Action("retry", f"Retry {words}", f"Queued again: {words} will run once more.")


def _extend(sweep: Sweep) -> Action:
    seeds, points = sweep.replicates, sweep.num_points
    numbers = [Number("replicates", "seeds per point", seeds, seeds, 1000)]
    if points:
        numbers.insert(0, Number("num_points", "points in all", points + 10, points, MAX_TRIALS))
    return Action(
        "extend",
        "Extend",
        "Extended: what is recorded is kept, and the rest is trained.",
        numbers=tuple(numbers),
        about="The numbers are totals. What is recorded is kept.",
    )


_CONFIRM = Action(
    "confirm",
    "Confirm",
    "Queued: the best points train on fresh seeds.",
    "primary",
    numbers=(
        Number("points", "best points, of each optimizer", 1, 1, 50),
        Number("replicates", "fresh seeds of each", 5, 2, 1000),
    ),
    about="The best of many is partly luck. A new sweep trains it again on seeds that had no part "
    "in choosing it.",
)
