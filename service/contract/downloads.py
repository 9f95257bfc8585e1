"""Downloads: trials as CSV, JSON or Parquet, a row each; tables as CSV, Markdown or LaTeX."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fastapi import Response
from fastapi.responses import StreamingResponse

from sweeps.analysis.table import csv_cell
from sweeps.records import Sweep
from sweeps.retention.note_images import images_as_data
from sweeps.store.store import Store

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}

#: CSV is sent in pieces of about this many characters.
PIECE = 65_536

Row = dict[str, Any]


def export_stream(store: Store, sweep: Sweep, format: str, home: Path) -> StreamingResponse:
    """Answer with every trial of ``sweep`` as a download in ``format``."""
    if format == "json":
        images = images_as_data(home, sweep.id, sweep.notes)
        body = _json(sweep, images, store.export_rows(sweep.id))
    else:
        # Two readings: the columns must be known before the first row is written.
        columns = _columns(store.export_rows(sweep.id))
        rows = store.export_rows(sweep.id)
        body = _csv(rows, columns) if format == "csv" else _parquet(rows, columns)
    name = f"{sweep.kind}-{sweep.id}.{format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body, media_type=MEDIA_TYPES[format], headers=headers)


def _columns(rows: Iterable[Row]) -> list[str]:
    """Every name that any row has, in the order in which they come first."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row))
    return list(columns)


def _plain(row: Row) -> Row:
    """Times as text, lists and objects as JSON: what fits into one cell."""
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _csv(rows: Iterable[Row], columns: list[str]) -> Iterator[bytes]:
    buffer = io.StringIO()
    # A trial started between the two readings may bring a metric that no other has: leave it out.
    writer = csv.writer(buffer)
    writer.writerow(map(csv_cell, columns))
    for row in rows:
        cells = _plain(row)
        writer.writerow([csv_cell(cells.get(name, "")) for name in columns])
        if buffer.tell() > PIECE:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def _json(sweep: Sweep, images: dict[str, str], rows: Iterable[Row]) -> Iterator[bytes]:
    head: Row = {"id": sweep.id, "kind": sweep.kind, "name": sweep.name, "state": str(sweep.state)}
    head |= {"notes": sweep.notes, "images": images}
    opening = json.dumps({"sweep": head | {"spec": sweep.spec, "result": sweep.result}})
    yield f'{opening[:-1]}, "trials": ['.encode()
    separator = ""
    for row in rows:
        yield f"{separator}\n{json.dumps(row, default=_cell)}".encode()
        separator = ","
    yield b"\n]}\n"


def _parquet(rows: Iterable[Row], columns: list[str]) -> Iterator[bytes]:
    # Imported here: the API starts without it, and most exports are CSV.
    import pyarrow
    import pyarrow.parquet

    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row in map(_plain, rows):
        for name, column in values.items():
            column.append(row.get(name))
    table = pyarrow.table({name: _one_type(column) for name, column in values.items()})
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink)
    yield sink.getvalue()


def _one_type(column: list[Any]) -> list[Any]:
    """A column with numbers and words (a schedule's name, or its points) becomes text."""
    kinds = {type(value) for value in column if value is not None}
    if len(kinds) <= 1 or kinds <= {int, float}:
        return column
    return [None if value is None else str(value) for value in column]


TABLE_TYPES = {"csv": "text/csv", "markdown": "text/markdown", "latex": "application/x-tex"}

#: ``responses=`` of a route that answers with JSON or with one of these.
TABLES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "As JSON, or as a table in the format that was asked for.",
        "content": {media: {"schema": {"type": "string"}} for media in TABLE_TYPES.values()},
    }
}


def table_response(text: str, form: Literal["csv", "markdown", "latex"]) -> Response:
    """Answer with a table."""
    return Response(text, media_type=f"{TABLE_TYPES[form]}; charset=utf-8")
