"""What a match waits for while it runs, from its spec and trials. Needs no theory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweeps.records import Trial, TrialState

#: In the order in which they are trained.
_STAGES = ("source", "calibration", "verdict", "comparison")


@dataclass(frozen=True)
class Awaited:
    """The stage of a match whose trials are being trained."""

    stage: str
    #: Trials of the stage, and how many of them have ended; of a calibration those of one round.
    planned: int
    ended: int
    #: The running trial that needs longest to its end; None while none has reported.
    slowest: Trial | None
    #: Until the stage ends; None while nothing is known of its speed.
    seconds: float | None
    #: Trials of each later stage; of calibrations one round, if there is to be any.
    later: dict[str, int]


def awaited_trials(
    spec: Mapping[str, Any], trials: Sequence[Trial], now: datetime
) -> Awaited | None:
    """Return what a match waits for; None while none of its trials is unfinished."""
    unfinished = [trial for trial in trials if not trial.state.is_finished()]
    if not unfinished:
        return None
    stage = unfinished[0].role
    counts = _counts(spec)
    of_stage = [trial for trial in trials if trial.role == stage]
    if stage == "calibration":
        of_stage = [trial for trial in of_stage if trial.point == unfinished[0].point]
    ended = sum(trial.state.is_finished() for trial in of_stage)
    planned = max(counts.get(stage, 0), len(of_stage))
    running = [trial for trial in of_stage if trial.state is TrialState.RUNNING]
    left = {trial.number: _seconds_left(trial, now) for trial in running}
    known = [trial for trial in running if left[trial.number] is not None]
    slowest = max(known, key=lambda trial: left[trial.number] or 0.0, default=None)
    seconds = None
    if slowest is not None:
        # Those that wait for a place start when a running one ends, and take as long in all.
        waves = math.ceil((planned - ended) / len(running)) - 1
        whole = _seconds_left(slowest, now, whole=True) or 0.0
        seconds = (left[slowest.number] or 0.0) + waves * whole
    behind = _STAGES[_STAGES.index(stage) + 1 :] if stage in _STAGES else ()
    return Awaited(stage, planned, ended, slowest, seconds, {name: counts[name] for name in behind})


def _counts(spec: Mapping[str, Any]) -> dict[str, int]:
    """Trials of each stage."""
    replicates = spec.get("replicates") or 3
    rounds = spec.get("max_corrections", 3)
    compare = spec.get("compare") or {}
    return {
        "source": replicates,
        "calibration": (spec.get("calibration_replicates") or 1) if rounds else 0,
        "verdict": replicates,
        "comparison": 2 * compare.get("replicates", 5) if compare else 0,
    }


def _seconds_left(trial: Trial, now: datetime, *, whole: bool = False) -> float | None:
    """Seconds to a running trial's end at its speed so far, or from its start (``whole``)."""
    if trial.started_at is None or not trial.step or not trial.num_steps:
        return None
    each = (now - trial.started_at).total_seconds() / trial.step
    steps = trial.num_steps if whole else max(0, trial.num_steps - trial.step)
    return each * steps
