"""Reopens a finished sweep: extend, retry, confirm."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from sweeps.errors import SweepStateConflict, does_not_go_on
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.store.commands.states import move_trials
from sweeps.store.commands.sweeps import locked, own_key, queue_again, relabel, sweep_by_id
from sweeps.store.database.connection import Database, json_safe
from sweeps.store.database.paging import check_id
from sweeps.store.database.quotas import hold_quotas
from sweeps.store.database.rows import sweep_of
from sweeps.store.database.tables import sweeps, trials

#: How the key of a confirmation begins; clients' keys hold no spaces.
_CONFIRM = "confirm"


def confirmation_key(sweep_id: str, what: str) -> str:
    """Make the idempotency key of a sweep's confirmation; ``what`` distinguishes confirmations."""
    return f"{_CONFIRM} {sweep_id} {what}"


class GrowthVerbs(Database):
    """Verbs that extend, retry or confirm an existing sweep."""

    def retry(self, sweep_id: str) -> Sweep:
        """Let every failed trial wait again and queue the sweep. No change if none has failed.

        A driver that runs the sweep finds them with ``reopened``. Raises SweepStateConflict for a
        sweep that is cancelled or being cancelled.
        """
        with self._writing() as write:
            row = locked(write, sweep_id)
            state = SweepState(row.state)
            is_ending = row.requested in ("cancel", "delete")
            if state == SweepState.CANCELLED or is_ending:
                what = "being cancelled" if is_ending else state.value
                raise does_not_go_on("retry trials of", sweep_id, what)
            failed = trials.c.state == TrialState.FAILED.value
            moved = move_trials(write, row, failed, TrialState.WAITING, exit_cause="")
            if moved and state != SweepState.RUNNING:
                queue_again(write, row, "retrying failed trials")
            if moved:
                hold_quotas(write)
                write.audit("sweep.retry", sweep_id, trials=moved)
            return sweep_by_id(write.conn, sweep_id)

    def reopened(self, sweep_id: str, failed: Collection[int]) -> list[int]:
        """Return which of these failed trials, by number, wait again after a retry."""
        waiting = sa.select(trials.c.number).where(
            trials.c.sweep_id == sweep_id, trials.c.state == TrialState.WAITING.value
        )
        with self._reading() as conn:
            return [n for n in conn.execute(waiting).scalars() if n in failed]

    def extend(
        self,
        sweep_id: str,
        spec: dict[str, Any],
        *,
        num_trials: int | None,
        was: dict[str, Any] | None = None,
    ) -> Sweep:
        """Give the sweep a larger spec and, if it has ended, queue it again.

        Trials that the old budget cut off wait again. A running driver continues with the old spec;
        the sweep is queued again when it has finished. The same spec again changes nothing. The
        caller has checked that the new spec differs from ``was`` only in its size: raises
        SweepStateConflict if the spec has changed since, and for a cancelled sweep.
        """
        with self._writing() as write:
            row = locked(write, sweep_id)
            if row.state == SweepState.CANCELLED.value:
                raise does_not_go_on("extend", sweep_id, "cancelled")
            if was is not None and row.spec != was:
                raise SweepStateConflict(
                    f"cannot extend sweep {sweep_id}: its spec was changed meanwhile; check it and "
                    "send the request again"
                )
            if (row.spec, row.num_trials) == (json_safe(spec), num_trials):
                return sweep_by_id(write.conn, sweep_id)
            relabel(write, sweep_id, spec=json_safe(spec), num_trials=num_trials)
            if row.state != SweepState.RUNNING.value:
                cut_off = trials.c.state == TrialState.CANCELLED.value
                move_trials(write, row, cut_off, TrialState.WAITING, exit_cause="")
            if SweepState(row.state).is_finished():
                queue_again(write, row, "extended")
            else:
                write.event(row.id, "sweep", {"state": row.state, "reason": "extended"})
            hold_quotas(write)
            write.audit("sweep.extend", sweep_id, trials=num_trials)
            return sweep_by_id(write.conn, sweep_id)

    def sweep_of_key(self, idempotency_key: str) -> Sweep | None:
        """Return the sweep that was created under this key, if any."""
        key = sweeps.c.idempotency_key == own_key(idempotency_key)
        with self._reading() as conn:
            row = conn.execute(sa.select(sweeps).where(key)).one_or_none()
        return None if row is None else sweep_of(row)

    def confirmations(self, sweep_id: str) -> list[Sweep]:
        """Return the sweeps that confirm points of this one, oldest first."""
        check_id(sweep_id)
        mine = sweeps.c.idempotency_key.startswith(f"{_CONFIRM} {sweep_id} ", autoescape=True)
        query = sa.select(sweeps).where(mine).order_by(sweeps.c.created_at, sweeps.c.id)
        with self._reading() as conn:
            return [sweep_of(row) for row in conn.execute(query)]
