"""What can go wrong in a sweep, as one tree.

::

    SweepsError
    ├── NotFound
    │   ├── SweepNotFound
    │   ├── TrialNotFound
    │   ├── ViewNotFound
    │   ├── ImageNotFound
    │   ├── WeightsNotKept      a sweep without weights of a best trial
    │   ├── PresetNotFound
    │   ├── TokenNotFound
    │   └── LinkNotFound        no public link, or one that is over
    ├── UnreadableSpec          text that is neither JSON nor YAML
    ├── InvalidQuery            a question that cannot be answered as asked
    │   ├── InvalidCursor
    │   ├── InvalidSort
    │   ├── InvalidLimit
    │   └── InvalidFilter
    ├── InvalidReport           what an agent sent breaks a rule
    ├── ImageRefused            no image that notes may show
    ├── Conflict                right in itself, but not in this state
    │   ├── IdempotencyConflict
    │   ├── SweepStateConflict
    │   ├── TokenNameTaken      another token has this name
    │   ├── CopyRefused         a store cannot be copied from or to where it was asked
    │   ├── NotExternal         agents asked for trials that the service runs itself
    │   └── LeaseEnded          an agent's right to a trial is over
    ├── Forbidden               who asks may not do it
    │   ├── ScopeTooSmall
    │   └── NotOwner            a sweep or view of somebody else
    ├── QuotaExceeded           more than who asks may use; try again later
    ├── LeaseLost               another runner drives the sweep now
    └── StoreUnavailable        the database cannot be reached; try again
        ├── StoreIsNewer        a newer version of this program has changed its tables
        └── StoreDamaged        the file of the store is broken; trying again does not help

Every error carries a sentence for the person who will read it and, where one input is to blame,
``field``: its dotted path.
"""


class SweepsError(Exception):
    """Base of every error of this package. ``str(error)`` is a sentence."""

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.field = field


class NotFound(SweepsError):
    """Something was named that does not exist."""


class SweepNotFound(NotFound):
    """No sweep or match has this id."""

    def __init__(self, sweep_id: str) -> None:
        super().__init__(f"there is no sweep {sweep_id[:80]!r}", field="id")


class TrialNotFound(NotFound):
    """The sweep has no trial of this number."""

    def __init__(self, sweep_id: str, number: int) -> None:
        super().__init__(f"sweep {sweep_id} has no trial {number}", field="number")


class ViewNotFound(NotFound):
    """No view of the page is saved under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no saved view {name[:80]!r}", field="name")


class ImageNotFound(NotFound):
    """A sweep has no image of that name."""

    def __init__(self, sweep_id: str, name: str) -> None:
        super().__init__(f"sweep {sweep_id} has no image {name}")


class ImageRefused(SweepsError):
    """What was sent is no image that notes may show, or is too large."""


class WeightsNotKept(NotFound):
    """No weights are kept of a sweep. The sentence says why."""

    def __init__(self, sweep_id: str, why: str) -> None:
        super().__init__(f"no weights are kept of sweep {sweep_id}: {why}", field="id")


class PresetNotFound(NotFound):
    """No preset has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"there is no preset {name[:80]!r}; there are {', '.join(known)}", field="name"
        )


class TokenNotFound(NotFound):
    """No token has this id or name."""

    def __init__(self, which: str) -> None:
        super().__init__(
            f"there is no token {which[:80]!r}; GET /api/v1/tokens lists them", field="id"
        )


class LinkNotFound(NotFound):
    """No public link has this address, or it has expired or was revoked."""

    def __init__(self) -> None:
        super().__init__(
            "this link does not exist, has expired or was revoked; ask who sent it for another",
            field="link",
        )


class UnreadableSpec(SweepsError):
    """The text of a spec is neither JSON nor YAML. The sentence says where."""


class InvalidQuery(SweepsError):
    """A listing was asked for in a way that has no answer."""


class InvalidCursor(InvalidQuery):
    """The cursor was not made by this listing, or for another sort order."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"cursor {why}; use the 'next' of the page before, with the same sort",
            field="cursor",
        )


class InvalidSort(InvalidQuery):
    """The listing cannot be sorted by this key. ``allowed`` lists those that it can."""

    def __init__(self, sort: str, allowed: list[str]) -> None:
        super().__init__(
            f"sort must be one of {', '.join(allowed)}, with a leading - for descending; "
            f"got {sort[:80]!r}",
            field="sort",
        )
        self.allowed = allowed


class InvalidLimit(InvalidQuery):
    """The page size is out of range."""

    def __init__(self, limit: int, most: int) -> None:
        super().__init__(f"limit must be 1 to {most}, got {limit}", field="limit")


class InvalidFilter(InvalidQuery):
    """A filter names a state or kind that does not exist."""


class InvalidReport(SweepsError):
    """A report or an ending of an agent breaks a rule. The sentence names field, rule and value."""


class Conflict(SweepsError):
    """The request is valid but does not fit what is there."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used before, with another body."""

    def __init__(self, sweep_id: str) -> None:
        super().__init__(
            f"this Idempotency-Key already created sweep {sweep_id} from another body; "
            "use a new key",
            field="Idempotency-Key",
        )


class SweepStateConflict(Conflict):
    """A sweep or trial is in a state that does not allow this."""


class TokenNameTaken(Conflict):
    """A token that is not revoked has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"name must be one that no other token has, got {name[:80]!r}; choose another, or "
            "revoke that token first",
            field="name",
        )


class CopyRefused(Conflict):
    """A store is not copied: one of the two is not what it must be, or the copy differs."""


class NotExternal(Conflict):
    """The trials of this sweep are run by the service, not by agents."""

    def __init__(self, sweep_id: str, training: str) -> None:
        super().__init__(
            f"sweep {sweep_id} runs its own trials (training must be 'external' for agents, got "
            f"{training[:80]!r})",
            field="training",
        )


class LeaseEnded(Conflict):
    """The lease is none of the trial's, or its attempt has ended as lost. Ask for another trial."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, field="lease")


def does_not_go_on(wish: str, sweep_id: str, what: str) -> SweepStateConflict:
    """The refusal to take an ended sweep further: ``what`` it is, and what to do instead."""
    ways = {"complete": "extend it to give it more to do"}
    way_out = ways.get(what, "what is cancelled does not go on, so submit its spec again")
    return SweepStateConflict(f"cannot {wish} sweep {sweep_id}: it is {what}; {way_out}")


class Forbidden(SweepsError):
    """Who asks is known and may not do this."""


class ScopeTooSmall(Forbidden):
    """The route needs a larger scope."""

    def __init__(self, needed: str, has: str, name: str) -> None:
        who = f"the token of {name[:80]!r}" if name else "this access"
        super().__init__(
            f"this needs the scope {needed}, and {who} has the scope {has}; ask an administrator "
            "for a token that has it"
        )


class NotOwner(Forbidden):
    """The sweep or view belongs to somebody else."""

    def __init__(self, what: str, owner: str, name: str) -> None:
        whose = f"to {owner[:80]!r}" if owner else "to nobody by name"
        super().__init__(
            f"{what} belongs {whose}, and {name[:80]!r} may change only its own; ask its "
            "owner or an administrator, or clone it"
        )


class QuotaExceeded(SweepsError):
    """Who asks would use more than its quota. ``retry_seconds``: when asking again makes sense."""

    def __init__(self, detail: str, *, quota: str, retry_seconds: int) -> None:
        super().__init__(detail, field=quota)
        self.retry_seconds = retry_seconds


class LeaseLost(SweepsError):
    """The claim's token is old: another runner drives the sweep, or it was ended. Stop driving."""

    def __init__(self, sweep_id: str, token: int) -> None:
        super().__init__(f"token {token} no longer drives sweep {sweep_id}")


class StoreUnavailable(SweepsError):
    """The database cannot be reached or cannot write. Nothing was recorded; a retry is safe."""


class StoreIsNewer(StoreUnavailable):
    """A newer version of this program has changed the tables. This one must not touch them."""

    def __init__(self, found: str, known: str | None) -> None:
        super().__init__(
            f"the store was brought up to date by a newer version of ndsweep (its tables are at "
            f"{found}, this version knows them up to {known}); start that version, or put back the "
            "backup from before the upgrade"
        )


class StoreDamaged(StoreUnavailable):
    """The file of a SQLite store is no database, or parts of it were overwritten."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"the store {path} is damaged ({why}): stop the service, move this file and those "
            "beside it that end in -wal and -shm away, put a backup in its place, and start again"
        )
