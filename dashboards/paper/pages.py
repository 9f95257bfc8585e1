"""The page of the paper: its tables and figures, from our runs, beside its own values."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from dashboards.paper.plots import curves_plot, table_plot
from dashboards.paper.view import (
    FIGURES,
    difference_text,
    paper_curves,
    paper_tables,
    paper_values_of,
    ratio_text,
)
from dashboards.plots.answers import Form, plot_answer
from dashboards.web.error_pages import PageRoute, error_page
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep
from sweeps.paper.values import paper_values
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: Table whose first part gives the final errors of Figure 2.
_TABLE_OF_FIG2 = "table1-cifar10"


@router.get("/paper")
def paper_page(store: Store = StoreDep) -> HTMLResponse:
    """Tables 1 and 2, Figures 1 to 3, and what the text says."""
    return page(
        "paper.html",
        title="Paper",
        section="paper",
        ratio_text=ratio_text,
        difference_text=difference_text,
        **paper_values_of(store),
    )


@router.get("/paper/plots/{name}.{form}")
def plot(name: str, form: Form, store: Store = StoreDep) -> Response:
    """One table or figure."""
    for figure in FIGURES:
        if figure.id == name:
            finals = _finals() if name == "fig2" else []
            drawn = curves_plot(name, figure.metric, paper_curves(store, figure), finals)
            empty = f"No run of preset {figure.preset} has ended here yet."
            return plot_answer(drawn, form, file_name=f"paper-{name}", empty=empty)
    for found in paper_tables(store):
        if found.table.id == name:
            # The paper's own points are drawn before any of our runs has ended, too.
            return plot_answer(table_plot(found), form, file_name=f"paper-{name}", empty="")
    return error_page(404, "Not found", f"The paper has no table or figure {name[:40]!r}.")


def _finals() -> list[tuple[str, float]]:
    """The paper's final errors of Figure 2's three curves, from its Table 1."""
    [table] = [t for t in paper_values().tables if t.id == _TABLE_OF_FIG2]
    first = table.rows[0].part
    return [
        (str(row.params["optimizer"]), row.test_error) for row in table.rows if row.part == first
    ]
