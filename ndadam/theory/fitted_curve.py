"""Learning rates and schedules of a target from what a source run recorded. Torch-free.

Records are effective learning rates (root mean squares over vectors) at steps 0, every, 2 every, …
of a run.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from ndadam.statistics.blocked_means import rms, smooth
from ndadam.theory.along_schedule import Curve, Factor, interpolate
from ndadam.theory.laws import OptimizerSetting, lr_of_effective_lr, tangential_factor
from ndadam.theory.prediction import MAX_POINTS, Criterion, rate_of_curve, schedule_answer

#: Stretches that a measured curve is smoothed to before a rate is fitted to it.
_STRETCHES = 200
#: Stretches of a schedule grow by this factor from a single record on: the first steps of a run
#: change it from step to step, and noise is averaged out where it does not.
_GROWTH = 1.15
#: A schedule's longest stretch is this share of the run, or the block of the caller if longer.
_LONGEST = 60

#: (step, factor) with straight lines between.
Points = tuple[tuple[int, float], ...]


def curve_of_records(
    values: Sequence[float],
    every: int,
    start: int,
    factor: Factor,
    power: int,
    stretches: int = _STRETCHES,
) -> Curve:
    """Records from step ``start`` on, smoothed to stretches that stand at their middle step."""
    width = max(1, len(values) // stretches)
    smoothed = smooth(values, width, power=power)
    first = -(-start // every) * every
    steps = tuple(first + (i * width + (width - 1) // 2) * every for i in range(len(smoothed)))
    return Curve(steps, tuple(factor(step) for step in steps), tuple(smoothed))


def rate_of_records(
    criterion: Criterion,
    target: OptimizerSetting,
    values: Sequence[float],
    *,
    every: int,
    start: int,
    factor: Factor,
    gain: float,
) -> float:
    """The target's learning rate by a criterion, from the records of a window and the gain A.

    For "schedule" the rate that goes as far as the source in the window: a measured curve peaks in
    its wild first steps, so its largest value is no unit.
    """
    if criterion == "stationary":
        return lr_of_effective_lr(target, rms(values), gain)
    if criterion == "schedule":
        criterion = "equal_rotation"
    power = 2 if criterion == "equal_rotation" else 1
    return rate_of_curve(
        criterion, target, curve_of_records(values, every, start, factor, power), gain
    )


def points_of_records(
    target: OptimizerSetting,
    values: Sequence[float],
    *,
    every: int,
    rate: float,
    gain: float,
    shadow: Sequence[float] = (),
    least: int = 1,
) -> Points:
    """The schedule, relative to ``rate``, with which the target follows a whole run's records.

    ``shadow`` are the steps that ND-Adam would have taken at alpha^v = 1 on the source's gradients
    (``DynamicsRecord.shadow_step``), which knows how strongly gradients agree and what the second
    moment remembers at each step; without it the gain A stands for the whole run. ``least`` is the
    fewest records that a stretch averages once the first steps are over.
    """
    spans = _growing_stretches(len(values), max(least, len(values) // _LONGEST))
    steps = [(a + b - 1) // 2 * every for a, b in spans]
    wanted = [rms(values[a:b]) for a, b in spans]
    if shadow and target.optimizer == "ndadam":
        beta1 = target.betas[0]
        turned = [rms(shadow[a:b]) for a, b in spans]
        rates = [
            e / step * tangential_factor(e, beta1) if step > 0 else 0.0
            for e, step in zip(wanted, turned, strict=True)
        ]
        return _relative(steps, rates, rate)
    ones = [1.0] * len(steps)
    points = schedule_answer(
        target, Curve(tuple(steps), tuple(ones), tuple(wanted)), gain, rate
    ).points
    assert points is not None
    return points


def corrected_points(
    points: Points, source: Sequence[float], target: Sequence[float], *, every: int, least: int
) -> Points:
    """A schedule whose factors follow what a run with it was found to lack, stretch by stretch.

    ``source`` and ``target`` are records of the whole run. The overall ratio is left to the rate:
    only the shape changes. For targets whose norms are pinned, which answer at once.
    """
    width = max(least, len(source) // _LONGEST)
    a, b = smooth(source, width), smooth(target, width)
    logs = [math.log(x / y) if x > 0 and y > 0 else 0.0 for x, y in zip(a, b, strict=True)]
    mean = fmean(logs) if logs else 0.0
    middles = [(i * width + (width - 1) / 2) * every for i in range(len(logs))]
    return _relative(
        [step for step, _ in points],
        [f * math.exp(interpolate(middles, logs, step) - mean) for step, f in points],
        1.0,
    )


def factor_of_points(points: Points) -> Factor:
    """Straight lines between (step, factor) points; flat before the first and after the last."""
    steps, values = [step for step, _ in points], [value for _, value in points]
    return lambda step: interpolate(steps, values, step)


def _growing_stretches(count: int, longest: int) -> list[tuple[int, int]]:
    spans, begin, width = [], 0, 1.0
    while begin < count:
        end = min(count, begin + max(1, round(width)))
        spans.append((begin, end))
        begin, width = end, min(float(longest), width * _GROWTH)
    return spans


def _relative(steps: Sequence[int], rates: Sequence[float], unit: float) -> Points:
    every = max(1, math.ceil(len(steps) / MAX_POINTS))
    keep = sorted({*range(0, len(steps), every), len(steps) - 1})
    return tuple((steps[i], float(f"{rates[i] / unit:.6g}")) for i in keep)


__all__ = [
    "Points",
    "corrected_points",
    "curve_of_records",
    "factor_of_points",
    "points_of_records",
    "rate_of_records",
]
