"""Pages of a listing by key, not by offset: each page is one range scan of an index.

A cursor is the last row's sort key as text, so new rows do not shift the pages.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sweeps.errors import InvalidCursor, InvalidFilter, InvalidLimit, InvalidSort, SweepNotFound
from sweeps.store.database.connection import plain_text
from sweeps.store.database.tables import sweeps

MAX_LIMIT = 500

_INT64 = 2**63
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Sort:
    """A sort such as ``-created_at``, parsed."""

    key: str
    descending: bool

    def __str__(self) -> str:
        return f"-{self.key}" if self.descending else self.key


@dataclass(frozen=True)
class Position:
    """The last row of a page: its sort value (None: it has none) and its tie."""

    value: float | int | str | None
    tie: int | str


def parse_sort(sort: str, allowed: Iterable[str]) -> Sort:
    """Read ``field`` or ``-field``. Raises InvalidSort for a key that is not allowed."""
    keys = sorted(allowed)
    key = sort.removeprefix("-")
    if key not in keys:
        raise InvalidSort(sort, keys)
    return Sort(key, sort.startswith("-"))


def check_limit(limit: int, most: int = MAX_LIMIT) -> int:
    """Return ``limit``. Raises InvalidLimit unless it is 1 to ``most``."""
    if not 1 <= limit <= most:
        raise InvalidLimit(limit, most)
    return limit


def write_cursor(sort: Sort, position: Position) -> str:
    """Make the cursor of the page that follows ``position``."""
    text = json.dumps([str(sort), position.value, position.tie], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, sort: Sort, *, value: type, tie: type) -> Position:
    """Read a cursor back. Raises InvalidCursor if it was not made for this sort and these types."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts = json.loads(raw)
        made_for, at, last = parts
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidCursor("cannot be read") from None
    if made_for != str(sort):
        raise InvalidCursor(f"was not made for sort {str(sort)!r}")
    if not (at is None or _is(at, value)) or not _is(last, tie):
        raise InvalidCursor("cannot be read")
    return Position(at, last)


def _is(value: Any, kind: type) -> bool:
    """Whether a decoded JSON value can be compared with a column of this type."""
    if isinstance(value, bool):
        return False
    if kind is str:
        return isinstance(value, str) and "\x00" not in value
    if isinstance(value, int):
        return -_INT64 <= value < _INT64
    # NaN and infinities are not JSON, but Python's reader takes them.
    return kind is float and isinstance(value, float) and abs(value) < float("inf")


@dataclass(frozen=True)
class Listing:
    """Sort keys of a listing. ``tie`` is unique within the listing and orders equal values.

    Rows without a value come last in both directions.
    """

    keys: Mapping[str, sa.ColumnElement[Any]]
    tie: sa.ColumnElement[Any]
    #: A condition true for every row with a value, which makes the database use the right index.
    present: tuple[sa.ColumnElement[bool], ...] = ()
    #: Equal to ``tie`` for those, in the same index.
    present_tie: sa.ColumnElement[Any] | None = None

    def page(
        self,
        conn: sa.Connection,
        query: sa.Select[Any],
        *,
        sort: str,
        cursor: str | None,
        limit: int,
    ) -> tuple[list[sa.Row[Any]], str | None]:
        """Return the rows of one page and the cursor of the next. The query selects key and tie."""
        order = parse_sort(sort, self.keys)
        check_limit(limit)
        column = self.keys[order.key]
        after = None if cursor is None else self._position(cursor, order)
        rows: list[sa.Row[Any]] = []
        if after is None or after.value is not None:
            rows += conn.execute(self._with_values(query, order, after, limit + 1)).all()
        if len(rows) <= limit and _may_be_missing(column):
            behind = after if after is not None and after.value is None else None
            rows += conn.execute(
                self._without_values(query, order, behind, limit + 1 - len(rows))
            ).all()
        return self._cut(rows, order, limit)

    def _position(self, cursor: str, order: Sort) -> Position:
        column = self.keys[order.key]
        return read_cursor(
            cursor, order, value=column.type.python_type, tie=self.tie.type.python_type
        )

    def _with_values(
        self, query: sa.Select[Any], order: Sort, after: Position | None, count: int
    ) -> sa.Select[Any]:
        column = self.keys[order.key]
        tie = self.tie if self.present_tie is None else self.present_tie
        if _may_be_missing(column):
            query = query.where(column.is_not(None), *self.present)
        if after is not None:
            here = sa.tuple_(column, tie)
            there = sa.tuple_(sa.literal(after.value), sa.literal(after.tie))
            query = query.where(here < there if order.descending else here > there)
        return query.order_by(*_directed(order, column, tie)).limit(count)

    def _without_values(
        self, query: sa.Select[Any], order: Sort, after: Position | None, count: int
    ) -> sa.Select[Any]:
        query = query.where(self.keys[order.key].is_(None))
        if after is not None:
            tie = self.tie < after.tie if order.descending else self.tie > after.tie
            query = query.where(tie)
        return query.order_by(*_directed(order, self.tie)).limit(count)

    def _cut(
        self, rows: list[sa.Row[Any]], order: Sort, limit: int
    ) -> tuple[list[sa.Row[Any]], str | None]:
        if len(rows) <= limit:
            return rows, None
        last = rows[limit - 1]._mapping
        position = Position(last[self.keys[order.key]], last[self.tie])
        return rows[:limit], write_cursor(order, position)


def _may_be_missing(column: sa.ColumnElement[Any]) -> bool:
    return bool(getattr(column, "nullable", True))


def _directed(order: Sort, *columns: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
    return [column.desc() if order.descending else column.asc() for column in columns]


def check_id(sweep_id: str) -> None:
    """Raise SweepNotFound for text that cannot be an id, before a query with it."""
    if not _ID.fullmatch(sweep_id):
        raise SweepNotFound(plain_text(sweep_id))


def check_exists(conn: sa.Connection, sweep_id: str) -> None:
    """Raise SweepNotFound unless there is such a sweep."""
    check_id(sweep_id)
    query = sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id)
    if conn.execute(query).first() is None:
        raise SweepNotFound(sweep_id)


def check_choice(field: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value``. Raises InvalidFilter unless it is one of ``choices``."""
    if value not in choices:
        raise InvalidFilter(
            f"{field} must be one of {', '.join(choices)}, got {plain_text(value)[:80]!r}",
            field=field,
        )
    return value
