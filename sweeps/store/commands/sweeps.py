"""Requests of users: create, list, label, stop, resume and delete sweeps."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from sweeps.errors import (
    IdempotencyConflict,
    SweepNotFound,
    SweepStateConflict,
    does_not_go_on,
)
from sweeps.records import Kind, Page, Request, Sweep, SweepState, TrialState, objective_of
from sweeps.store.commands.states import close_attempts, lock_sweep, move_sweep, move_trials
from sweeps.store.database.connection import Database, Write, json_safe, plain_text
from sweeps.store.database.paging import Listing, check_choice, check_id
from sweeps.store.database.people import SETTINGS_TOKEN, acting, require_own
from sweeps.store.database.quotas import hold_quotas
from sweeps.store.database.rows import sweep_of
from sweeps.store.database.tables import deleted_sweeps, sweep_tags, sweeps, trials

SWEEP_LISTING = Listing(
    keys={
        "created_at": sweeps.c.created_at,
        "started_at": sweeps.c.started_at,
        "finished_at": sweeps.c.finished_at,
        "name": sweeps.c.name,
        "state": sweeps.c.state,
    },
    tie=sweeps.c.id,
)

_OPEN_TRIALS = (TrialState.WAITING.value, TrialState.RUNNING.value)


class SweepVerbs(Database):
    """Verbs of the service: create, list, label, stop, resume, delete."""

    def create_sweep(
        self,
        kind: Kind,
        spec: dict[str, Any],
        *,
        name: str,
        tags: Sequence[str] = (),
        notes: str = "",
        num_trials: int | None = None,
        idempotency_key: str | None = None,
        submitted: dict[str, Any] | None = None,
    ) -> tuple[Sweep, bool]:
        """Queue a sweep; return it and whether it is new.

        The same key with the same body returns the sweep that the key created, whatever its state.
        Raises IdempotencyConflict for another body. ``submitted`` is the spec as it was sent, if
        values have been filled in since; bodies are compared by it.
        """
        labels = sorted(set(tags))
        body = {"kind": kind, "spec": spec, "name": name, "tags": labels, "notes": notes}
        told_by = body if submitted is None else body | {"spec": submitted}
        body_hash = hashlib.sha256(json.dumps(told_by, sort_keys=True).encode()).hexdigest()
        values = new_sweep(body, body_hash, num_trials, idempotency_key)
        with self._writing() as write:
            row = insert_sweep(write, values)
            if row is None:
                return _earlier_sweep(write, values["idempotency_key"], body_hash), False
            insert_tags(write, row.id, labels)
            hold_quotas(write)
            write.audit("sweep.create", row.id, name=row.name, kind=kind)
            write.event(row.id, "sweep", {"state": SweepState.QUEUED.value, "reason": ""})
            return sweep_of(row), True

    def has_key(self, idempotency_key: str) -> bool:
        """Whether a sweep was created under this key."""
        key = sweeps.c.idempotency_key == own_key(idempotency_key)
        with self._reading() as conn:
            return conn.execute(sa.select(sweeps.c.id).where(key)).first() is not None

    def get_sweep(self, sweep_id: str) -> Sweep:
        """Return one sweep or match. Raises SweepNotFound."""
        check_id(sweep_id)
        with self._reading() as conn:
            return sweep_by_id(conn, sweep_id)

    def list_sweeps(
        self,
        *,
        kind: Kind | None = None,
        state: str | None = None,
        tag: str | None = None,
        owner: str | None = None,
        search: str | None = None,
        sort: str = "-created_at",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Sweep]:
        """Return a page of sweeps. ``search`` looks for a part of name or notes, in any case."""
        query = sa.select(sweeps)
        if owner is not None:
            query = query.where(sweeps.c.submitted_by == plain_text(owner))
        if kind is not None:
            query = query.where(sweeps.c.kind == check_choice("kind", kind, ["sweep", "match"]))
        if state is not None:
            query = query.where(sweeps.c.state == check_choice("state", state, list(SweepState)))
        if tag is not None:
            tagged = sa.select(sweep_tags.c.sweep_id).where(sweep_tags.c.tag == plain_text(tag))
            query = query.where(sweeps.c.id.in_(tagged))
        if search:
            text = plain_text(search)
            found = (column.icontains(text, autoescape=True) for column in _SEARCHED)
            query = query.where(sa.or_(*found))
        with self._reading() as conn:
            rows, after = SWEEP_LISTING.page(conn, query, sort=sort, cursor=cursor, limit=limit)
        return Page([sweep_of(row) for row in rows], after)

    def set_tags(self, sweep_id: str, tags: Sequence[str]) -> Sweep:
        """Replace the sweep's tags."""
        with self._writing() as write:
            locked(write, sweep_id)
            write.conn.execute(sa.delete(sweep_tags).where(sweep_tags.c.sweep_id == sweep_id))
            unique = sorted(set(tags))
            insert_tags(write, sweep_id, unique)
            write.audit("sweep.tags", sweep_id, tags=unique)
            relabel(write, sweep_id, tags=json_safe(unique))
            return sweep_by_id(write.conn, sweep_id)

    def set_notes(self, sweep_id: str, notes: str) -> Sweep:
        """Replace the sweep's notes."""
        with self._writing() as write:
            locked(write, sweep_id)
            relabel(write, sweep_id, notes=plain_text(notes))
            write.audit("sweep.notes", sweep_id)
            return sweep_by_id(write.conn, sweep_id)

    def request(self, sweep_id: str, wish: Request) -> Sweep:
        """Request "pause", "cancel" or "delete": done immediately, or by the sweep's driver.

        A sweep that is to be deleted is cancelled and marked: see ``to_be_deleted``. Repeating a
        request changes nothing. Raises SweepStateConflict for a pause or cancel of a sweep that has
        ended otherwise.
        """
        with self._writing() as write:
            row = locked(write, sweep_id)
            state = SweepState(row.state)
            if wish == "delete" and state.is_finished():
                relabel(write, sweep_id, requested=wish)
            elif state == _WISHED[wish]:
                pass
            elif state.is_finished():
                raise SweepStateConflict(f"cannot {wish} sweep {sweep_id}: it is {state.value}")
            elif state == SweepState.RUNNING and self._has_driver(write, row):
                _ask(write, row, wish)
            else:
                carry_out(write, row, wish)
            write.audit(f"sweep.{wish}", sweep_id, name=row.name)
            return sweep_by_id(write.conn, sweep_id)

    def resume(self, sweep_id: str) -> Sweep:
        """Queue a paused or failed sweep again. Waiting trials continue; failed ones stay failed.

        No change for a queued or running sweep, except that a requested pause is revoked.
        Raises SweepStateConflict for a complete or cancelled sweep.
        """
        with self._writing() as write:
            row = locked(write, sweep_id)
            state = SweepState(row.state)
            if state in (SweepState.PAUSED, SweepState.FAILED):
                queue_again(write, row, "resumed")
                hold_quotas(write)
            elif state.is_finished() or row.requested in _FINAL:
                what = state.value if state.is_finished() else "being cancelled"
                raise does_not_go_on("resume", sweep_id, what)
            elif row.requested == "pause":
                _ask(write, row, "none")
            write.audit("sweep.resume", sweep_id)
            return sweep_by_id(write.conn, sweep_id)

    def delete_sweep(self, sweep_id: str) -> None:
        """Delete a finished sweep and all its records.

        Raises SweepStateConflict while it is not finished: cancel it first.
        """
        with self._writing() as write:
            row = locked(write, sweep_id)
            if not SweepState(row.state).is_finished():
                raise SweepStateConflict(
                    f"cannot delete sweep {sweep_id}: it is {row.state}; cancel it first"
                )
            if row.started_at is not None:
                _note_deleted(write, row)
            write.conn.execute(sa.delete(sweeps).where(sweeps.c.id == sweep_id))

    def to_be_deleted(self) -> list[str]:
        """Return the ids of ended sweeps with a request to delete them."""
        marked = sweeps.c.requested == "delete"
        ended = sweeps.c.state.in_([state.value for state in SweepState if state.is_finished()])
        with self._reading() as conn:
            return list(conn.execute(sa.select(sweeps.c.id).where(marked, ended)).scalars())

    def _has_driver(self, write: Write, row: sa.Row[Any]) -> bool:
        alive = sa.select(sweeps.c.id).where(
            sweeps.c.id == row.id, ~self._is_lapsed(sweeps.c.lease_until)
        )
        return write.conn.execute(alive).first() is not None


_SEARCHED = (sweeps.c.name, sweeps.c.notes)
_WISHED = {
    "pause": SweepState.PAUSED,
    "cancel": SweepState.CANCELLED,
    "delete": SweepState.CANCELLED,
}
#: Requests that cannot be revoked; a later one in this list is the stronger.
_FINAL = ("cancel", "delete")


def carry_out(write: Write, row: sa.Row[Any], wish: str) -> None:
    """Pause or cancel a sweep without a driver, and fence off its earlier driver."""
    to = _WISHED[wish]
    if to == SweepState.CANCELLED:
        close_attempts(
            write,
            row.id,
            TrialState.CANCELLED,
            "the sweep was cancelled",
            lease_until=row.lease_until,
        )
        still_open = trials.c.state.in_(_OPEN_TRIALS)
        move_trials(
            write, row, still_open, TrialState.CANCELLED, exit_cause="the sweep was cancelled"
        )
    else:
        close_attempts(
            write, row.id, TrialState.CANCELLED, "the sweep was paused", lease_until=row.lease_until
        )
        move_trials(write, row, trials.c.state == TrialState.RUNNING.value, TrialState.WAITING)
    reason = f"{to.value} by request"
    move_sweep(
        write,
        row.id,
        to,
        reason,
        requested=left_of(wish),
        token=sweeps.c.token + 1,
        lease_until=None,
        owner=None,
    )


def _ask(write: Write, row: sa.Row[Any], wish: str) -> None:
    """Record a request for the driver. A later pause does not replace a cancel."""
    if row.requested == wish or (row.requested in _FINAL and wish != "delete"):
        return
    relabel(write, row.id, requested=wish)
    write.event(row.id, "sweep", {"state": row.state, "reason": row.reason, "requested": wish})


def left_of(wish: str) -> Request:
    """Return the request that remains after a driver has stopped for a request."""
    return "delete" if wish == "delete" else "none"


def queue_again(write: Write, row: sa.Row[Any], reason: str) -> None:
    """Let the next free driver take the sweep."""
    move_sweep(
        write, row.id, SweepState.QUEUED, reason, requested="none", queued_at=write.now, owner=None
    )


def relabel(write: Write, sweep_id: str, **values: Any) -> None:
    """Set columns that users see; the mirror sends them again."""
    write.conn.execute(
        sa.update(sweeps)
        .where(sweeps.c.id == sweep_id)
        .values(revision=sweeps.c.revision + 1, **values)
    )


def _note_deleted(write: Write, row: sa.Row[Any]) -> None:
    """Record for the mirror, which may not run now, that the end must be sent to MLflow."""
    where = (row.mirror or {}).get("experiment_id")
    note = {"sweep_id": row.id, "name": row.name, "experiment_id": where, "at": write.now}
    write.conn.execute(sa.insert(deleted_sweeps).values(note))


def locked(write: Write, sweep_id: str) -> sa.Row[Any]:
    """Lock the sweep for a change by who acts, and return its row.

    Raises SweepNotFound; NotOwner if who acts may change only other sweeps.
    """
    check_id(sweep_id)
    row = lock_sweep(write, sweep_id)
    if row is None:
        raise SweepNotFound(sweep_id)
    require_own(f"sweep {sweep_id}", row.submitted_by)
    return row


def sweep_by_id(conn: sa.Connection, sweep_id: str) -> Sweep:
    """Return one sweep. Raises SweepNotFound."""
    row = conn.execute(sa.select(sweeps).where(sweeps.c.id == sweep_id)).one_or_none()
    if row is None:
        raise SweepNotFound(sweep_id)
    return sweep_of(row)


def new_sweep(
    body: dict[str, Any], body_hash: str, num_trials: int | None, idempotency_key: str | None
) -> dict[str, Any]:
    """Return the columns of a new sweep, except its times."""
    objective = body["spec"].get("objective") or {}
    actor = acting()
    return {
        **{key: json_safe(value) for key, value in body.items()},
        "id": secrets.token_hex(6),
        "state": SweepState.QUEUED.value,
        "num_trials": num_trials,
        "objective_metric": objective.get("metric"),
        "maximize": objective_of(body["spec"]).is_maximized,
        "idempotency_key": None if idempotency_key is None else own_key(idempotency_key),
        "body_hash": body_hash,
        "submitted_by": actor.name if actor else "",
    }


def own_key(idempotency_key: str) -> str:
    """Return a client's key as it is stored: two owners may choose the same one.

    Keys of the service itself hold a space. The owner of the settings' token shares them with those
    who needed no token, so that a replay finds what was created before there were owners.
    """
    actor, key = acting(), plain_text(idempotency_key)
    if actor is None or actor.token == SETTINGS_TOKEN or " " in key:
        return key
    return f"{actor.name} {key}"


#: Built once, because SQLAlchemy takes longer to build it than the database to run it.
_INSERT = {
    name: insert(sweeps)
    .on_conflict_do_nothing(index_elements=["idempotency_key"])
    .returning(sweeps)
    for name, insert in (("sqlite", sqlite.insert), ("postgresql", postgresql.insert))
}


def insert_sweep(write: Write, values: dict[str, Any]) -> sa.Row[Any] | None:
    """Insert ``new_sweep``'s row; None if the key is taken. Waits for a transaction that takes it.

    Returns the row.
    """
    times = {"created_at": write.now, "queued_at": write.now}
    return write.conn.execute(_INSERT[write.conn.dialect.name], values | times).one_or_none()


def _earlier_sweep(write: Write, key: str, body_hash: str) -> Sweep:
    mine = sweeps.c.idempotency_key == key
    row = write.conn.execute(sa.select(sweeps).where(mine)).one()
    if row.body_hash != body_hash:
        raise IdempotencyConflict(row.id)
    return sweep_of(row)


def insert_tags(write: Write, sweep_id: str, tags: Sequence[str]) -> None:
    """Insert the rows that listings by tag read."""
    if tags:
        rows = [{"sweep_id": sweep_id, "tag": plain_text(tag)} for tag in tags]
        write.conn.execute(sa.insert(sweep_tags), rows)
