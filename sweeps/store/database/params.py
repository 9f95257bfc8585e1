"""Values by which listings are sorted: sampled ones, in a table with an index, and metrics."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from sweeps.errors import InvalidSort
from sweeps.store.database.paging import Listing
from sweeps.store.database.tables import metric_names, param_values, trials

#: Prefix of a sort by a sampled value.
PREFIX = "params."
#: Prefix of a sort by the last value of a metric.
METRICS = "metrics."

Owner = Literal["trial", "point"]


def value_rows(owner: Owner, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows for the params of a trial's or a point's row."""
    return [
        {
            "sweep_id": row["sweep_id"],
            "owner": owner,
            "name": name,
            "owner_number": row["number"],
            **_as_columns(value),
        }
        for name, value in row["params"].items()
    ]


def _as_columns(value: Any) -> dict[str, Any]:
    """Put numbers, true and false in one column, words and lists in the other; none in neither."""
    if isinstance(value, int | float):
        return {"as_number": float(value), "as_text": None}
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    # Cut, because a cursor contains the value; longer values are schedules, not sorted by.
    return {"as_number": None, "as_text": None if text is None else text[:200]}


def is_by_param(sort: str) -> bool:
    """Whether a sort names a sampled value."""
    return sort.removeprefix("-").startswith(PREFIX)


def is_by_metric(sort: str) -> bool:
    """Whether a sort names a metric."""
    return sort.removeprefix("-").startswith(METRICS)


def by_metric(
    conn: sa.Connection,
    listing: Listing,
    query: sa.Select[Any],
    sweep_ids: Sequence[str],
    sort: str,
) -> tuple[Listing, sa.Select[Any]]:
    """Return the listing and the query of trials for a sort by a metric's last value.

    Trials without it come last. Raises InvalidSort for a metric that none of the sweeps has.
    """
    key = sort.removeprefix("-")
    name = key.removeprefix(METRICS)
    known = sa.select(metric_names.c.name).where(
        metric_names.c.sweep_id.in_(list(sweep_ids)), metric_names.c.kind == "metric"
    )
    if conn.execute(known.where(metric_names.c.name == name).limit(1)).first() is None:
        names = sorted({one for one in conn.execute(known).scalars() if "/" not in one})
        raise InvalidSort(sort, sorted([*listing.keys, *(f"{METRICS}{one}" for one in names)]))
    value = trials.c.metrics[name].as_float().label("sorted_by")
    return Listing({**listing.keys, key: value}, listing.tie), query.add_columns(value)


def by_param(
    conn: sa.Connection,
    owner: Owner,
    listing: Listing,
    query: sa.Select[Any],
    sweep_id: str,
    sort: str,
) -> tuple[Listing, sa.Select[Any]]:
    """Return the listing and the query for a sort by a sampled value.

    Rows without such a value come last. Raises InvalidSort if no row has the name.
    """
    key = sort.removeprefix("-")
    mine = (
        param_values.c.sweep_id == sweep_id,
        param_values.c.owner == owner,
        param_values.c.name == key.removeprefix(PREFIX),
    )
    column = _column(conn, mine)
    if column is None:
        known = [f"{PREFIX}{name}" for name in _names(conn, sweep_id)]
        raise InvalidSort(sort, sorted([*listing.keys, *known]))
    on = sa.and_(*mine, param_values.c.owner_number == listing.tie)
    joined = query.add_columns(column).outerjoin(param_values, on)
    # An inner join for rows with a value, so that the order comes from the index.
    tie = param_values.c.owner_number
    return Listing({**listing.keys, key: column}, listing.tie, mine, tie), joined


def _column(conn: sa.Connection, mine: tuple[sa.ColumnElement[bool], ...]) -> sa.Column[Any] | None:
    """Return the column of a field's values: numbers if it has one; None for an unknown field."""
    query = sa.select(param_values.c.as_number).where(*mine)
    numbers = query.where(param_values.c.as_number.is_not(None)).limit(1)
    if conn.execute(numbers).first() is not None:
        return param_values.c.as_number
    return param_values.c.as_text if conn.execute(query.limit(1)).first() else None


def _names(conn: sa.Connection, sweep_id: str) -> Sequence[str]:
    of_points = (param_values.c.sweep_id == sweep_id, param_values.c.owner == "point")
    query = sa.select(param_values.c.name).where(*of_points).distinct()
    return list(conn.execute(query.limit(100)).scalars())
