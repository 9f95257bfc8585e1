"""Which points and trials a plot of a sweep shows: the best, those that fit, or groups of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dashboards.plots.groups import NO_VALUE, MeanCurve, colours_by, grouped, mean_curve
from dashboards.web.point_cache import all_points
from dashboards.wording.formatting import upper_first
from sweeps.errors import InvalidFilter
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import Curve, Setting
from sweeps.records import Point, Sweep
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

#: Said in place of a plot.
NONE_FITS = "No trial fits the condition."
ONLY_STEPS = "Groups are drawn over steps: choose steps, or no group."
#: Trials whose curves a plot of groups is made from; an even part of the points if there are more.
MOST_TRIALS = 240


def fitting_points(
    store: Store, sweep: Sweep, where: str, among: Sequence[str] = ()
) -> set[int] | str | None:
    """Points with a trial that fits; None for all; a sentence if the condition cannot be read."""
    if not where.strip():
        return None
    try:
        return store.points_where(sweep.id, where, among)
    except InvalidFilter as error:
        return upper_first(str(error).removeprefix("where: ")) + "."


def best_points(store: Store, sweep: Sweep, fitting: set[int] | None, most: int) -> list[Point]:
    """The best of the points that fit; those without a mean yet come last."""
    sign = sweep.objective.sign
    found = [p for p in all_points(store, sweep) if fitting is None or p.number in fitting]
    return sorted(found, key=lambda p: (p.mean is None, sign * (p.mean or 0.0), p.number))[:most]


def group_fields(sweep: Sweep, points: Sequence[Point] = ()) -> list[str]:
    """Fields by which points differ, and the seed."""
    return [*(sweep.space or dict.fromkeys(name for p in points for name in p.params)), "seed"]


def group_curves(
    store: Store,
    sweep: Sweep,
    metric: str,
    field: str,
    fitting: set[int] | None,
    where: str = "",
) -> list[Curve]:
    """One curve for each group: the mean over its trials, with their deviation."""
    points = [p for p in all_points(store, sweep) if fitting is None or p.number in fitting]
    chosen = thin(points, max(MOST_TRIALS // max(sweep.replicates, 1), 1))
    params: Mapping[int, Mapping[str, Any]] = {p.number: p.params for p in chosen}
    found = store.seed_curves(sweep.id, metric, list(params), where=where)
    values = [
        one.seed if field == "seed" else params[one.point].get(field, NO_VALUE) for one in found
    ]
    part = "" if len(chosen) == len(points) else f", of {len(chosen)} of {len(points)} points"
    curves = []
    for group in grouped(quantity(field, training=sweep.training), values):
        mean = mean_curve([found[at].curves[metric] for at in group.members])
        label = f"{group.name} ({len(group.members)} trials{part})"
        curves.append(trials_curve(mean, label, group.colour))
    return curves


def trials_curve(mean: MeanCurve, label: str, colour: str) -> Curve:
    """Return the mean of a group of trials as a plot draws it."""
    return Curve(label, mean.steps, mean.mean, mean.sd, mean.n, colour=colour, members="trials")


def point_colours(points: Sequence[Point], field: Quantity) -> list[tuple[str, str]]:
    """Name and colour of the group of each point."""
    return colours_by(field, [p.params.get(field.key, NO_VALUE) for p in points])


def coloured(
    marks: Sequence[Setting], points: Sequence[Point], field: Quantity
) -> tuple[list[Setting], dict[str, str]]:
    """Marks named after their group by a field, and the colour of each group."""
    params = {p.number: p.params for p in points}
    values = [params[mark.point].get(field.key, NO_VALUE) for mark in marks]
    groups = grouped(field, values)
    names = {at: group.name for group in groups for at in group.members}
    found = [replace(mark, optimizer=names[at]) for at, mark in enumerate(marks)]
    return found, {group.name: group.colour for group in groups}
