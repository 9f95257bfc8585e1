"""Tokens, sessions of browsers, and public links: who is let in, as far as the store knows.

Secrets are random and stored as SHA-256: they are compared by their hash and cannot be read back.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sweeps.errors import LinkNotFound, TokenNameTaken, TokenNotFound
from sweeps.store.commands.sweeps import locked
from sweeps.store.database.connection import Database, Write, plain_text
from sweeps.store.database.people import NO_QUOTAS, Link, Quotas, Scope, Session, Token, acting
from sweeps.store.database.rows import link_of, microseconds_of, session_of, token_of
from sweeps.store.database.tables import links, sessions, tokens

#: How tokens look; the beginning lets scanners of code find ones that leak.
PREFIX = "nds"
_TOKEN = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")


class PeopleVerbs(Database):
    """Verbs that let people in and out. Those that change something are audited."""

    def create_token(
        self,
        name: str,
        scope: Scope,
        *,
        owner: str = "",
        expires_at: datetime | None = None,
        quotas: Quotas = NO_QUOTAS,
    ) -> tuple[Token, str]:
        """Create a token; return it and its text, which cannot be read again.

        ``owner``: whom its sweeps belong to; default, its name. Raises TokenNameTaken.
        """
        key, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        maker = acting()
        values = {
            "id": key,
            "name": plain_text(name),
            "owner": plain_text(owner or name),
            "scope": scope.value,
            "hash": digest(secret),
            "quotas": quotas.as_json(),
            "created_by": maker.name if maker else "",
            "expires_at": microseconds_of(expires_at),
        }
        with self._writing() as write:
            taken = sa.select(tokens.c.id).where(
                tokens.c.name == values["name"], tokens.c.revoked_at.is_(None)
            )
            if write.conn.execute(taken).first() is not None:
                raise TokenNameTaken(name)
            insert = sa.insert(tokens).values(**values, created_at=write.now).returning(tokens)
            try:
                row = write.conn.execute(insert).one()
            except IntegrityError as error:  # at the same moment
                raise TokenNameTaken(name) from error
            shown = {"name": row.name, "owner": row.owner, "scope": row.scope}
            write.audit("token.create", key, **shown, quotas=row.quotas)
            return token_of(row), f"{PREFIX}_{key}_{secret}"

    def change_token(self, which: str, changes: Mapping[str, Any]) -> Token:
        """Set ``expires_at`` (a datetime or None) or ``quotas`` (Quotas) of a token.

        Raises TokenNotFound, also for a revoked one.
        """
        values: dict[str, Any] = {}
        if "expires_at" in changes:
            values["expires_at"] = microseconds_of(changes["expires_at"])
        if "quotas" in changes:
            values["quotas"] = changes["quotas"].as_json()
        with self._writing() as write:
            row = _unrevoked(write, which)
            if values:
                change = sa.update(tokens).where(tokens.c.id == row.id).values(values)
                row = write.conn.execute(change.returning(tokens)).one()
                write.audit("token.change", row.id, name=row.name, **values)
            return token_of(row)

    def revoke_token(self, which: str) -> Token:
        """Revoke a token by its id or name, and end its sessions. Raises TokenNotFound."""
        with self._writing() as write:
            row = _unrevoked(write, which)
            revoke = sa.update(tokens).where(tokens.c.id == row.id).values(revoked_at=write.now)
            row = write.conn.execute(revoke.returning(tokens)).one()
            write.conn.execute(sa.delete(sessions).where(sessions.c.token == row.id))
            write.audit("token.revoke", row.id, name=row.name, owner=row.owner)
            return token_of(row)

    def token_used(self, token_id: str) -> None:
        """Record that a token is used now."""
        with self._writing() as write:
            write.conn.execute(
                sa.update(tokens).where(tokens.c.id == token_id).values(last_used_at=write.now)
            )

    def open_session(self, cookie: str, token: str, expires_at: datetime) -> None:
        """Let a browser in that will show this cookie, and forget sessions that are over."""
        values = {"hash": digest(cookie), "token": token}
        with self._writing() as write:
            write.conn.execute(sa.delete(sessions).where(sessions.c.expires_at < write.now))
            until = microseconds_of(expires_at)
            write.conn.execute(
                sa.insert(sessions).values(**values, created_at=write.now, expires_at=until)
            )
            write.audit("session.open", token)

    def end_session(self, cookie: str) -> None:
        """End a browser's session; no change if there is none."""
        with self._writing() as write:
            gone = sa.delete(sessions).where(sessions.c.hash == digest(cookie))
            token = write.conn.execute(gone.returning(sessions.c.token)).scalar_one_or_none()
            if token is not None:
                write.audit("session.end", token)

    def create_link(self, sweep_id: str, expires_at: datetime) -> Link:
        """Create a public link to a sweep. Raises SweepNotFound, NotOwner."""
        maker = acting()
        with self._writing() as write:
            locked(write, sweep_id)
            values = {
                "id": secrets.token_hex(4),
                "sweep_id": sweep_id,
                "key": secrets.token_urlsafe(32),
                "created_at": write.now,
                "created_by": maker.name if maker else "",
                "expires_at": microseconds_of(expires_at),
            }
            row = write.conn.execute(sa.insert(links).values(values).returning(links)).one()
            write.audit("link.create", sweep_id, link=row.id, expires_at=expires_at.isoformat())
            return link_of(row)

    def revoke_link(self, sweep_id: str, link_id: str) -> None:
        """End a public link. Raises SweepNotFound, NotOwner, LinkNotFound."""
        with self._writing() as write:
            locked(write, sweep_id)
            which = sa.and_(links.c.id == plain_text(link_id), links.c.sweep_id == sweep_id)
            ending = sa.update(links).where(which, links.c.revoked_at.is_(None))
            if write.conn.execute(ending.values(revoked_at=write.now)).rowcount == 0:
                raise LinkNotFound
            write.audit("link.revoke", sweep_id, link=link_id)

    # Asked with each request that is not remembered.

    def has_tokens(self) -> bool:
        """Whether a token was ever created; not in a store that has no table for them yet."""
        with self._reading() as conn:
            if not sa.inspect(conn).has_table(tokens.name):
                return False
            return conn.execute(sa.select(tokens.c.id).limit(1)).first() is not None

    def token_of_text(self, text: str) -> Token | None:
        """Return the token with this text; None if there is none, or it is over."""
        found = _TOKEN.fullmatch(text)
        if found is None:
            return None
        with self._reading() as conn:
            row = conn.execute(sa.select(tokens).where(tokens.c.id == found[1])).one_or_none()
        if row is None or not hmac.compare_digest(row.hash, digest(found[2])):
            return None
        return _alive(token_of(row))

    def session_of_cookie(self, cookie: str) -> tuple[Session, Token | None] | None:
        """Return the session of a cookie, and its token if that is named; None if it is over."""
        query = sa.select(sessions.c.token, sessions.c.expires_at).where(
            sessions.c.hash == digest(cookie)
        )
        with self._reading() as conn:
            row = conn.execute(query).one_or_none()
            if row is None:
                return None
            named = conn.execute(sa.select(tokens).where(tokens.c.id == row.token)).one_or_none()
        session = session_of(row)
        if session.expires_at < _now():
            return None
        if named is None:
            return session, None
        token = _alive(token_of(named))
        return None if token is None else (session, token)

    def link_of_key(self, key: str) -> Link:
        """Return the public link of an address. Raises LinkNotFound, also for one that is over."""
        query = sa.select(links).where(links.c.key == plain_text(key), links.c.revoked_at.is_(None))
        with self._reading() as conn:
            row = conn.execute(query).one_or_none()
        link = None if row is None else link_of(row)
        if link is None or link.expires_at < _now():
            raise LinkNotFound
        return link


def is_token(text: str) -> bool:
    """Whether a text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def digest(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC)


def _alive(token: Token) -> Token | None:
    is_over = token.expires_at is not None and token.expires_at < _now()
    return None if is_over or token.revoked_at is not None else token


def _unrevoked(write: Write, which: str) -> sa.Row[Any]:
    """Return the row of a token by its id or name. Raises TokenNotFound."""
    text = plain_text(which)
    mine = sa.or_(tokens.c.id == text, tokens.c.name == text)
    query = sa.select(tokens).where(mine, tokens.c.revoked_at.is_(None))
    rows = write.conn.execute(query.with_for_update()).all()
    if not rows:
        raise TokenNotFound(which)
    # A token may be named like another's id.
    return next((row for row in rows if row.id == text), rows[0])
