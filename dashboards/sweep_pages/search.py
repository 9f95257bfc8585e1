"""Plots of a whole search: importance, parallel coordinates, contours, and the timeline."""

from collections.abc import Sequence
from datetime import UTC, datetime

from fastapi import APIRouter
from fastapi.responses import Response

from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.plots.contour import both_numeric, contour_plot
from dashboards.plots.importance import importance_plot, variance_plot
from dashboards.plots.parallel import parallel_plot
from dashboards.plots.timeline import timeline_plot
from dashboards.sweep_pages.chosen_points import NONE_FITS, fitting_points
from dashboards.web.error_pages import PageRoute, error_page
from dashboards.web.point_cache import all_points, kept
from dashboards.wording.importance_notes import why_no_importance
from dashboards.wording.sweep_facts import StoreDep, objective_quantity
from sweeps.analysis.variance_share import LEAST_POINTS, variance_shares
from sweeps.figures.quantities import quantity
from sweeps.figures.sweep import is_log
from sweeps.records import Point, Sweep
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: Points that a contour is made from; an even part if there are more.
MOST_POINTS = 4000
#: With fewer points, a surface would only show its smoothing.
LEAST_FOR_CONTOUR = 8


def contour_fields(sweep: Sweep) -> list[tuple[str, str]]:
    """Fields that can be an axis of a contour: key and words. The paper's come first."""
    known = sweep.space
    numeric = [
        name
        for name, domain in known.items()
        if domain.get("kind") != "choice"
        or sum(isinstance(v, int | float) and v is not True for v in domain["values"]) > 2
    ]
    return [(name, quantity(name, training=sweep.training).name) for name in numeric]


@router.get("/sweeps/{sweep_id}/plots/importance.{form}")
def importance_answer(sweep_id: str, form: Form, store: Store = StoreDep) -> Response:
    """Importance of each field for the best points, as the sweep's driver computed it."""
    sweep = store.get_sweep(sweep_id)
    rows = (sweep.result or {}).get("importance")
    empty = why_no_importance(sweep, is_computed=rows is not None)
    return plot_answer(
        importance_plot(rows or [], sweep.training),
        form,
        file_name=f"{sweep_id}-importance",
        empty=empty,
    )


@router.get("/sweeps/{sweep_id}/plots/variance.{form}")
def variance_answer(sweep_id: str, form: Form, store: Store = StoreDep) -> Response:
    """How much of the spread between all points each field explains by itself."""
    sweep = store.get_sweep(sweep_id)
    points = all_points(store, sweep)
    rows = kept(store, sweep, "variance", lambda: variance_shares(sweep.space, points))
    plot = variance_plot(rows, objective_quantity(sweep), sweep.training)
    empty = f"Shares of the variance need {LEAST_POINTS} finished points that vary a field."
    return plot_answer(plot, form, file_name=f"{sweep_id}-variance", empty=empty)


@router.get("/sweeps/{sweep_id}/plots/parallel.{form}")
def parallel_answer(
    sweep_id: str, form: Form, where: str = "", colour: str = "", store: Store = StoreDep
) -> Response:
    """Every point as a line over the sampled fields."""
    sweep = store.get_sweep(sweep_id)
    fitting = fitting_points(store, sweep, where)
    if isinstance(fitting, str):
        return plot_answer(NO_PLOT, form, file_name=f"{sweep_id}-parallel", empty=fitting)
    plot = parallel_plot(
        all_points(store, sweep),
        sweep.space,
        objective_quantity(sweep),
        sweep.training,
        maximize=sweep.objective.is_maximized,
        fitting=fitting,
        colour=colour if colour in sweep.space else "",
    )
    if not plot.rows and where:
        return plot_answer(plot, form, file_name=f"{sweep_id}-parallel", empty=NONE_FITS)
    empty = "No point has finished yet."
    return plot_answer(plot, form, file_name=f"{sweep_id}-parallel", empty=empty)


@router.get("/sweeps/{sweep_id}/plots/contour.{form}")
def contour_answer(
    sweep_id: str, form: Form, x: str = "", y: str = "", store: Store = StoreDep
) -> Response:
    """The objective over two fields."""
    sweep = store.get_sweep(sweep_id)
    names = [name for name, _ in contour_fields(sweep)]
    if any(name and name not in names for name in (x, y)):
        return error_page(404, "Not found", "This sweep does not vary these fields over a range.")
    points = contour_points(store, sweep)
    x, y = (x, y) if x and y else first_pair(sweep, points)
    if not x or x == y:
        return plot_answer(
            NO_PLOT,
            form,
            file_name=f"{sweep_id}-contour",
            empty="Choose two different fields." if x else "No two fields vary over ranges here.",
        )
    known, plot = sweep.space, NO_PLOT
    if len(both_numeric(points, x, y)) >= LEAST_FOR_CONTOUR:
        plot = contour_plot(
            points,
            quantity(x, training=sweep.training),
            quantity(y, training=sweep.training),
            objective_quantity(sweep),
            log=(is_log(known[x]), is_log(known[y])),
            maximize=sweep.objective.is_maximized,
        )
    empty = f"Contours need {LEAST_FOR_CONTOUR} finished points that vary both of these fields."
    return plot_answer(plot, form, file_name=f"{sweep_id}-contour-{x}-{y}", empty=empty)


def first_pair(sweep: Sweep, points: Sequence[Point]) -> tuple[str, str]:
    """The first two fields that most points vary together; ("", "") if there are none."""
    names = [name for name, _ in contour_fields(sweep)]
    pairs = [(x, y) for at, x in enumerate(names) for y in names[at + 1 :]]
    if not pairs:
        return "", ""
    return max(pairs, key=lambda pair: (len(both_numeric(points, *pair)), -pairs.index(pair)))


def contour_points(store: Store, sweep: Sweep) -> list[Point]:
    """The points that a contour is made from: at most ``MOST_POINTS``, evenly spread."""
    return thin(all_points(store, sweep), MOST_POINTS)


@router.get("/sweeps/{sweep_id}/plots/timeline.{form}")
def timeline_answer(sweep_id: str, form: Form, store: Store = StoreDep) -> Response:
    """When trials ran, and on which worker."""
    store.get_sweep(sweep_id)
    plot = timeline_plot(store.timeline(sweep_id), datetime.now(UTC))
    empty = "No trial has been started yet."
    return plot_answer(plot, form, file_name=f"{sweep_id}-timeline", empty=empty)
