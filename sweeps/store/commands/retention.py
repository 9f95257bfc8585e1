"""Retention's reads and writes: states of trials, and deletion of old progress events."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from sweeps.records import SweepState, TrialState
from sweeps.store.database.connection import Database
from sweeps.store.database.rows import time_of
from sweeps.store.database.tables import events, sweeps, trials

#: Events removed in one transaction; other writers run between two of them.
_CHUNK = 5000
_FINISHED = [state.value for state in SweepState if state.is_finished()]


@dataclass(frozen=True)
class SweepFiles:
    """State of a sweep that decides about its files."""

    id: str
    state: SweepState
    finished_at: datetime | None


class RetentionVerbs(Database):
    """Verbs of retention."""

    def sweep_states(self) -> list[SweepFiles]:
        """Return every sweep's state, in the order in which they finished."""
        query = sa.select(sweeps.c.id, sweeps.c.state, sweeps.c.finished_at)
        with self._reading() as conn:
            rows = conn.execute(query.order_by(sweeps.c.finished_at, sweeps.c.id)).all()
        return [
            SweepFiles(
                row.id,
                SweepState(row.state),
                None if row.finished_at is None else time_of(row.finished_at),
            )
            for row in rows
        ]

    def trial_states(self, sweep_id: str) -> dict[int, TrialState]:
        """Return the state of every trial by number; {} for a sweep that does not exist."""
        query = sa.select(trials.c.number, trials.c.state).where(trials.c.sweep_id == sweep_id)
        with self._reading() as conn:
            return {row.number: TrialState(row.state) for row in conn.execute(query)}

    def old_progress(self, finished_before: datetime) -> int:
        """Return how many progress events belong to sweeps that finished before this time."""
        with self._reading() as conn:
            count = sa.select(sa.func.count()).select_from(events).where(_old(finished_before))
            return int(conn.execute(count).scalar() or 0)

    def prune_progress(self, finished_before: datetime) -> int:
        """Delete those events; return how many. Metrics and all other events stay."""
        removed = 0
        while True:
            some = sa.select(events.c.id).where(_old(finished_before)).limit(_CHUNK)
            with self._writing() as write:
                ids = list(write.conn.execute(some).scalars())
                if ids:
                    between = events.c.id.between(min(ids), max(ids))
                    doomed = sa.delete(events).where(between, _old(finished_before))
                    removed += write.conn.execute(doomed).rowcount
            if len(ids) < _CHUNK:
                return removed


def _old(finished_before: datetime) -> sa.ColumnElement[bool]:
    before = int(finished_before.timestamp() * 1e6)
    done = sa.select(sweeps.c.id).where(
        sweeps.c.state.in_(_FINISHED), sweeps.c.finished_at < before
    )
    return sa.and_(events.c.kind == "progress", events.c.sweep_id.in_(done))
