"""Listings of tokens, links and the audit log, and what an owner uses."""

import sqlalchemy as sa

from sweeps.records import Page
from sweeps.store.database.connection import Database, microseconds, plain_text
from sweeps.store.database.paging import Listing, check_id
from sweeps.store.database.people import AuditEntry, Link, Token, Use
from sweeps.store.database.quotas import use_of
from sweeps.store.database.rows import audit_entry_of, link_of, token_of
from sweeps.store.database.tables import audit, links, tokens

_TOKEN_LISTING = Listing(keys={"created_at": tokens.c.created_at}, tie=tokens.c.id)
_AUDIT_LISTING = Listing(keys={"id": audit.c.id}, tie=audit.c.id)


class PeopleReads(Database):
    """Verbs that list who is let in, and who did what."""

    def list_tokens(
        self, *, revoked: bool = False, cursor: str | None = None, limit: int = 50
    ) -> Page[Token]:
        """Return a page of tokens, newest first; ``revoked``: with those that were revoked."""
        query = sa.select(tokens)
        if not revoked:
            query = query.where(tokens.c.revoked_at.is_(None))
        with self._reading() as conn:
            rows, after = _TOKEN_LISTING.page(
                conn, query, sort="-created_at", cursor=cursor, limit=limit
            )
        return Page([token_of(row) for row in rows], after)

    def links_of(self, sweep_id: str) -> list[Link]:
        """Return the public links of a sweep that work, oldest first."""
        check_id(sweep_id)
        working = sa.and_(links.c.revoked_at.is_(None), links.c.expires_at > microseconds())
        query = sa.select(links).where(links.c.sweep_id == sweep_id, working)
        with self._reading() as conn:
            return [link_of(row) for row in conn.execute(query.order_by(links.c.created_at))]

    def audit_log(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[AuditEntry]:
        """Return a page of the audit log, newest first.

        ``action``: a whole one, or its first part (``token`` for everything about tokens).
        """
        query = sa.select(audit)
        if who:
            query = query.where(audit.c.who == plain_text(who))
        if target:
            query = query.where(audit.c.target == plain_text(target))
        if action:
            text = plain_text(action)
            begins = audit.c.action.startswith(f"{text}.", autoescape=True)
            query = query.where(sa.or_(audit.c.action == text, begins))
        with self._reading() as conn:
            rows, after = _AUDIT_LISTING.page(conn, query, sort="-id", cursor=cursor, limit=limit)
        return Page([audit_entry_of(row) for row in rows], after)

    def use_of(self, owner: str) -> Use:
        """Return what an owner uses of what quotas limit."""
        with self._reading() as conn:
            return use_of(conn, owner, microseconds())
