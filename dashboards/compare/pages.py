"""The page that compares sweeps, points and trials."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from dashboards.compare.plots import difference_plot
from dashboards.compare.view import (
    arm_curves,
    compare_values,
    compared_quantity,
    config_values,
    refs_of,
)
from dashboards.plots.answers import Form, plot_answer
from dashboards.plots.sweep import learning_curves
from dashboards.web.error_pages import PageRoute
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep
from sweeps.analysis.comparison import MAX_ARMS
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Arms = Annotated[list[str], Query(max_length=100)]


@router.get("/compare")
def compare_page(arm: Arms = [], metric: str = "", store: Store = StoreDep) -> HTMLResponse:  # noqa: B006
    """Any sweeps, points and trials: curves, tables, verdicts."""
    refs = refs_of(arm)
    return page(
        "compare.html",
        title="Compare",
        section="compare",
        query=urlencode([("arm", ref.text) for ref in refs]),
        left_out=MAX_ARMS if len(refs) == MAX_ARMS < len(set(arm)) else 0,
        known=[one for one in store.recently_complete() if one.kind == "sweep"],
        **compare_values(store, refs, metric),
    )


@router.get("/compare/configs")
def configs_page(arm: Arms = [], store: Store = StoreDep) -> HTMLResponse:  # noqa: B006
    """Configs of trials in any state, side by side: the fields that differ, then all others."""
    refs = refs_of(arm)
    return page(
        "configs.html",
        title="Configs side by side",
        section="compare",
        asked=[ref.text for ref in refs],
        **config_values(store, refs),
    )


@router.get("/compare/plots/curves.{form}")
def curves_plot(
    form: Form,
    arm: Arms = [],  # noqa: B006
    metric: str = "validation_error",
    store: Store = StoreDep,
) -> Response:
    """Curves of all compared arms."""
    refs = refs_of(arm)
    what = compared_quantity(store, refs, metric)
    plot = learning_curves(what, arm_curves(store, refs, metric))
    empty = f"None of these has reported its {what.name}."
    return plot_answer(plot, form, file_name="compared-curves", empty=empty)


@router.get("/compare/plots/differences.{form}")
def differences_plot(form: Form, arm: Arms = [], store: Store = StoreDep) -> Response:  # noqa: B006
    """Differences of means with their intervals."""
    values = compare_values(store, refs_of(arm), "")
    metric = values["compared"] if values["differences"] else ""
    plot = difference_plot(values["differences"], metric)
    empty = "There is no difference with an interval: two arms with two seeds each are needed."
    return plot_answer(plot, form, file_name="differences", empty=empty)
