"""What a measured match trains and how it judges: settings, length, seeds, window. Torch-free."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ndadam.matching.verdict import least_block
from ndadam.statistics.blocked_means import FEWEST_BLOCKS
from ndadam.theory.along_schedule import Factor
from ndadam.theory.decay_memory import decay_memory
from ndadam.theory.laws import Level, NoStationaryRate, OptimizerSetting, level_factor
from ndadam.theory.prediction import Criterion, Prediction, predict
from ndadam.theory.settling import or_forget_sooner, settling_steps

T = TypeVar("T")


def default_criterion(*, is_constant: bool) -> Criterion:
    """The criterion of a match that names none, given whether the learning rate is constant."""
    return "stationary" if is_constant else "least_squares"


def default_window(criterion: Criterion, num_steps: int) -> tuple[int, int]:
    """The steps that a verdict looks at, start <= step < stop, if none are given.

    The last 5/12 of the run for "stationary", else 5 to 95 % of it.
    """
    if criterion == "stationary":
        return num_steps - num_steps * 5 // 12, num_steps
    return round(0.05 * num_steps), round(0.95 * num_steps)


def default_run(*, window_steps: int = 0, settled: int = 0) -> int:
    """Fewest steps of a stationary run whose default window is long and late enough."""
    return max(math.ceil(window_steps * 12 / 5), math.ceil(settled * 12 / 7))


def shortest_window(least: int) -> int:
    """Records that an interval and a drift test need, given the shortest block of records."""
    return 2 * FEWEST_BLOCKS * least


@dataclass(frozen=True)
class EarlyWindow:
    """Why a window starts before a stationary match can be judged."""

    #: The side that settles last, "source" or "target", and the step from which it is stationary.
    side: str
    settled: int
    #: ", or a beta2 of …" where ND-Adam could forget sooner instead; else "".
    or_sooner: str


def early_window(
    start: int, source: OptimizerSetting, target: OptimizerSetting, level: Level
) -> EarlyWindow | None:
    """What has not settled at step ``start`` of a stationary match; None if both sides have."""
    waits = settling_steps(source, target, level)
    side = max(waits, key=waits.__getitem__)
    if start >= waits[side]:
        return None
    return EarlyWindow(side, waits[side], or_forget_sooner(source, target, waits, start))


@dataclass(frozen=True)
class MatchPlan:
    """One match, decided before anything runs. Whoever makes it has checked its values."""

    source: OptimizerSetting
    #: Its learning rate is open.
    target: OptimizerSetting
    #: Length of every run but short calibration runs.
    num_steps: int
    #: Step -> factor on both learning rates.
    lr_schedule: Factor
    criterion: Criterion
    level: Level
    #: Largest ratio, minus 1, that counts as a match.
    tolerance: float
    #: One source run and one verdict run each.
    seeds: tuple[int, ...]
    #: The verdict looks at the steps start <= step < stop.
    window: tuple[int, int]
    max_corrections: int
    #: Runs of one calibration round, each with a seed of its own.
    calibration_replicates: int = 1
    #: Steps between two records.
    every: int = 1
    #: Window of calibration runs that are shorter than the others; None: all are equally long.
    short_calibration: tuple[int, int] | None = None
    #: The source's records of the whole run, made before the match; None: it is trained.
    recorded: Sequence[float] | None = None
    #: Where calibration of the target starts; None: with the rate that its law predicts.
    start_rate: float | None = None
    #: Significant digits of the learning rates that the target is trained with; None: all.
    digits: int | None = None

    @property
    def least_block(self) -> int:
        """Shortest block of records for intervals."""
        return least_block(max(self.source.averaging, self.target.averaging), self.every)

    @property
    def memory(self) -> float:
        """Records within which decay undoes the source's fluctuations, infinite without decay."""
        return decay_memory(self.source, self.every)

    @property
    def level_factor(self) -> float:
        """Effective learning rate that the target should have, over the source's."""
        return level_factor(self.source, self.target, self.level)

    @property
    def first_slope(self) -> float:
        """d log e / d log rate before it is measured: norms that yield halve it.

        Without a law the larger one, with which the first correction is the smaller.
        """
        is_straight = self.target.optimizer == "ndadam" or self.start_rate is not None
        return 1.0 if is_straight else 0.5

    @property
    def shadow_betas(self) -> tuple[float, float] | None:
        """Betas of the shadow moments that source runs record; None if the target has none."""
        return self.target.betas if self.target.optimizer == "ndadam" else None

    def calibration_seeds(self, number: int) -> tuple[int, ...]:
        """Seeds of calibration round ``number`` (from 0), which no other run has."""
        first = max(self.seeds) + 1 + number * self.calibration_replicates
        return tuple(range(first, first + self.calibration_replicates))

    def in_window(self, records: Sequence[T], window: tuple[int, int] | None = None) -> Sequence[T]:
        """Records of the steps start <= step < stop; of the verdict's window if none is given."""
        start, stop = (-(-step // self.every) for step in window or self.window)
        return records[start:stop]

    def rounded(self, rate: float) -> float:
        """A learning rate as runs are trained with it."""
        return rate if self.digits is None else float(f"{rate:.{self.digits}g}")

    def predict(self) -> Prediction:
        """What the settings alone say. Raises as ``ndadam.theory.predict`` does."""
        return predict(
            self.source,
            self.target,
            num_steps=self.num_steps,
            factor=self.lr_schedule,
            level=self.level,
        )

    def closed_form(self) -> Prediction | None:
        """What the settings alone say; None if theory has no answer."""
        try:
            return self.predict()
        except NoStationaryRate:
            return None
