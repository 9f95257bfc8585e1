"""Pages of sweeps: the list, one sweep, and the parts of it that a live update replaces."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.plots.views import CURVE_VIEWS
from dashboards.sweep_pages.chosen_points import group_fields
from dashboards.sweep_pages.front import front_values
from dashboards.sweep_pages.list import ListQuery, sweep_list
from dashboards.sweep_pages.overview import live_values, overview_values, sweep_facts
from dashboards.sweep_pages.plots import CURVE_POINTS, curve_metrics
from dashboards.sweep_pages.results import result_values, trend
from dashboards.sweep_pages.search import contour_fields, contour_points, first_pair
from dashboards.sweep_pages.tables import TrialQuery, leaderboard, trial_table
from dashboards.web.error_pages import PageRoute
from dashboards.web.point_cache import all_points, kept
from dashboards.web.templating import page
from dashboards.wording.importance_notes import importance_notes
from dashboards.wording.sweep_facts import (
    StoreDep,
    address,
    is_adaptive,
    objective_metric,
    objective_quantity,
)
from sweeps.figures.quantities import quantity
from sweeps.records import Point, Sweep
from sweeps.store.database.people import Scope, may
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def list_page(query: ListQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """All sweeps, newest first."""
    return page(
        "sweeps.html",
        title="Sweeps",
        lead="Each trains many configurations and shows which settings work.",
        section="sweeps",
        address="/",
        listing="sweep/list.html",
        **sweep_list(store, query),
    )


@router.get("/parts/sweeps")
def list_part(query: ListQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """The table of all sweeps."""
    return page("sweep/list.html", **sweep_list(store, query))


@router.get("/sweeps/{sweep_id}")
def sweep_page(
    request: Request,
    sweep_id: str,
    sort: str = "",
    cursor: str = "",
    metric: str = "",
    query: TrialQuery = Depends(),
    store: Store = StoreDep,
) -> Response:
    """One sweep; a match has a page of its own."""
    sweep = store.get_sweep(sweep_id)
    if sweep.kind == "match":
        return RedirectResponse(f"/matches/{sweep.id}", status_code=307)
    here = f"/sweeps/{sweep.id}"
    live = live_values(store, sweep, here)
    metrics, points = curve_metrics(store, sweep), all_points(store, sweep)
    return page(
        "sweep.html",
        # A sweep that ended with fewer points draws them all.
        curve_count=min(CURVE_POINTS, len(points)) if live["is_over"] else CURVE_POINTS,
        metrics=metrics,
        curve_views=(*CURVE_VIEWS, *_group_views(sweep, points)),
        colour_views=(_colour_view(sweep, "optimizer" if "optimizer" in sweep.space else "none"),),
        parallel_views=(_colour_view(sweep, "rank"),),
        sensitivity_ids=" ".join(f"sensitivity-{name}" for name in sweep.space),
        views=dict(request.query_params),
        metric=metric or objective_metric(sweep),
        sensitivity_note=_sensitivity_note(sweep, _trends_drawn(store, sweep)),
        importance_note=_importance_note(sweep),
        branch_notes=importance_notes(sweep),
        contour_choices=contour_fields(sweep),
        contour_pair=first_pair(sweep, contour_points(store, sweep)),
        space=sweep.space,
        **live,
        **_overview(store, sweep, request.url.query),
        **result_values(store, sweep),
        **front_values(sweep),
        board=leaderboard(store, sweep, here, sort, cursor),
        trials=trial_table(store, sweep, here, query),
    )


def _fields(sweep: Sweep, names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, quantity(name, training=sweep.training).name) for name in names]


def _group_views(sweep: Sweep, points: Sequence[Point]) -> tuple[Any, ...]:
    """Choices of what the curves are grouped by, and what the curves of points are coloured by."""
    names = group_fields(sweep, points)
    return (
        ("group", "grouped by", (("", "nothing"), *_fields(sweep, names))),
        (
            "colour",
            "coloured by",
            (("", "point"), *_fields(sweep, (n for n in names if n != "seed"))),
        ),
    )


def _colour_view(sweep: Sweep, default: str) -> tuple[Any, ...]:
    """The choice of a field by which marks or lines are coloured."""
    fields = _fields(sweep, (name for name in sweep.space if name != default))
    return ("colour", "coloured by", (("", default), *fields))


def _trends_drawn(store: Store, sweep: Sweep) -> int:
    """In how many sensitivity plots a mean over points is drawn."""
    points = all_points(store, sweep)
    fields = list(sweep.space)
    return kept(
        store, sweep, "trends", lambda: sum(bool(trend(sweep, points, name)) for name in fields)
    )


def _sensitivity_note(sweep: Sweep, trends: int) -> str:
    """What the plots show: a grey mean is named where one is drawn."""
    marks = "each mark is a point (mean ± sd over seeds)"
    if not is_adaptive(sweep):
        if not trends:
            return f"{marks}; too few points yet for a mean over neighbouring ones"
        where = "" if trends == len(sweep.space) else ", where there are enough"
        return f"{marks}; grey is the mean over neighbouring points{where}"
    why = (
        "pruning keeps only points that looked good early"
        if sweep.scheduler is not None
        else f"the {sweep.sampler} sampler tries good regions more often"
    )
    return f"{marks}; no trend is drawn because {why}"


def _importance_note(sweep: Sweep) -> str:
    if is_adaptive(sweep):
        return "the search adapted to results, so importance describes only the points it tried"
    return "shares of the variance exclude interactions, so they need not add up to 100 %"


def _overview(store: Store, sweep: Sweep, query: str = "") -> dict[str, Any]:
    # A public link shows its own sweep alone.
    shows_others = sweep.state.is_finished() and may(Scope.READ)
    confirmations = store.confirmations(sweep.id) if shows_others else []
    return {
        **overview_values(sweep, f"/sweeps/{sweep.id}", sweep_facts(sweep, confirmations)),
        "saved": store.saved_views(sweep.id),
        "saved_query": query,
    }


@router.get("/sweeps/{sweep_id}/views/{name}")
def saved_view(sweep_id: str, name: str, store: Store = StoreDep) -> Response:
    """Redirect to a saved view of the sweep's page."""
    view = store.saved_view(sweep_id, name)
    return RedirectResponse(f"/sweeps/{sweep_id}?{view.query}", status_code=307)


@router.get("/sweeps/{sweep_id}/parts/views")
def views_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """The saved views of the sweep's page."""
    saved = store.saved_views(sweep_id)
    return page("shared/view_list.html", saved=saved, saved_of=sweep_id, saved_query="")


@router.get("/sweeps/{sweep_id}/parts/overview")
def overview_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """State, progress, best and buttons."""
    sweep = store.get_sweep(sweep_id)
    return page("sweep/overview.html", **_overview(store, sweep))


@router.get("/sweeps/{sweep_id}/parts/results")
def results_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """The result table and its comparisons."""
    sweep = store.get_sweep(sweep_id)
    return page(
        "sweep/results.html",
        sweep=sweep,
        here=f"/sweeps/{sweep.id}",
        objective=objective_quantity(sweep),
        **result_values(store, sweep),
    )


@router.get("/sweeps/{sweep_id}/parts/leaderboard")
def leaderboard_part(
    sweep_id: str, sort: str = "", cursor: str = "", store: Store = StoreDep
) -> HTMLResponse:
    """One page of the leaderboard."""
    sweep = store.get_sweep(sweep_id)
    here = f"/sweeps/{sweep.id}"
    return page(
        "sweep/leaderboard.html",
        sweep=sweep,
        objective=objective_quantity(sweep),
        board=leaderboard(store, sweep, here, sort, cursor),
    )


@router.get("/sweeps/{sweep_id}/parts/trials")
@router.get("/matches/{sweep_id}/parts/trials")
def trials_part(
    sweep_id: str,
    query: TrialQuery = Depends(),
    store: Store = StoreDep,
) -> HTMLResponse:
    """One page of the trials of a sweep or match."""
    sweep = store.get_sweep(sweep_id)
    here = address(sweep)
    return page(
        "sweep/trials.html",
        sweep=sweep,
        here=here,
        objective=objective_quantity(sweep),
        trials=trial_table(store, sweep, here, query),
    )
