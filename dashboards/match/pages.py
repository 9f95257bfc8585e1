"""Pages of matches: the list, one match, its plots, and the parts that a live update replaces."""

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.match.plots import implied_rates, match_curves
from dashboards.match.view import match_facts, match_values, rate_name_of, side
from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.sweep_pages.list import ListQuery, match_list
from dashboards.sweep_pages.overview import live_values, overview_values
from dashboards.sweep_pages.tables import TrialQuery, trial_table
from dashboards.web.error_pages import PageRoute
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep
from sweeps.errors import SweepNotFound
from sweeps.match.result import result_of
from sweeps.records import Sweep, SweepState
from sweeps.spec.presets import preset_names, read_preset
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/matches")
def list_page(query: ListQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """All matches, newest first."""
    return page(
        "sweeps.html",
        title="Matches",
        lead="Each finds the rate at which one optimizer moves weights as fast as another.",
        section="matches",
        address="/matches",
        listing="match/list.html",
        presets=[p for p in map(read_preset, preset_names()) if p.kind == "match"],
        **match_list(store, query),
    )


@router.get("/parts/matches")
def list_part(query: ListQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """The table of all matches."""
    return page("match/list.html", **match_list(store, query))


@router.get("/matches/{sweep_id}")
def match_page(
    sweep_id: str,
    query: TrialQuery = Depends(),
    store: Store = StoreDep,
) -> Response:
    """One match."""
    sweep = store.get_sweep(sweep_id)
    if sweep.kind != "match":
        return RedirectResponse(f"/sweeps/{sweep.id}", status_code=307)
    here = f"/matches/{sweep.id}"
    return page(
        "match.html",
        **live_values(store, sweep, here),
        trials=trial_table(store, sweep, here, query),
        **(_overview(sweep) | _values(store, sweep)),
    )


def _match(store: Store, sweep_id: str) -> Sweep:
    """Return a match. Raises SweepNotFound, for a sweep of another kind too."""
    sweep = store.get_sweep(sweep_id)
    if sweep.kind != "match":
        raise SweepNotFound(sweep_id)
    return sweep


def _values(store: Store, sweep: Sweep) -> dict[str, Any]:
    # Only a match that runs says what it waits for.
    is_running = sweep.state == SweepState.RUNNING
    return match_values(sweep, list(store.all_trials(sweep.id)) if is_running else ())


def _overview(sweep: Sweep) -> dict[str, Any]:
    return overview_values(sweep, f"/matches/{sweep.id}", match_facts(sweep))


@router.get("/matches/{sweep_id}/parts/overview")
def overview_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """State, progress, rate and buttons."""
    return page("sweep/overview.html", **_overview(_match(store, sweep_id)))


@router.get("/matches/{sweep_id}/parts/verdict")
def verdict_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """Verdict, and the rate under each criterion."""
    return page("match/verdict.html", **_values(store, _match(store, sweep_id)))


@router.get("/matches/{sweep_id}/parts/details")
def details_part(sweep_id: str, store: Store = StoreDep) -> HTMLResponse:
    """Findings, classes of weight vectors, cost and calibration."""
    return page("match/details.html", **match_values(_match(store, sweep_id)))


@router.get("/matches/{sweep_id}/plots/curves.{form}")
def curves_plot(sweep_id: str, form: Form, store: Store = StoreDep) -> Response:
    """Effective learning rate of source and target over the run."""
    sweep = _match(store, sweep_id)
    result = result_of(sweep)
    plot = NO_PLOT
    if result is not None and result["curves"] is not None:
        plot = match_curves(
            result["curves"],
            tolerance=result["tolerance"],
            verdict=result["verdict"],
            source_name=side(sweep, "source")["optimizer"],
            target_name=side(sweep, "target")["optimizer"],
        )
    empty = "The curves appear when the first source run has ended."
    return plot_answer(plot, form, file_name=f"{sweep_id}-curves", empty=empty)


@router.get("/matches/{sweep_id}/plots/layers.{form}")
def layers_plot(sweep_id: str, form: Form, store: Store = StoreDep) -> Response:
    """The rate that each layer alone would ask for."""
    sweep = _match(store, sweep_id)
    result = result_of(sweep)
    plot = NO_PLOT
    if result is not None and result["layers"]:
        verdict = result["verdict"]
        plot = implied_rates(
            result["layers"],
            rate_name=rate_name_of(sweep),
            rate=verdict["rate"] if verdict is not None else None,
        )
    empty = "Rates per layer are known once target runs have been measured layer by layer."
    return plot_answer(plot, form, file_name=f"{sweep_id}-layers", empty=empty)
