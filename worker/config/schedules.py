"""Learning-rate schedules as pure functions: step (from 0) -> factor on the learning rate.

A step's factor applies *while* that step is taken; step 0 of a cosine has factor 1.
"""

import math
from collections.abc import Callable

from ndadam.theory.along_schedule import Factor
from ndadam.theory.fitted_curve import factor_of_points
from worker.config.train_config import LrSchedule


def build_schedule(
    schedule: LrSchedule, *, num_steps: int, steps_per_epoch: int, warmup_steps: int = 0
) -> Factor:
    """Return the schedule of a run of ``num_steps``: the factor of every step."""
    if isinstance(schedule, str):
        factor = _NAMED[schedule](num_steps, steps_per_epoch)
    else:
        factor = factor_of_points(schedule)
    return warm_up(factor, warmup_steps) if warmup_steps else factor


def cosine(num_steps: int) -> Factor:
    """Half a cosine over the run, one value per step: (1 + cos(pi t / T)) / 2."""
    return lambda step: 0.5 * (1 + math.cos(math.pi * step / num_steps))


def cosine_by_epoch(num_steps: int, steps_per_epoch: int) -> Factor:
    """The same half cosine, held for each epoch."""
    per_epoch = cosine(math.ceil(num_steps / steps_per_epoch))
    return lambda step: per_epoch(step // steps_per_epoch)


def warm_up(factor: Factor, warmup_steps: int) -> Factor:
    """Multiply by a straight line that reaches 1 at step ``warmup_steps`` - 1.

    The line starts from 0 *before* the first step, so that no step is wasted at rate 0.
    """
    return lambda step: factor(step) * min(1.0, (step + 1) / warmup_steps)


_NAMED: dict[str, Callable[[int, int], Factor]] = {
    "cosine": lambda num_steps, _: cosine(num_steps),
    "cosine_epoch": cosine_by_epoch,
    "constant": lambda *_: lambda step: 1.0,
}
