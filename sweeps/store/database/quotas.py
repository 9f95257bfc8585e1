"""What an owner uses, and the refusal of more than a quota."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from sweeps.errors import QuotaExceeded
from sweeps.records import SweepState, TrialState
from sweeps.store.database.connection import Write
from sweeps.store.database.people import Use, acting
from sweeps.store.database.rows import COUNT_COLUMN
from sweeps.store.database.tables import sweeps

#: GPU time counts of sweeps that are no older.
WINDOW = timedelta(days=30)

_RETRY_SECONDS = {"queued_sweeps": 60, "trials": 60, "gpu_hours": 3600}
_REMEDY = {
    "queued_sweeps": "wait until one has started, cancel one",
    "trials": "wait until trials have ended, cancel a sweep, submit fewer",
    "gpu_hours": "wait until older sweeps leave the last 30 days",
}
#: PostgreSQL's lock, beside a hash of the owner: two submissions must not both see the last place.
_QUOTA_LOCK = 0x6E64


def hold_quotas(write: Write) -> None:
    """Raise QuotaExceeded if who acts uses more than their token allows, with what was written."""
    actor = acting()
    limits = actor.quotas.as_json() if actor else {}
    limits.pop("requests_per_second", None)
    if actor is None or not limits:
        return
    if write.conn.dialect.name == "postgresql":
        which = sa.func.hashtext(actor.name)
        write.conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_QUOTA_LOCK, which)))
    use = use_of(write.conn, actor.name, write.now)
    for quota, most in limits.items():
        used = getattr(use, quota)
        # Nobody knows what GPU time a sweep will take: the last one may go beyond.
        if used > most or (quota == "gpu_hours" and used == most):
            whose = f"the quota {quota} of {actor.name!r}"
            # Nothing that ends makes room in a quota of 0.
            remedy = f"{_REMEDY[quota]}, or ask" if most else "ask"
            raise QuotaExceeded(
                f"{whose} is {most:g}, and with this it would be {used:g}: {remedy} "
                "an administrator for more; GET /api/v1/me shows what is used",
                quota=quota,
                retry_seconds=_RETRY_SECONDS[quota],
            )


def use_of(conn: sa.Connection, owner: str, now: int) -> Use:
    """Return what an owner's sweeps use at ``now``, in microseconds since 1970."""
    row = conn.execute(_USE, {"owner": owner, "since": now - WINDOW // timedelta(microseconds=1)})
    queued, waiting, seconds = row.one()
    return Use(int(queued or 0), int(waiting or 0), round(float(seconds or 0) / 3600, 6))


def gpu_hours_by_owner(conn: sa.Connection, now: int) -> dict[str, float]:
    """Return hours of cards by owner, those of the most first; "" = nobody's sweeps."""
    since = now - WINDOW // timedelta(microseconds=1)
    hours = sa.func.sum(sweeps.c.trial_seconds * _GPUS) / 3600
    query = (
        sa.select(sweeps.c.submitted_by, hours)
        .where(sweeps.c.created_at > since)
        .group_by(sweeps.c.submitted_by)
        .order_by(hours.desc(), sweeps.c.submitted_by)
    )
    return {owner: float(found or 0) for owner, found in conn.execute(query)}


#: Cards of each trial of a sweep.
_GPUS = sa.func.coalesce(sweeps.c.spec["resources"]["gpus"].as_float(), 0.0)


def _use() -> sa.Select[Any]:
    c = sweeps.c
    ended = [state.value for state in SweepState if state.is_finished()]
    finished = sum(
        (c[COUNT_COLUMN[state]] for state in TrialState if state.is_finished()), sa.literal(0)
    )
    # A match has no total: it counts what it has asked for.
    total = sa.func.coalesce(c.num_trials, c.n_waiting + c.n_running + finished)
    is_recent = c.created_at > sa.bindparam("since")
    left = sa.case((c.state.in_(ended), 0), (total > finished, total - finished), else_=0)
    return sa.select(
        sa.func.sum(sa.case((c.state == SweepState.QUEUED.value, 1), else_=0)),
        sa.func.sum(left),
        sa.func.sum(sa.case((is_recent, c.trial_seconds * _GPUS), else_=0.0)),
    ).where(c.submitted_by == sa.bindparam("owner"), sa.or_(is_recent, c.state.not_in(ended)))


_USE = _use()
