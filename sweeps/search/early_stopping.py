"""Stops points that do badly early: successive halving (ASHA) and the median rule.

What is judged is a point, by the mean over its replicates, and only beside points of the same
optimizer, where the training has such a field: early in a run one optimizer may look worse than
another that it beats at the end. A verdict follows from what the trials reported and nothing else,
so a new driver that replays the store's curves judges as the old one would have.
"""

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sweeps.records import Trial, TrialState
from sweeps.spec.sweep_spec import Asha, Median, SweepSpec

#: Values are losses here: lower is better, and a diverged replicate is worse than any other.
DIVERGED = math.inf


@dataclass
class _Replicate:
    """Losses that one trial reported, by step in rising order."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    diverged: bool = False
    #: It will report no more.
    is_over: bool = False

    def at(self, step: int) -> float | None:
        """The first loss reported at or after a step; None where it is not there yet."""
        index = bisect.bisect_left(self.steps, step)
        if index < len(self.steps):
            return self.losses[index]
        return DIVERGED if self.diverged else None

    def mean_until(self, step: int) -> float | None:
        """Mean of the losses up to a step; None where it is not there yet."""
        if not self.steps or self.steps[-1] < step:
            return DIVERGED if self.diverged else None
        until = self.losses[: bisect.bisect_right(self.steps, step)]
        return statistics.fmean(until) if until else None


@dataclass
class RungCurves:
    """What every point of one optimizer has reported."""

    points: dict[int, dict[int, _Replicate]] = field(default_factory=lambda: defaultdict(dict))

    def complete(self, point: int, kind: str, step: int) -> float | None:
        """Mean over a point's replicates at a step; None until each that started is there.

        ``kind`` is "at" or "mean_until". A replicate that failed on the way does not count.
        """
        values = []
        for replicate in self.points[point].values():
            value = getattr(replicate, kind)(step)
            if value is None and not replicate.is_over:
                return None
            if value is not None:
                values.append(value)
        return statistics.fmean(values) if values else None


class Rule(Protocol):
    """Judges a point when one of its replicates has reported at ``step``."""

    def judge(self, curves: RungCurves, point: int, step: int) -> str | None:
        """The cause of stopping the point, or None."""


@dataclass(frozen=True)
class AshaScheduler:
    """Asynchronous successive halving (Li et al., "A System for Massively Parallel Hyperparameter
    Tuning", 2020), the variant that stops: at each rung a point goes on while it is among the best
    1/reduction_factor of those that have reached it.
    """

    #: First rung, in steps; the next ones follow at times ``reduction_factor``.
    min_steps: int
    reduction_factor: int

    def judge(self, curves: RungCurves, point: int, step: int) -> str | None:
        rung = self._rung(step)
        if rung is None:
            return None
        own = curves.complete(point, "at", rung)
        if own is None:
            return None
        all_there = [curves.complete(other, "at", rung) for other in list(curves.points)]
        losses = sorted(loss for loss in all_there if loss is not None)
        # The best 1/reduction_factor, and never fewer than the best one.
        kept = losses[: max(1, math.ceil(len(losses) / self.reduction_factor))]
        if own <= kept[-1]:
            return None
        rank = bisect.bisect_left(losses, own) + 1
        return f"stopped early at step {rung}: place {rank} of {len(losses)}"

    def _rung(self, step: int) -> int | None:
        """The highest rung that a step has reached."""
        if step < self.min_steps:
            return None
        rung = self.min_steps
        while rung * self.reduction_factor <= step:
            rung *= self.reduction_factor
        return rung


@dataclass(frozen=True)
class MedianScheduler:
    """The median rule (Golovin et al., "Google Vizier", 2017): a point stops when its mean loss so
    far is above the median of the other points' at the same step.
    """

    #: No verdict before this many steps.
    min_steps: int
    #: Nor beside fewer other points.
    min_points: int

    def judge(self, curves: RungCurves, point: int, step: int) -> str | None:
        if step < self.min_steps:
            return None
        own = curves.complete(point, "mean_until", step)
        if own is None:
            return None
        means = (curves.complete(n, "mean_until", step) for n in list(curves.points) if n != point)
        others = [mean for mean in means if mean is not None]
        if len(others) < self.min_points or own <= statistics.median(others):
            return None
        return f"stopped early at step {step}: worse than the median of {len(others)} points"


def rungs_until(min_steps: int, reduction_factor: int, last: int) -> list[int]:
    """The rungs of ASHA below step ``last``."""
    found, rung = [], min_steps
    while rung < last:
        found.append(rung)
        rung *= reduction_factor
    return found


def rule_of(spec: SweepSpec) -> Rule | None:
    """The rule that a spec asks for."""
    match spec.scheduler:
        case Asha() as asha:
            return AshaScheduler(asha.min_steps, asha.reduction_factor)
        case Median() as median:
            return MedianScheduler(median.min_steps, median.min_points)
    return None


class PointScheduler:
    """Keeps every curve and remembers which points were stopped. No rule: it never stops any."""

    def __init__(self, rule: Rule | None, *, maximize: bool = False) -> None:
        self._rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._curves: dict[str, RungCurves] = defaultdict(RungCurves)
        self._stopped: dict[int, str] = {}

    @property
    def is_active(self) -> bool:
        """Whether it will ever stop a point."""
        return self._rule is not None

    def replay(self, trial: Trial, curve: Iterable[tuple[int, float]]) -> None:
        """Take over what a trial reported to an earlier driver, without judging again."""
        self.started(trial)
        for step, value in curve:
            self._add(trial, step, value)
        if trial.state == TrialState.PRUNED:
            self._stopped.setdefault(trial.point, trial.exit_cause)
        if trial.state.is_finished():
            self._close(trial, trial.state)

    def started(self, trial: Trial) -> None:
        """A replicate runs: its point is not judged without it."""
        if self._rule is not None:
            self._replicate(trial).is_over = False

    def reported(self, trial: Trial, step: int, value: float) -> None:
        """A replicate reported its objective; the point may be stopped by it."""
        if self._rule is not None:
            self._add(trial, step, value)
            self._judge(trial, step)

    def ended(self, trial: Trial, state: TrialState) -> None:
        """A replicate's attempt is over. If it is to be tried again, its point waits for it."""
        if self._rule is None or not state.is_finished():
            return
        replicate = self._close(trial, state)
        if replicate.steps:
            self._judge(trial, replicate.steps[-1])

    def cause(self, point: int) -> str | None:
        """Why a point was stopped; None while it goes on."""
        return self._stopped.get(point)

    def _close(self, trial: Trial, state: TrialState) -> _Replicate:
        replicate = self._replicate(trial)
        replicate.is_over = True
        replicate.diverged = state == TrialState.DIVERGED
        if replicate.diverged:
            # Such a point is never the best, whatever its other seeds do.
            self._stopped.setdefault(trial.point, f"stopped early: seed {trial.seed} diverged")
        return replicate

    def _judge(self, trial: Trial, step: int) -> None:
        if self._rule is not None and trial.point not in self._stopped:
            cause = self._rule.judge(self._curves[_group(trial)], trial.point, step)
            if cause is not None:
                self._stopped[trial.point] = cause

    def _add(self, trial: Trial, step: int, value: float) -> None:
        replicate = self._replicate(trial)
        # A trial that resumed from a checkpoint reports some steps again.
        if not replicate.steps or step > replicate.steps[-1]:
            replicate.steps.append(step)
            replicate.losses.append(self._sign * value)

    def _replicate(self, trial: Trial) -> _Replicate:
        replicates = self._curves[_group(trial)].points[trial.point]
        return replicates.setdefault(trial.seed, _Replicate())


def _group(trial: Trial) -> str:
    return str(trial.config.get("optimizer", ""))
