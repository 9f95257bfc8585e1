"""Pages of a listing by key, not by offset: each page is one range scan of an index."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sweeps.store.database.cursors import (
    Position,
    Sort,
    check_limit,
    parse_sort,
    read_cursor,
    write_cursor,
)


@dataclass(frozen=True)
class Listing:
    """What a listing may be sorted by. ``tie`` is unique within the listing and orders equals.

    Rows without a value come last in both directions.
    """

    keys: dict[str, sa.Column[Any]]
    tie: sa.Column[Any]
    #: What holds for every row with a value, if that tells the database which index to follow.
    present: tuple[sa.ColumnElement[bool], ...] = ()
    #: Equal to ``tie`` for those, in the same index.
    present_tie: sa.Column[Any] | None = None

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
        if len(rows) <= limit and column.nullable:
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
        if column.nullable:
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


def _directed(order: Sort, *columns: sa.Column[Any]) -> list[sa.ColumnElement[Any]]:
    return [column.desc() if order.descending else column.asc() for column in columns]
