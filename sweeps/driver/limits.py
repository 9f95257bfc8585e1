"""How much of a sweep's budget is spent, and whether a trial is past its own limits."""

import time
from collections.abc import Callable
from datetime import datetime

from sweeps.records import Attempt, Trial
from sweeps.spec.declarations import TrialLimits
from sweeps.spec.sweep_spec import Budget

#: How the cause of a trial that passed a limit of its own begins.
LIMIT = "limit: "


class Limits:
    """Counts trials, steps, GPU-hours and wall time against a budget and against trial limits.

    Wall time counts from the sweep's first start, pauses included; that of a trial while it runs.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        gpus: float,
        started_at: datetime | None,
        per_trial: TrialLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``gpus`` is what one trial occupies; ``clock`` tells seconds since 1970."""
        self._budget = budget
        self._per_trial = per_trial or TrialLimits()
        self._gpus = gpus
        self._clock = clock
        self._began = clock() if started_at is None else started_at.timestamp()
        self._seen: set[int] = set()
        # Handed out, and on their way to a worker.
        self._taken: set[int] = set()
        self._spent_seconds = 0.0
        # Trial -> when it started to run.
        self._running: dict[int, float] = {}
        # Trial -> seconds that it ran before, and the last step that it reported.
        self._ran: dict[int, float] = {}
        self._steps: dict[int, int] = {}

    @property
    def counts_gpus(self) -> bool:
        """Whether replayed trials are wanted with their attempts."""
        of_trial = self._per_trial.wall_seconds or self._per_trial.gpu_hours
        return bool(of_trial) or (self._budget.gpu_hours is not None and self._gpus > 0)

    def count(self, trial: Trial) -> None:
        """Take in what a trial used before this driver."""
        if trial.started_at is not None:
            self._seen.add(trial.number)
        self._steps[trial.number] = trial.step
        for attempt in trial.attempts:
            self._spent_seconds += _seconds(attempt)
            if attempt.exit_cause.startswith(LIMIT):
                # It was let run again by hand: with its limits anew.
                self._ran[trial.number] = 0.0
            else:
                self._ran[trial.number] = self._ran.get(trial.number, 0.0) + _seconds(attempt)

    def reopened(self, trial: Trial) -> None:
        """A trial that failed may run again: if it was at a limit of its own, with that anew."""
        if trial.attempts and trial.attempts[-1].exit_cause.startswith(LIMIT):
            self._ran[trial.number] = 0.0
        self._taken.discard(trial.number)

    def taken(self, trial: Trial) -> None:
        """A trial is handed out: others may be asked for before it starts."""
        self._taken.add(trial.number)

    def returned(self, trial: Trial) -> None:
        """A trial that was handed out comes back; if it never started, it costs nothing."""
        self._taken.discard(trial.number)

    def started(self, trial: Trial) -> None:
        """A trial starts to occupy its resources."""
        self._seen.add(trial.number)
        self._running[trial.number] = self._clock()

    def ended(self, trial: Trial) -> None:
        """A trial no longer occupies its resources."""
        began = self._running.pop(trial.number, None)
        if began is not None:
            seconds = self._clock() - began
            self._spent_seconds += seconds
            self._ran[trial.number] = self._ran.get(trial.number, 0.0) + seconds

    def reported(self, trial: Trial, step: int) -> None:
        """A trial has come to a step. One that resumed may report earlier steps again."""
        self._steps[trial.number] = max(step, self._steps.get(trial.number, 0))

    def allows(self, trial: Trial) -> bool:
        """Whether a trial may start: it has before, or the budget has trials left."""
        return trial.number in self._seen | self._taken or self.trials_left != 0

    @property
    def trials_started(self) -> int:
        """Trials that have run, here or before, or are about to."""
        return len(self._seen | self._taken)

    @property
    def trials_left(self) -> int | None:
        """Trials that may still be started for the first time; None = no limit."""
        if self._budget.trials is None:
            return None
        return max(0, self._budget.trials - self.trials_started)

    def overrun(self) -> str | None:
        """The limit in time that has been passed, in words."""
        wall = self._budget.wall_seconds
        if wall is not None and self._clock() - self._began >= wall:
            return f"budget spent: {wall:g} s of wall time"
        hours = self._budget.gpu_hours
        if hours is not None and self._gpu_hours() >= hours:
            return f"budget spent: {hours:g} GPU-hours"
        steps = self._budget.steps
        if steps is not None and sum(self._steps.values()) >= steps:
            return f"budget spent: {steps:,} steps"
        return None

    def overrun_of(self, trial: Trial) -> str | None:
        """The limit that a running trial has passed, in words for its exit cause."""
        most = self._per_trial
        if most.steps is not None and self._steps.get(trial.number, 0) > most.steps:
            return f"{LIMIT}{most.steps:,} steps"
        began = self._running.get(trial.number)
        here = 0.0 if began is None else self._clock() - began
        seconds = self._ran.get(trial.number, 0.0) + here
        if most.wall_seconds is not None and seconds >= most.wall_seconds:
            return f"{LIMIT}{most.wall_seconds:g} s of wall time"
        hours = self._gpus * seconds / 3600
        if most.gpu_hours is not None and hours >= most.gpu_hours:
            return f"{LIMIT}{most.gpu_hours:g} GPU-hours"
        return None

    def _gpu_hours(self) -> float:
        now = self._clock()
        running = sum(now - began for began in self._running.values())
        return self._gpus * (self._spent_seconds + running) / 3600


def _seconds(attempt: Attempt) -> float:
    """How long an attempt ran; 0 while it does."""
    if attempt.finished_at is None:
        return 0.0
    return (attempt.finished_at - attempt.started_at).total_seconds()
