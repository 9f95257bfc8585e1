"""Times and processes of attempts: one narrow row each, for a timeline of thousands."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from sweeps.records import TrialState
from sweeps.store.database.connection import Database
from sweeps.store.database.paging import check_exists
from sweeps.store.database.rows import time_of
from sweeps.store.database.tables import attempts


@dataclass(frozen=True)
class Span:
    """One attempt at a trial, and the process that ran it; "" if it never reported."""

    trial: int
    attempt: int
    state: TrialState
    started_at: datetime
    finished_at: datetime | None
    host: str
    pid: str
    device: str


class TimelineVerbs(Database):
    """Verbs that read attempts across trials."""

    def timeline(self, sweep_id: str, limit: int = 2000) -> list[Span]:
        """Return the newest attempts of a sweep, at most ``limit``, in the order they started."""
        about = attempts.c.provenance
        query = (
            sa.select(
                attempts.c.trial,
                attempts.c.number,
                attempts.c.state,
                attempts.c.started_at,
                attempts.c.finished_at,
                # Agents say who they are; nothing else is known of where they run.
                sa.func.coalesce(about["host"].as_string(), attempts.c.agent).label("host"),
                about["pid"].as_string().label("pid"),
                about["card"].as_string().label("card"),
            )
            .where(attempts.c.sweep_id == sweep_id)
            .order_by(attempts.c.id.desc())
            .limit(limit)
        )
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            rows = conn.execute(query).all()
        spans = [
            Span(
                row.trial,
                row.number,
                TrialState(row.state),
                time_of(row.started_at),
                None if row.finished_at is None else time_of(row.finished_at),
                row.host or "",
                str(row.pid or ""),
                row.card or "",
            )
            for row in rows
        ]
        return sorted(spans, key=lambda span: (span.started_at, span.trial))
