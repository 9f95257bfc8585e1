"""From a measured source to the rate that the verdict tests: prediction and corrections."""

import math
from collections.abc import Sequence
from statistics import fmean

from ndadam.matching.verdict import Pair, correct_rate, log_ratio
from ndadam.theory.fitted_curve import corrected_points, points_of_records, rate_of_records
from ndadam.theory.prediction import Criterion
from sweeps.match.match_spec import MatchSpec
from sweeps.match.runs import CalibrationRun, MatchRuns, Round, rms_over
from sweeps.records import Trial
from worker.config.train_config import SchedulePoints

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
    start, stop = spec.chosen_window()
    recorded = runs.wanted(sources).window(start, stop)
    return rate_of_records(
        criterion,
        spec.target_setting,
        recorded.values,
        every=recorded.every,
        start=start,
        factor=spec.factor(),
        gain=gain,
    )


def predicted_points(
    spec: MatchSpec, runs: MatchRuns, sources: Sequence[Trial], gain: float
) -> SchedulePoints | None:
    """For criterion schedule, the points that follow the source's measured curve."""
    if spec.chosen_criterion() != "schedule":
        return None
    recorded = runs.wanted(sources)
    return points_of_records(
        spec.target_setting,
        recorded.values,
        every=recorded.every,
        rate=predicted_rate(spec, runs, sources, "schedule", gain),
        gain=gain,
        shadow=runs.shadow(sources),
        least=spec.least_block,
    )


def next_points(
    runs: MatchRuns, sources: Sequence[Trial], targets: Sequence[Trial], points: SchedulePoints
) -> SchedulePoints:
    """The points after a calibration round, whose runs show where the curve still departs."""
    wanted = runs.wanted(sources)
    found = rms_over([runs.series(trial) for trial in targets])
    return corrected_points(
        points, wanted.values, found.values, every=wanted.every, least=runs.spec.least_block
    )


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
