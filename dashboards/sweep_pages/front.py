"""The Pareto front of a sweep with several objectives: its table, and a plot over two of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.plots.front import front_plot
from dashboards.web.error_pages import PageRoute, error_page
from dashboards.web.point_cache import kept
from dashboards.web.templating import page
from dashboards.wording.formatting import mean_text, number, upper_first, with_unit
from dashboards.wording.sweep_facts import StoreDep, objective_quantities, settings_text
from sweeps.analysis.stored.front import off_the_front, point_means
from sweeps.figures.quantities import Quantity
from sweeps.records import Sweep
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: Rows of the table; a longer front is in the plot's CSV and in the API.
MOST_ROWS = 50
_NOT_YET = "The front comes with the sweep's next whole analysis, once two points have all means."


@dataclass(frozen=True)
class FrontRow:
    """A point on the front."""

    point: int
    #: Mean of each objective with its interval.
    values: list[str]
    n: int
    #: "yes", "not shown", or "–" where it was not asked.
    distinct: str
    settings: Markup


def front_values(sweep: Sweep) -> dict[str, Any]:
    """What ``sweep/front.html`` shows; nothing of a sweep with one objective."""
    front = (sweep.result or {}).get("front") if sweep.has_front else None
    objectives = objective_quantities(sweep) if sweep.has_front else []
    values: dict[str, Any] = {
        "front_titles": [
            (upper_first(what.name), "larger is better" if one.is_maximized else "")
            for what, one in zip(objectives, sweep.objectives, strict=False)
        ],
        "front_choices": [(what.key, what.name) for what in objectives],
        "front_rows": [],
        "front_notes": [],
        "front_volume": "",
        "front_more": 0,
    }
    if front is None:
        return values
    points = front["points"]
    return values | {
        "front_rows": [_row(sweep, objectives, point) for point in points[:MOST_ROWS]],
        "front_more": max(0, len(points) - MOST_ROWS),
        "front_notes": front["notes"],
        "front_volume": _volume(objectives, front),
    }


def _row(sweep: Sweep, objectives: Sequence[Quantity], point: Mapping[str, Any]) -> FrontRow:
    found = [point["values"][what.key] for what in objectives]
    words = {True: "yes", False: "not shown", None: "–"}
    return FrontRow(
        point["point"],
        [
            mean_text(what, one["mean"], one["low"], one["high"])
            for what, one in zip(objectives, found, strict=True)
        ],
        found[0]["n"],
        words[point["is_distinct"]],
        settings_text(point["params"], sweep.training),
    )


def _volume(objectives: Sequence[Quantity], front: Mapping[str, Any]) -> str:
    """The hypervolume in the units of the table, and where it is measured from."""
    volume = front["hypervolume"]
    if volume is None:
        return ""
    for what in objectives:
        volume = what.shown(volume)
    from_ = ", ".join(
        f"{what.name} {with_unit(what, number(what.shown(front['reference'][what.key])))}"
        for what in objectives
    )
    return f"Hypervolume {number(volume)}, measured from {from_}."


@router.get("/sweeps/{sweep_id}/parts/front")
def front_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """The table of the front."""
    sweep = store.get_sweep(sweep_id)
    return page("sweep/front.html", here=f"/sweeps/{sweep.id}", **front_values(sweep))


@router.get("/sweeps/{sweep_id}/plots/front.{form}")
def front_answer(
    sweep_id: str, form: Form, x: str = "", y: str = "", store: Store = StoreDep
) -> Response:
    """Means of two objectives: the front with intervals, and the other points."""
    sweep = store.get_sweep(sweep_id)
    if not sweep.has_front:
        return error_page(404, "Not found", "This sweep has one objective, and so no front.")
    objectives = {what.key: what for what in objective_quantities(sweep)}
    names = list(objectives)
    if any(name and name not in objectives for name in (x, y)):
        return error_page(404, "Not found", "The front is of this sweep's objectives alone.")
    x = x or next(name for name in names if name != y)
    y = y or next(name for name in names if name != x)
    front = (sweep.result or {}).get("front")
    plot, empty = NO_PLOT, _NOT_YET
    if x == y:
        empty = "Choose two different objectives."
    elif front is not None:
        trials = store.all_trials(sweep.id)
        means = kept(store, sweep, "means", lambda: point_means(sweep.objectives, trials))
        others = off_the_front(front, means)
        plot = front_plot(front, others, objectives[x], objectives[y])
    return plot_answer(plot, form, file_name=f"{sweep_id}-front", empty=empty)
