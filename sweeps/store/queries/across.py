"""Trials of several sweeps in one listing: fields of the same name are one field.

A field that one sweep varies and another one fixes in its base has the fixed value there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.errors import InvalidFilter, InvalidSort
from sweeps.records import Page, Trial, TrialState
from sweeps.store.database.connection import Database
from sweeps.store.database.paging import Listing, check_choice, check_exists
from sweeps.store.database.params import PREFIX, by_metric, is_by_metric, is_by_param
from sweeps.store.database.rows import trial_of
from sweeps.store.database.tables import param_values, trials
from sweeps.store.queries.trials import TRIAL_LISTING
from sweeps.store.queries.where import fixed_fields, trials_where

#: More sweeps would be more than a reader tells apart, and more than an address holds.
MOST_SWEEPS = 20
#: More than a sweep has trials: a trial's place among those of all sweeps.
_APART = 2**32


class AcrossVerbs(Database):
    """Verbs that list trials of several sweeps."""

    def trials_across(
        self,
        sweep_ids: Sequence[str],
        *,
        state: str | None = None,
        where: str | None = None,
        sort: str = "sweep",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Trial]:
        """Return a page of the trials of 1 to ``MOST_SWEEPS`` sweeps, without their attempts.

        ``where`` and ``sort`` are those of ``trials``, with the fields of all of the sweeps;
        ``sort=sweep`` is the order in which the sweeps are given. Trials without the value by
        which they are sorted come last.
        """
        ids = list(dict.fromkeys(sweep_ids))
        if not 1 <= len(ids) <= MOST_SWEEPS:
            raise InvalidFilter(
                f"sweep must name 1 to {MOST_SWEEPS} sweeps, got {len(ids)}", field="sweep"
            )
        starts = (sa.literal(at * _APART, sa.BigInteger) for at in range(len(ids)))
        place = sa.case(
            *((trials.c.sweep_id == one, at) for one, at in zip(ids, starts, strict=True))
        )
        order = (place + sa.cast(trials.c.number, sa.BigInteger)).label("place")
        keys = {name: column for name, column in TRIAL_LISTING.keys.items() if name != "number"}
        listing = Listing({"sweep": order, "number": trials.c.number, **keys}, order)
        query = sa.select(trials, order)
        if state is not None:
            query = query.where(trials.c.state == check_choice("state", state, list(TrialState)))
        with self._reading() as conn:
            for one in ids:
                check_exists(conn, one)
            query = query.where(_of(conn, ids, where))
            if is_by_param(sort):
                listing, query = _by_param(conn, listing, query, ids, sort)
            elif is_by_metric(sort):
                listing, query = by_metric(conn, listing, query, ids, sort)
            rows, after = listing.page(conn, query, sort=sort, cursor=cursor, limit=limit)
        return Page([trial_of(row) for row in rows], after)


def _of(conn: sa.Connection, ids: Sequence[str], where: str | None) -> sa.ColumnElement[bool]:
    if where is None or not where.strip():
        return trials.c.sweep_id.in_(ids)
    return sa.or_(
        *(sa.and_(trials.c.sweep_id == one, trials_where(conn, one, where, ids)) for one in ids)
    )


def _by_param(
    conn: sa.Connection, listing: Listing, query: sa.Select[Any], ids: Sequence[str], sort: str
) -> tuple[Listing, sa.Select[Any]]:
    """The listing and the query for a sort by a field that a sweep varies or fixes."""
    key = sort.removeprefix("-")
    name = key.removeprefix(PREFIX)
    fixed = {one: fixed_fields(conn, one).get(name) for one in ids}
    mine = (param_values.c.owner == "trial", param_values.c.name == name)
    sampled = sa.select(param_values.c.as_number, param_values.c.as_text).where(
        param_values.c.sweep_id.in_(ids), *mine
    )
    if conn.execute(sampled.limit(1)).first() is None and not any(
        value is not None for value in fixed.values()
    ):
        raise InvalidSort(sort, sorted([*listing.keys, f"{PREFIX}FIELD", "metrics.NAME"]))
    numbers = sampled.where(param_values.c.as_number.is_not(None)).limit(1)
    is_number = conn.execute(numbers).first() is not None or _has_number(fixed)
    column = param_values.c.as_number if is_number else param_values.c.as_text
    known = {
        # True and false too are numbers among numbers.
        one: float(value) if is_number else value
        for one, value in fixed.items()
        if isinstance(value, (int | float) if is_number else str)
    }
    value: sa.ColumnElement[Any] = column
    if known:
        base = sa.case(*((trials.c.sweep_id == one, sa.literal(v)) for one, v in known.items()))
        value = sa.func.coalesce(column, sa.type_coerce(base, column.type))
    value = sa.type_coerce(value, column.type).label("sorted_by")
    on = sa.and_(
        param_values.c.sweep_id == trials.c.sweep_id,
        param_values.c.owner_number == trials.c.number,
        *mine,
    )
    joined = query.add_columns(value).outerjoin(param_values, on)
    return Listing({**listing.keys, key: value}, listing.tie), joined


def _has_number(fixed: Mapping[str, Any]) -> bool:
    return any(isinstance(value, int | float) for value in fixed.values())
