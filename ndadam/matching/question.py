"""What a measured match is asked, refused where it could not end well. Torch-free."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ndadam.checks import refuse_unless_whole
from ndadam.matching.checks import refuse_criterion, refuse_schedule
from ndadam.matching.verdict import least_block
from ndadam.statistics.blocked_means import FEWEST_BLOCKS
from ndadam.theory.lag import Factor
from ndadam.theory.laws import Level, OptimizerSetting, refuse_without_stationary_rate
from ndadam.theory.prediction import Criterion, resolve_level
from ndadam.theory.settling import or_forget_sooner, settling_steps

#: Ratios minus 1 beyond which two rates are not comparable in any sense.
_LARGEST_TOLERANCE = 0.5


@dataclass(frozen=True)
class Question:
    """The question, checked."""

    source: OptimizerSetting
    target: OptimizerSetting
    num_steps: int
    lr_schedule: Factor
    criterion: Criterion
    level: Level
    tolerance: float
    seeds: tuple[int, ...]
    window: tuple[int, int]
    least: int

    @classmethod
    def of(
        cls,
        source: OptimizerSetting,
        target: OptimizerSetting,
        num_steps: int,
        lr_schedule: Factor,
        criterion: Criterion | None,
        level: Level | None,
        tolerance: float,
        seeds: tuple[int, ...],
        window: tuple[int, int] | None,
    ) -> "Question":
        source.known_lr()
        _refuse_values(num_steps, criterion, tolerance, lr_schedule)
        if target.lr is not None:
            raise ValueError(f"target.lr is what the match finds; leave it open, got {target.lr}")
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be different numbers, at least one, got {seeds}")
        refuse_without_stationary_rate(target)
        if criterion is None:
            steps = range(0, num_steps, max(1, num_steps // 200))
            still = {lr_schedule(step) for step in steps} == {1.0}
            criterion = "stationary" if still else "least_squares"
        level = resolve_level(source, target, level)
        start = num_steps * 7 // 12 if criterion == "stationary" else num_steps // 20
        stop = num_steps if criterion == "stationary" else num_steps - num_steps // 20
        window = window or (start, stop)
        least = max(least_block(s.averaging, 1) for s in (source, target))
        rule = cls(
            source,
            target,
            num_steps,
            lr_schedule,
            criterion,
            level,
            tolerance,
            seeds,
            window,
            least,
        )
        rule._refuse_short_runs()
        return rule

    def _refuse_short_runs(self) -> None:
        start, stop = self.window
        needed = 2 * FEWEST_BLOCKS * self.least
        settled, side = 0, ""
        waits: dict[str, int] = {}
        if self.criterion == "stationary":
            refuse_without_stationary_rate(self.source)
            waits = settling_steps(self.source, self.target, self.level)
            side = max(waits, key=waits.__getitem__)
            settled = waits[side]
        # The default window of a stationary match is the last 5/12 of the run.
        enough = max(math.ceil(needed * 12 / 5), math.ceil(settled * 12 / 7))
        if not (0 <= start and start + needed <= stop <= self.num_steps):
            raise ValueError(
                f"window must lie within the run's {self.num_steps} steps and span at least "
                f"{needed} of them for an interval and a drift test, got {self.window}; a run of "
                f"{enough} steps would do"
            )
        if start < settled:
            raise ValueError(
                f"num_steps must be larger: the {side} is stationary only after about {settled} "
                f"steps, and the window starts at {start}; num_steps = {enough} would do"
                + or_forget_sooner(self.source, self.target, waits, start)
            )

    def judged(self, values: Sequence[float]) -> Sequence[float]:
        return values[self.window[0] : self.window[1]]


def _refuse_values(
    num_steps: int, criterion: Criterion | None, tolerance: Any, lr_schedule: Factor
) -> None:
    refuse_unless_whole("num_steps", num_steps, 1)
    refuse_criterion(criterion)
    if not isinstance(tolerance, Real) or not 0 < float(tolerance) <= _LARGEST_TOLERANCE:
        raise ValueError(
            f"tolerance must be above 0 and at most {_LARGEST_TOLERANCE}, a ratio minus 1 "
            f"(0.05 is 5 %), got {tolerance!r}"
        )
    refuse_schedule(lr_schedule, range(num_steps), num_steps)
