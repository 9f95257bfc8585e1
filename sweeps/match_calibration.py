"""From a measured source to the rate that the verdict tests: prediction and corrections."""

import math
from collections.abc import Sequence
from statistics import fmean

from ndadam.lag import Curve
from ndadam.matching import Pair, correct_rate, log_ratio, smooth
from ndadam.theory import Criterion, lr_of_effective_lr, rate_of_curve, schedule_answer
from sweeps.match_runs import MatchRuns
from sweeps.match_spec import MatchSpec
from sweeps.match_state import CalibrationRun, Round
from sweeps.records import Trial
from worker.config import SchedulePoints

#: Stretches that a measured curve is smoothed to before a rate is fitted to it.
_STRETCHES = 200
#: A calibration run this close to its aim ends calibration, as a multiple of the tolerance: the
#: last correction leaves a few percent of the gap it closes (the slope is known that well).
_CLOSE = 2.0


def first_slope(spec: MatchSpec) -> float:
    """d log e / d log rate before it is measured: norms that yield halve it."""
    return 1.0 if spec.target.optimizer == "ndadam" else 0.5


def predicted_rate(
    spec: MatchSpec, runs: MatchRuns, sources: Sequence[Trial], criterion: Criterion, gain: float
) -> float:
    """The target's rate from the source's measured curve and the measured gain."""
    target = spec.target_setting
    start, stop = spec.chosen_window()
    if criterion == "stationary":
        values = runs.wanted(sources).window(start, stop).values
        return lr_of_effective_lr(target, math.sqrt(fmean(v * v for v in values)), gain)
    if criterion == "schedule":
        # A measured curve peaks in its wild first steps, so its schedule is relative to the rate
        # that goes as far in the window.
        criterion = "equal_rotation"
    power = 2 if criterion == "equal_rotation" else 1
    curve = _curve(spec, runs, sources, start, stop, power)
    return rate_of_curve(criterion, target, curve, gain)


def predicted_points(
    spec: MatchSpec, runs: MatchRuns, sources: Sequence[Trial], gain: float
) -> SchedulePoints | None:
    """For criterion schedule, the points that follow the source's measured curve."""
    if spec.chosen_criterion() != "schedule":
        return None
    rate = predicted_rate(spec, runs, sources, "schedule", gain)
    curve = _curve(spec, runs, sources, 0, spec.num_steps, 2)
    points = schedule_answer(spec.target_setting, curve, gain, rate).points
    assert points is not None
    return tuple((step, float(f"{factor:.6g}")) for step, factor in points)


def _curve(
    spec: MatchSpec,
    runs: MatchRuns,
    sources: Sequence[Trial],
    start: int,
    stop: int,
    power: int,
) -> Curve:
    """The wanted curve, smoothed to stretches that stand at their middle step."""
    recorded = runs.wanted(sources).window(start, stop)
    width = max(1, len(recorded.values) // _STRETCHES)
    values = smooth(recorded.values, width, power=power)
    first = -(-start // recorded.every) * recorded.every
    steps = tuple(
        first + (i * width + (width - 1) // 2) * recorded.every for i in range(len(values))
    )
    factor = spec.factor()
    return Curve(steps, tuple(factor(step) for step in steps), tuple(values))


# --- Rounds --------------------------------------------------------------------------------------


def is_close(found: Round, tolerance: float) -> bool:
    """Whether the correction that follows a round needs no run of its own."""
    return abs(found.log_ratio) <= _CLOSE * math.log1p(tolerance)


def judge_round(
    spec: MatchSpec,
    runs: MatchRuns,
    sources: Sequence[Trial],
    rate: float,
    targets: Sequence[Trial],
    before: Sequence[Round],
) -> Round:
    """Compare calibration runs with the source, and correct the rate."""
    wanted = runs.wanted(sources).window(*spec.chosen_window()).values
    found = []
    for trial in targets:
        values = runs.series(trial).window(*spec.calibration_window()).values
        gap = (
            log_ratio(spec.chosen_criterion(), Pair(wanted, values), spec.least_block)
            if spec.calibration_steps is None
            else math.log(_rms(wanted) / _rms(values))
        )
        found.append(CalibrationRun(trial.number, _rms(values), gap))
    gap = fmean(run.log_ratio for run in found)
    history = [(earlier.rate, earlier.log_ratio) for earlier in before]
    next_rate, slope = correct_rate([*history, (rate, gap)], first_slope=first_slope(spec))
    return Round(rate, tuple(found), gap, slope, next_rate)


def _rms(values: Sequence[float]) -> float:
    rms = math.sqrt(fmean(v * v for v in values))
    if rms == 0:
        raise ValueError("the target never moved in the window: its effective lr is 0")
    return rms
