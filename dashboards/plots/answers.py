"""A plot of a page: a figure and its table, sent as JSON for the page's script or as CSV."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi.responses import JSONResponse, Response

from sweeps.analysis.table import csv_cell

#: Ending of a plot's address.
Form = Literal["json", "csv"]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Plot:
    """What one plot shows, as plotly's values and as a table."""

    figure: dict[str, Any]
    columns: tuple[str, ...]
    rows: Sequence[Row]

    def csv(self) -> str:
        """The table as CSV, numbers in full precision and errors as fractions."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(csv_cell, self.columns))
        writer.writerows(map(csv_cell, row) for row in self.rows)
        return out.getvalue()


NO_PLOT = Plot({}, (), ())


def plot_answer(plot: Plot, form: Form, *, file_name: str, empty: str) -> Response:
    """Send a plot.

    Args:
        plot: What to send.
        form: ``json`` or ``csv``.
        file_name: Name of the CSV file, without its ending.
        empty: Sentence that the page shows instead of a plot without data.
    """
    if form == "csv":
        name = re.sub(r"[^A-Za-z0-9._-]", "_", file_name)
        disposition = f'attachment; filename="{name}.csv"'
        return Response(
            plot.csv(), media_type="text/csv", headers={"Content-Disposition": disposition}
        )
    body = plot.figure if plot.rows else {"empty": empty}
    return JSONResponse(body)
