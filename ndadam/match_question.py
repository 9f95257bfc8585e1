"""What a measured match is asked, refused where it could not end well. Torch-free."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ndadam.blocks import FEWEST_BLOCKS
from ndadam.lag import Factor
from ndadam.matching import least_block
from ndadam.optimizer_laws import Level, OptimizerSetting, refuse_without_stationary_rate
from ndadam.settling import settling_steps
from ndadam.theory import Criterion


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
        if target.lr is not None:
            raise ValueError(f"target.lr is what the match finds; leave it open, got {target.lr}")
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be different numbers, at least one, got {seeds}")
        refuse_without_stationary_rate(target)
        if criterion is None:
            steps = range(0, num_steps, max(1, num_steps // 200))
            still = {lr_schedule(step) for step in steps} == {1.0}
            criterion = "stationary" if still else "least_squares"
        level = _level(source, target, level)
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
        if not (0 <= start and start + needed <= stop <= self.num_steps):
            raise ValueError(
                f"window must lie within the run's {self.num_steps} steps and span at least "
                f"{needed} of them for an interval and a drift test, got {self.window}; a run of "
                f"{math.ceil(needed * 12 / 5)} steps would do"
            )
        if self.criterion != "stationary":
            return
        refuse_without_stationary_rate(self.source)
        waits = settling_steps(self.source, self.target, self.level)
        side = max(waits, key=waits.__getitem__)
        settled = waits[side]
        if start < settled:
            raise ValueError(
                f"num_steps must be larger: the {side} is stationary only after about {settled} "
                f"steps, and the window starts at {start}; num_steps = "
                f"{math.ceil(settled * 12 / 7)} would do"
            )

    def judged(self, values: Sequence[float]) -> Sequence[float]:
        return values[self.window[0] : self.window[1]]


def _level(source: OptimizerSetting, target: OptimizerSetting, level: Level | None) -> Level:
    if level is None and not math.isclose(source.averaging, target.averaging, abs_tol=1e-9):
        raise ValueError(
            "level must be given, because source and target average gradients over different "
            f"times ({source.averaging:g} and {target.averaging:g}): step makes single steps "
            "equally long, as the paper does; long_range makes many steps go equally far"
        )
    return level or "step"
