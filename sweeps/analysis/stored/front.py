"""The Pareto front of a sweep with several objectives, and its hypervolume, by Optuna.

A point is on the front if no other one is as good in every objective and better in one, by the
means over seeds. Means spread, so what the intervals allow is said beside it. Computed by the
driver and stored: nobody who reads it needs Optuna.
"""

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ndadam.statistics.inference import holm, welch
from sweeps.analysis.arms import Estimate, estimate
from sweeps.records import Sweep, SweepObjective, Trial, TrialState
from sweeps.store.store import Store

#: Points of a front that are compared with each other, all pairs; with more, Holm's correction
#: would leave nothing to be shown.
MAX_COMPARED = 30
#: States of a replicate that take a point its means: those of the other seeds would flatter it.
_SPOILT = (TrialState.DIVERGED, TrialState.PRUNED)


@dataclass(frozen=True)
class FrontPoint:
    """One point of the front."""

    point: int
    params: dict[str, Any]
    #: Metric of each objective -> mean over seeds with its interval.
    values: dict[str, Estimate]
    #: Whether it is shown to differ from every other point of the front in some objective; None
    #: where that was not asked: too many points, or too few seeds.
    is_distinct: bool | None


@dataclass(frozen=True)
class Front:
    """The points that no other point beats, by their means."""

    #: Metric, direction and reference of each objective, in the order of the spec.
    objectives: list[SweepObjective]
    points: list[FrontPoint]
    #: Points with a mean of every objective.
    num_points: int
    #: Volume between front and reference, in the product of the objectives' own units.
    hypervolume: float | None
    #: Metric -> where the hypervolume is measured from: declared, or the worst mean of any point.
    reference: dict[str, float]
    #: Points of the front that are shown to differ from every other one of it; None as above.
    num_distinct: int | None
    #: Points off the front whose intervals reach beyond it: fresh seeds may put them on it.
    num_reaching: int
    notes: list[str]


@dataclass(frozen=True)
class PointMeans:
    """A point with a mean of every objective."""

    number: int
    params: dict[str, Any]
    #: One list of values over seeds for each objective.
    values: list[list[float]]
    estimates: list[Estimate]

    @property
    def means(self) -> list[float]:
        return [one.mean for one in self.estimates]

    def best_ends(self, objectives: Sequence[SweepObjective]) -> list[float]:
        """The better end of each interval; the mean where there is none."""
        pairs = zip(self.estimates, objectives, strict=True)
        ends = [(one.high if of.is_maximized else one.low, one.mean) for one, of in pairs]
        return [mean if end is None else end for end, mean in ends]


def front_of(store: Store, sweep: Sweep) -> dict[str, Any]:
    """The front of a sweep's trials as they are now, as JSON values."""
    return asdict(pareto_front(sweep.objectives, store.all_trials(sweep.id)))


def pareto_front(objectives: Sequence[SweepObjective], trials: Iterable[Trial]) -> Front:
    """Return the front of the points that trials belong to, with what is not shown about it."""
    points = point_means(objectives, trials)
    if not points:
        return Front(list(objectives), [], 0, None, {}, None, 0, [])
    study = _study(objectives, points)
    on = {trial.number for trial in study.best_trials}
    members = [point for index, point in enumerate(points) if index in on]
    others = [point for index, point in enumerate(points) if index not in on]
    reference = _reference(objectives, points)
    distinct = _distinct(members)
    reaching = sum(_reaches(point, members, objectives) for point in others)
    # Along the first objective, as the plot is read.
    members.sort(key=lambda point: (objectives[0].sign * point.means[0], point.number))
    names = [one.metric for one in objectives]
    return Front(
        list(objectives),
        [
            FrontPoint(
                point.number,
                point.params,
                dict(zip(names, point.estimates, strict=True)),
                None if distinct is None else point.number in distinct,
            )
            for point in members
        ],
        len(points),
        _hypervolume(objectives, members, reference),
        dict(zip(names, reference, strict=True)),
        None if distinct is None else len(distinct),
        reaching,
        _notes(objectives, members, distinct, reaching),
    )


def _study(objectives: Sequence[SweepObjective], points: Sequence[PointMeans]) -> Any:
    # Loaded by the driver; who only reads means starts without it.
    import optuna

    study = optuna.create_study(directions=[one.direction for one in objectives])
    study.add_trials([optuna.trial.create_trial(values=point.means) for point in points])
    return study


def point_means(objectives: Sequence[SweepObjective], trials: Iterable[Trial]) -> list[PointMeans]:
    """Return the points with a mean of every objective, by number.

    A point with a diverged or pruned replicate has none.
    """
    names = [one.metric for one in objectives]
    of_point: dict[int, list[Trial]] = {}
    for trial in trials:
        of_point.setdefault(trial.point, []).append(trial)
    found = []
    for number, mine in sorted(of_point.items()):
        rows = [trial.values_of(names) for trial in mine if trial.state == TrialState.COMPLETE]
        whole = [[value for value in row if value is not None] for row in rows if None not in row]
        if not whole or any(trial.state in _SPOILT for trial in mine):
            continue
        columns = [list(column) for column in zip(*whole, strict=True)]
        pairs = zip(names, columns, strict=True)
        estimates = [one for name, column in pairs if (one := estimate(name, column)) is not None]
        found.append(PointMeans(number, mine[0].params, columns, estimates))
    return found


def off_the_front(front: Mapping[str, Any], points: Sequence[PointMeans]) -> list[dict[str, float]]:
    """Metric -> mean, of each point that a stored front does not hold."""
    on = {point["point"] for point in front["points"]}
    names = [one["metric"] for one in front["objectives"]]
    return [
        dict(zip(names, point.means, strict=True)) for point in points if point.number not in on
    ]


def _reference(objectives: Sequence[SweepObjective], points: Sequence[PointMeans]) -> list[float]:
    worst = [
        (min if of.is_maximized else max)(column)
        for of, column in zip(objectives, zip(*(p.means for p in points), strict=True), strict=True)
    ]
    pairs = zip(objectives, worst, strict=True)
    return [found if of.reference is None else of.reference for of, found in pairs]


def _hypervolume(
    objectives: Sequence[SweepObjective], members: Sequence[PointMeans], reference: Sequence[float]
) -> float:
    import optuna

    study = _study(objectives, members)
    with warnings.catch_warnings():
        # "Experimental": the only public function of Optuna that computes it.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        figure = optuna.visualization.plot_hypervolume_history(study, reference)
    return float(figure.data[0].y[-1])


def _distinct(members: Sequence[PointMeans]) -> set[int] | None:
    """Numbers of the points that are shown to differ from every other; None = not asked.

    Welch's t in each objective of each pair, with Holm's correction over all of them. Where neither
    point spreads any difference would look certain, so it is not judged.
    """
    if len(members) > MAX_COMPARED or any(len(point.values[0]) < 2 for point in members):
        return None
    pairs, p_values = list[tuple[int, int]](), list[float]()
    for a, b in itertools.combinations(members, 2):
        for one, other in zip(a.values, b.values, strict=True):
            if len(set(one)) > 1 or len(set(other)) > 1:
                pairs.append((a.number, b.number))
                p_values.append(welch(one, other).p_value)
    adjusted = zip(pairs, holm(p_values), strict=True)
    shown = {frozenset(pair) for pair, p_value in adjusted if p_value <= 0.05}
    numbers = {point.number for point in members}
    return {
        number
        for number in numbers
        if all(frozenset((number, other)) in shown for other in numbers - {number})
    }


def _reaches(
    point: PointMeans, members: Sequence[PointMeans], objectives: Sequence[SweepObjective]
) -> bool:
    """Whether no mean of the front is as good as the better ends of a point's intervals."""
    signs = [one.sign for one in objectives]
    ends = point.best_ends(objectives)
    return not any(
        all(s * mean <= s * end for s, mean, end in zip(signs, member.means, ends, strict=True))
        for member in members
    )


def _notes(
    objectives: Sequence[SweepObjective],
    members: Sequence[PointMeans],
    distinct: set[int] | None,
    reaching: int,
) -> list[str]:
    """What the means on the front do not show."""
    count = len(members)
    notes = ["A point is on the front by its means over seeds; fresh seeds may move it off."]
    if any(len(point.values[0]) < 2 for point in members):
        notes.append("One seed of a point says nothing about its spread: nothing is shown here.")
    elif distinct is None:
        notes.append(f"With more than {MAX_COMPARED} points on the front none is compared.")
    elif count > 1:
        notes.append(
            f"{len(distinct)} of its {count} points "
            f"{'is' if len(distinct) == 1 else 'are'} shown to differ from every other one in some "
            "objective (Welch, 5 % after Holm's correction over all pairs and objectives)."
        )
    if reaching:
        notes.append(
            f"{reaching} point{'' if reaching == 1 else 's'} off the front "
            f"{'has' if reaching == 1 else 'have'} intervals that reach beyond it."
        )
    if any(one.reference is None for one in objectives):
        notes.append(
            "The hypervolume is measured from the worst mean of any point where no reference is "
            "declared: compare it only between sweeps that declare the same."
        )
    return notes
