"""What a sweep's trials say: a row per arm with intervals, comparisons, the spread between seeds.

An arm is what a reader wants compared, usually the optimizer; within it the other fields were
tuned, and its best point stands for it. A number chosen as the best of several is marked
``selected``: it looks better than it will be again.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ndadam.statistics.inference import detectable_difference
from sweeps.analysis.formatting import arm_name
from sweeps.analysis.intervals import mean_over_seeds
from sweeps.analysis.sensitivity import Sensitivity, sensitivity
from sweeps.analysis.verdicts import Pair, Sample, Unlike, judged, sorted_pairs
from sweeps.errors import InvalidFilter
from sweeps.records import Point, Sweep, Trial, TrialState
from sweeps.store.store import Store

#: Arms compared with each other, all pairs; beyond it the table would be longer than its use.
MAX_COMPARED = 8
_TEST = "test_error"
#: Why arms get no verdict, by what they differ in; a sweep may have many such pairs.
_WHY_NOT = {
    "data": "Arms on different data sets are not compared: their errors are of other images.",
    "images": "Arms with other held-out images are not compared: their errors are of other images.",
    "spread": "Arms of which neither spreads over its seeds are not compared: any difference would "
    "look certain.",
}
_OPEN = (TrialState.WAITING, TrialState.RUNNING)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % t-interval (of an error, on the logit scale); none from a
    single seed.
    """

    mean: float
    sd: float | None
    n: int
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ArmResult:
    """One row of the result table."""

    #: The fields that tell arms apart, with this arm's values; {} where there is one arm.
    arm: dict[str, Any]
    #: Points of the arm: all, with a mean, with a diverged replicate.
    points: int
    points_with_mean: int
    points_diverged: int
    #: The point that stands for the arm, the best by mean objective; None if none has a mean.
    point: int | None
    params: dict[str, Any]
    #: Whether it was chosen as the best of several: "selected, optimistic" until confirmed.
    selected: bool
    objective: Estimate | None
    test_error: Estimate | None
    #: Values by seed, in the order of the seeds.
    objective_values: list[float]
    test_error_values: list[float]


@dataclass(frozen=True)
class Comparison:
    """Mean of arm a minus mean of arm b, by Welch's t, with Holm's correction over the table."""

    a: dict[str, Any]
    b: dict[str, Any]
    metric: str
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    #: Of a against b: "lower", "higher" or "not shown".
    verdict: str


@dataclass(frozen=True)
class Analysis:
    """Everything that is computed from a sweep's trials as they are now."""

    metric: str
    direction: str
    arm_fields: list[str]
    arms: list[ArmResult]
    comparisons: list[Comparison]
    #: Deviation between the seeds of a point, pooled over points; None without replicates.
    seed_deviation: float | None
    #: Difference of two arms that the sweep's seeds show with 80 % chance, at that deviation.
    detectable_difference: float | None
    sensitivity: list[Sensitivity]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def analyse(store: Store, sweep_id: str, arms: Sequence[str] | None = None) -> dict[str, Any]:
    """Analyse a sweep as far as it is recorded, as JSON values. See ``analysis``."""
    return analysis(store, sweep_id, arms).to_json()


def analysis(store: Store, sweep_id: str, arms: Sequence[str] | None = None) -> Analysis:
    """Analyse a sweep as far as it is recorded.

    Args:
        arms: Fields of the space whose values tell arms apart. None: the optimizer if it varies;
            every field where the objective is the test error, from which nothing may be chosen,
            and where the points were listed, as in a confirmation, so that nothing is.

    Raises InvalidFilter for other names.
    """
    sweep = store.get_sweep(sweep_id)
    points = store.all_points(sweep_id)
    metric = sweep.objective.metric
    fields = _arm_fields(sweep, metric) if arms is None else _known(sweep, arms)
    found = [_arm(store, sweep, arm, members) for arm, members in _group(points, fields)]
    results = [arm for arm, _ in found]
    pairs, unlike = _pairs([sample for _, sample in found])
    deviation = pooled_deviation(points)
    return Analysis(
        metric=metric,
        direction=sweep.objective.direction,
        arm_fields=fields,
        arms=results,
        comparisons=_comparisons(pairs, {sample: arm.arm for arm, sample in found}),
        seed_deviation=deviation,
        detectable_difference=(
            None
            if deviation is None or sweep.replicates < 2
            else detectable_difference(deviation, sweep.replicates)
        ),
        sensitivity=sensitivity(sweep, points),
        notes=_notes(sweep, points, results, unlike),
    )


def estimate(metric: str, values: Sequence[float]) -> Estimate | None:
    """Return the mean of a metric's values with its interval; None for no values."""
    if not values:
        return None
    interval = mean_over_seeds(metric, values)
    return Estimate(interval.mean, interval.sd, interval.n, interval.low, interval.high)


def pooled_deviation(points: Sequence[Point]) -> float | None:
    """Return the deviation between seeds of one point, pooled over points by their freedom."""
    spread = [(point.n - 1, point.sd) for point in points if point.sd is not None and point.n > 1]
    freedom = sum(n for n, _ in spread)
    return math.sqrt(sum(n * sd**2 for n, sd in spread) / freedom) if freedom else None


def _pairs(samples: Sequence[Sample]) -> tuple[list[Pair], list[Unlike]]:
    """Every two arms with two seeds each; none where there are too many arms for a table."""
    usable = [sample for sample in samples if len(sample.values) > 1]
    return sorted_pairs(usable) if len(usable) <= MAX_COMPARED else ([], [])


def _comparisons(pairs: Sequence[Pair], arms: Mapping[Sample, dict[str, Any]]) -> list[Comparison]:
    return [
        Comparison(
            a=arms[one.a],
            b=arms[one.b],
            metric=one.a.metric,
            difference=one.difference.difference,
            low=one.difference.low,
            high=one.difference.high,
            p_value=one.difference.p_value,
            p_holm=one.p_holm,
            verdict=one.verdict,
        )
        for one in judged(pairs)
    ]


def _compared(arm: ArmResult) -> list[float]:
    return arm.test_error_values or arm.objective_values


def _arm_fields(sweep: Sweep, metric: str) -> list[str]:
    if metric == _TEST or sweep.sampler == "list":
        return list(sweep.space)
    optimizer = sweep.space.get("optimizer") or {}
    return ["optimizer"] if len(optimizer.get("values") or []) > 1 else []


def _known(sweep: Sweep, arms: Sequence[str]) -> list[str]:
    for name in arms:
        if name not in sweep.space:
            raise InvalidFilter(
                f"arms must be fields of the space ({', '.join(sweep.space)}), got {name[:80]!r}",
                field="arms",
            )
    return list(dict.fromkeys(arms))


def _group(
    points: Sequence[Point], fields: Sequence[str]
) -> list[tuple[dict[str, Any], list[Point]]]:
    groups: dict[str, tuple[dict[str, Any], list[Point]]] = {}
    for point in points:
        arm = {name: point.params[name] for name in fields if name in point.params}
        groups.setdefault(repr(sorted(arm.items())), (arm, []))[1].append(point)
    return list(groups.values())


def _arm(
    store: Store,
    sweep: Sweep,
    arm: dict[str, Any],
    points: Sequence[Point],
) -> tuple[ArmResult, Sample]:
    """An arm's row, and what is compared of it: the test error where it was read."""
    objective = sweep.objective
    candidates = [point for point in points if point.mean is not None]
    best = min(candidates, key=lambda point: _rank(point, objective.sign), default=None)
    trials = [] if best is None else complete_trials(store.all_trials(sweep.id, point=best.number))
    values = [t.objective for t in trials if t.objective is not None]
    test = [t.metrics[_TEST] for t in trials if _TEST in t.metrics]
    sample = Sample(
        label=arm_name(arm),
        metric=_TEST if test else objective.metric,
        values=test or values,
        seeds=[t.seed for t in trials if not test or _TEST in t.metrics],
        config=config_values(trials),
    )
    result = ArmResult(
        arm=arm,
        points=len(points),
        points_with_mean=len(candidates),
        points_diverged=sum(point.state == TrialState.DIVERGED for point in points),
        point=None if best is None else best.number,
        params={} if best is None else best.params,
        selected=len(points) > 1 and best is not None,
        objective=estimate(objective.metric, values),
        test_error=estimate(_TEST, values if objective.metric == _TEST else test),
        objective_values=values,
        test_error_values=test,
    )
    return result, sample


def config_values(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return every value that the trials have, by field; the seed has none."""
    found: dict[str, list[Any]] = {}
    for trial in trials:
        for name, value in trial.config.items():
            values = found.setdefault(name, [])
            if name != "seed" and value not in values:
                values.append(value)
    return found


def _rank(point: Point, sign: float) -> tuple[bool, float, int]:
    """Settled points first, then the better mean, then the lower number: as the store's best."""
    assert point.mean is not None
    return point.state in _OPEN, sign * point.mean, point.number


def complete_trials(trials: Iterable[Trial]) -> list[Trial]:
    """Return those that are complete, in the order of their seeds."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return sorted(complete, key=lambda trial: trial.seed)


def _notes(
    sweep: Sweep, points: Sequence[Point], arms: Sequence[ArmResult], unlike: Sequence[Unlike]
) -> list[str]:
    metric = sweep.objective.metric
    notes = list(dict.fromkeys(_WHY_NOT[one.kind] for one in unlike))
    notes += _left_out(arms)
    if sweep.has_front:
        names = ", ".join(one.metric for one in sweep.objectives)
        notes.append(
            f"This sweep has several objectives ({names}), so no single point is best. What is "
            f"selected, compared and explained here goes by {metric} alone; the front has the "
            "points that no other one beats."
        )
    if any(arm.selected for arm in arms) and metric == _TEST:
        notes.append("Points were chosen by their test error: these numbers are no test any more.")
    elif any(arm.selected for arm in arms):
        notes.append(
            "Points marked selected are the best of several by this sweep's own results: "
            "optimistic until they are confirmed on fresh seeds."
        )
    if not any(point.mean is not None for point in points):
        notes.append("No finite result.")
    if sweep.replicates < 2:
        notes.append("One seed per point: no intervals. Set replicates to 2 or more.")
    unequal = {arm.points for arm in arms if arm.arm}
    if len(unequal) > 1:
        counts = ", ".join(f"{arm_name(arm.arm)} {arm.points}" for arm in arms)
        notes.append(f"The arms were tuned with unequal numbers of points: {counts}.")
    diverged = statistics.fmean(p.state == TrialState.DIVERGED for p in points) if points else 0
    if diverged > 0.25:
        notes.append(f"{diverged:.0%} of the points diverged: the ranges may reach too far.")
    return notes


def _left_out(arms: Sequence[ArmResult]) -> list[str]:
    """Why arms are in no comparison, where others are or could be."""
    usable = [arm for arm in arms if len(_compared(arm)) > 1]
    if len(usable) > MAX_COMPARED:
        return [
            f"{len(usable)} arms have two seeds or more, and differences are listed for at most "
            f"{MAX_COMPARED}: compare those that matter by the numbers of their points (the page "
            "Compare, ndsweep compare, POST /comparisons)."
        ]
    notes = []
    if usable and (few := [arm for arm in arms if len(_compared(arm)) < 2]):
        names = ", ".join(arm_name(arm.arm) for arm in few)
        which = names if len(few) <= MAX_COMPARED else f"{len(few)} of {len(arms)} arms"
        notes.append(f"Not compared, for want of two seeds with a value: {which}.")
    if len({bool(arm.test_error_values) for arm in usable}) > 1:
        without = ", ".join(arm_name(arm.arm) for arm in usable if not arm.test_error_values)
        notes.append(f"Not compared with the others, for want of a test error: {without}.")
    return notes
