"""Views of pages that people keep under a name: what a page's address holds after its path."""

from typing import Any

import sqlalchemy as sa

from sweeps.errors import ViewNotFound
from sweeps.records import SavedView
from sweeps.store.database.connection import Database, Write, plain_text
from sweeps.store.database.paging import check_exists
from sweeps.store.database.people import acting, require_own
from sweeps.store.database.rows import time_of
from sweeps.store.database.tables import saved_views


class ViewVerbs(Database):
    """Verbs of saved views. ``sweep_id`` None: of the page with trials of several sweeps."""

    def save_view(self, sweep_id: str | None, name: str, query: str) -> SavedView:
        """Keep a view under a name, in place of one that has it."""
        name, query = plain_text(name), plain_text(query)
        with self._writing() as write:
            if sweep_id is not None:
                check_exists(write.conn, sweep_id)
            _delete_own(write, sweep_id, name)
            actor = acting()
            owner = actor.name if actor else ""
            row = {"sweep_id": sweep_id, "name": name, "query": query, "saved_at": write.now}
            write.conn.execute(sa.insert(saved_views), [row | {"saved_by": owner}])
            write.audit("view.save", sweep_id or "", name=name)
            return SavedView(sweep_id, name, query, time_of(write.now), owner)

    def saved_views(self, sweep_id: str | None) -> list[SavedView]:
        """Return the views of a page by name."""
        query = sa.select(saved_views).where(_of(sweep_id)).order_by(saved_views.c.name)
        with self._reading() as conn:
            if sweep_id is not None:
                check_exists(conn, sweep_id)
            return [_view(row) for row in conn.execute(query)]

    def saved_view(self, sweep_id: str | None, name: str) -> SavedView:
        """Return one view. Raises ViewNotFound."""
        query = sa.select(saved_views).where(*_named(sweep_id, plain_text(name)))
        with self._reading() as conn:
            row = conn.execute(query).first()
        if row is None:
            raise ViewNotFound(name)
        return _view(row)

    def delete_view(self, sweep_id: str | None, name: str) -> None:
        """Forget a view; one that is not there is forgotten already."""
        with self._writing() as write:
            if sweep_id is not None:
                check_exists(write.conn, sweep_id)
            if _delete_own(write, sweep_id, plain_text(name)):
                write.audit("view.delete", sweep_id or "", name=name)


def _of(sweep_id: str | None) -> sa.ColumnElement[bool]:
    column = saved_views.c.sweep_id
    return column.is_(None) if sweep_id is None else column == sweep_id


def _named(sweep_id: str | None, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _of(sweep_id), saved_views.c.name == name


def _view(row: sa.Row[Any]) -> SavedView:
    return SavedView(row.sweep_id, row.name, row.query, time_of(row.saved_at), row.saved_by)


def _delete_own(write: Write, sweep_id: str | None, name: str) -> bool:
    """Delete a view of who acts; return whether there was one. Raises NotOwner."""
    mine = sa.select(saved_views.c.saved_by).where(*_named(sweep_id, name))
    owner = write.conn.execute(mine).scalars().first()
    if owner is None:
        return False
    require_own(f"view {name[:80]!r}", owner)
    write.conn.execute(sa.delete(saved_views).where(*_named(sweep_id, name)))
    return True
