"""What monitoring asks of the store: how long things wait, and who used the cards."""

from dataclasses import dataclass

import sqlalchemy as sa

from sweeps.records import SweepState
from sweeps.store.database.connection import Database, microseconds
from sweeps.store.database.quotas import gpu_hours_by_owner
from sweeps.store.database.tables import attempts, metrics, sweeps

#: Attempts with something unsent that are looked at: the oldest have waited longest.
_LOOKED_AT = 200


@dataclass(frozen=True)
class Waits:
    """How long things wait at this moment, in seconds."""

    #: Of the sweep that has been queued longest; 0 where none is queued.
    queue_age: float
    #: Until the first lease of a running sweep is over, negative after it; None where none runs.
    lease_left: float | None
    #: Age of the oldest metric that the mirror has yet to send; 0 where it has sent all.
    mirror_lag: float


class MonitoringVerbs(Database):
    """Verbs of probes and of /metrics."""

    def waits(self) -> Waits:
        """Return how long sweeps, drivers and the mirror have waited."""
        is_running = sweeps.c.state == SweepState.RUNNING.value
        queued = sa.select(sa.func.min(sweeps.c.queued_at)).where(
            sweeps.c.state == SweepState.QUEUED.value
        )
        lease = sa.select(sa.func.min(sweeps.c.lease_until) - self._clock()).where(is_running)
        with self._reading() as conn:
            oldest = conn.execute(queued).scalar()
            left = conn.execute(lease).scalar()
            unsent = conn.execute(_UNSENT).scalar()
        now = microseconds()
        return Waits(
            queue_age=_seconds_since(oldest, now),
            lease_left=None if left is None else int(left) / 1e6,
            mirror_lag=_seconds_since(unsent, now),
        )

    def gpu_hours(self) -> dict[str, float]:
        """Return hours of cards by owner, as the quota ``gpu_hours`` counts them; largest first."""
        with self._reading() as conn:
            return gpu_hours_by_owner(conn, microseconds())


def _seconds_since(at: int | None, now: int) -> float:
    return 0.0 if at is None else max(0.0, (now - at) / 1e6)


def _unsent() -> sa.Select[int | None]:
    first = (
        sa.select(metrics.c.at)
        .where(metrics.c.attempt_id == attempts.c.id, metrics.c.seq > attempts.c.mirror_seq)
        .order_by(metrics.c.seq)
        .limit(1)
        .scalar_subquery()
    )
    oldest = (
        sa.select(first.label("at"))
        .where(attempts.c.unmirrored)
        .order_by(attempts.c.id)
        .limit(_LOOKED_AT)
        .subquery()
    )
    return sa.select(sa.func.min(oldest.c.at))


_UNSENT = _unsent()
