"""How much of a sweep's budget is spent."""

import time
from collections.abc import Callable
from datetime import datetime

from sweeps.records import Trial
from sweeps.spec import Budget


class Limits:
    """Counts trials, GPU-hours and wall time against a budget.

    Wall time counts from the sweep's first start, pauses included.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        gpus: float,
        started_at: datetime | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``gpus`` is what one trial occupies; ``clock`` tells seconds since 1970."""
        self._budget = budget
        self._gpus = gpus
        self._clock = clock
        self._began = clock() if started_at is None else started_at.timestamp()
        self._seen: set[int] = set()
        # Handed out, and on their way to a worker.
        self._taken: set[int] = set()
        self._spent_seconds = 0.0
        # Trial -> when it started to run.
        self._running: dict[int, float] = {}

    @property
    def counts_gpus(self) -> bool:
        """Whether replayed trials are wanted with their attempts."""
        return self._budget.gpu_hours is not None and self._gpus > 0

    def count(self, trial: Trial) -> None:
        """Take in what a trial used before this driver."""
        if trial.started_at is not None:
            self._seen.add(trial.number)
        for attempt in trial.attempts:
            if attempt.finished_at is not None:
                self._spent_seconds += (attempt.finished_at - attempt.started_at).total_seconds()

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
            self._spent_seconds += self._clock() - began

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
        return None

    def _gpu_hours(self) -> float:
        now = self._clock()
        running = sum(now - began for began in self._running.values())
        return self._gpus * (self._spent_seconds + running) / 3600
