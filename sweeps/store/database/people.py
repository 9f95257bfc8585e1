"""Who acts on the store: the person or program behind a request, and what it may do.

A request's ``Actor`` is set where the request arrives and read where the store writes, so that
ownership, quotas and the audit log hold whatever route a change comes by. Without one (the runner,
a command on this machine, a service that is open to this machine) everything is allowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sweeps.errors import NotOwner

#: ``Actor.token`` of who shows the token of the settings.
SETTINGS_TOKEN = "NDSWEEP_TOKEN"


class Scope(StrEnum):
    """What somebody may do. Each scope includes those before it."""

    #: See the page of one sweep, by a public link.
    LINK = "link"
    READ = "read"
    #: Submit sweeps, and change one's own.
    SUBMIT = "submit"
    #: Change every sweep, tokens included.
    ADMIN = "admin"

    def covers(self, other: "Scope") -> bool:
        """Whether this scope includes the other."""
        return _RANK[self] >= _RANK[other]


_RANK = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True)
class Quotas:
    """Most that a token may use; None = no limit. All but the last count what its owner has."""

    #: Sweeps that wait for a runner.
    queued_sweeps: int | None = None
    #: Trials that have yet to end, of sweeps that have not ended.
    trials: int | None = None
    #: Of sweeps that were submitted in the last 30 days.
    gpu_hours: float | None = None
    requests_per_second: float | None = None

    def as_json(self) -> dict[str, float]:
        """Return the limits that are set, as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "Quotas":
        """Return the limits of ``as_json``."""
        return cls(**{field.name: values.get(field.name) for field in fields(cls)})


NO_QUOTAS = Quotas()


@dataclass(frozen=True)
class Use:
    """What an owner uses of what quotas limit; see ``Quotas``."""

    queued_sweeps: int
    trials: int
    gpu_hours: float


@dataclass(frozen=True)
class Actor:
    """Who acts, and what they may do."""

    #: Owner of what they create: a person's or program's name.
    name: str
    scope: Scope
    #: Id of the token that was shown, or how else they were let in: "NDSWEEP_TOKEN", "proxy", "".
    token: str = ""
    token_name: str = ""
    #: Where the request came from.
    address: str = ""
    quotas: Quotas = NO_QUOTAS
    expires_at: datetime | None = None
    #: Of a public link: the only sweep that it shows.
    sweep_id: str | None = None
    #: Whether a browser's cookie let them in, so that they can log out.
    has_session: bool = False


@dataclass(frozen=True)
class Token:
    """A named token. Its secret is shown once and stored as a hash."""

    id: str
    name: str
    owner: str
    scope: Scope
    quotas: Quotas
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    #: To the minute; None before its first use.
    last_used_at: datetime | None


@dataclass(frozen=True)
class Session:
    """A browser that has shown a token."""

    #: The token's id, or what stands for the one of the settings.
    token: str
    expires_at: datetime


@dataclass(frozen=True)
class Link:
    """A public link to the page of one sweep."""

    id: str
    sweep_id: str
    #: The unguessable part of its address.
    key: str
    created_at: datetime
    created_by: str
    expires_at: datetime


@dataclass(frozen=True)
class AuditEntry:
    """One change: who made it, what and when it was, and where it came from."""

    id: int
    at: datetime
    who: str
    token: str
    address: str
    #: What was done, such as ``sweep.cancel`` or ``token.create``.
    action: str
    #: Id of the sweep, token or link.
    target: str
    data: dict[str, Any]


_ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)


def acting() -> Actor | None:
    """Return who acts in this context; None where everything is allowed."""
    return _ACTOR.get()


@contextmanager
def acting_as(actor: Actor | None) -> Iterator[None]:
    """Let everything within the block be done by ``actor``."""
    before = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(before)


def may(scope: Scope) -> bool:
    """Whether who acts has this scope."""
    actor = acting()
    return actor is None or actor.scope.covers(scope)


def require_own(what: str, owner: str) -> None:
    """Raise NotOwner unless who acts may change what belongs to this owner."""
    actor = acting()
    if actor is not None and not may_change(owner):
        raise NotOwner(what, owner, actor.name)


def may_change(owner: str) -> bool:
    """Whether who acts may change what belongs to this owner."""
    actor = acting()
    is_own = actor is not None and actor.name == owner
    return may(Scope.ADMIN) or (is_own and may(Scope.SUBMIT))
