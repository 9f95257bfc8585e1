"""How a plot is sent: as JSON for the page's script, or as CSV for everything else."""

from typing import Literal

from fastapi.responses import JSONResponse, Response

from dashboards.plots.figure import Plot

#: Ending of a plot's address.
Form = Literal["json", "csv"]


def plot_answer(plot: Plot, form: Form, *, file_name: str, empty: str) -> Response:
    """Send a plot.

    Args:
        plot: What to send.
        form: ``json`` or ``csv``.
        file_name: Name of the CSV file, without its ending.
        empty: Sentence that the page shows instead of a plot without data.
    """
    if form == "csv":
        disposition = f'attachment; filename="{file_name}.csv"'
        return Response(
            plot.csv(), media_type="text/csv", headers={"Content-Disposition": disposition}
        )
    body = plot.figure if plot.rows else {"empty": empty}
    return JSONResponse(body, headers={"Cache-Control": "no-store"})
