"""Records that the mirror has not sent yet, and its acknowledgements.

The metric table is the outbox: a cursor per attempt marks the last metric sent, so an outage loses
no record and needs no memory.
"""

from array import array
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from sweeps.errors import SweepNotFound
from sweeps.records import (
    Attempt,
    Backlog,
    DeletedSweep,
    MetricPoint,
    MirrorWork,
    PendingAttempt,
    PendingSweep,
)
from sweeps.store.database.connection import Database, json_safe
from sweeps.store.database.rows import attempt_of, sweep_of, trial_of
from sweeps.store.database.tables import (
    attempts,
    deleted_sweeps,
    metric_names,
    metrics,
    series,
    sweeps,
    trials,
)

#: Parts of usage that are sent at once; one look has about ten.
_PARTS = 400

_LOCAL = ("127.0.0.1", "localhost", "::1")
_CHANGED = sweeps.c.revision > sweeps.c.mirrored_revision


class MirrorVerbs(Database):
    """Verbs of the mirror."""

    def mirror_pending(
        self,
        limit: int = 100,
        max_metrics: int = 1000,
        *,
        sweep_id: str | None = None,
        without_sweeps: Sequence[str] = (),
        without_attempts: Sequence[int] = (),
    ) -> MirrorWork:
        """Return up to ``limit`` sweeps and ``limit`` attempts with something unsent.

        Each attempt comes with its next ``max_metrics`` metrics, in the order reported. Some may be
        left out: sweeps with all their attempts, and attempts alone.
        """
        changed = sa.select(sweeps).where(_CHANGED, sweeps.c.id.not_in(without_sweeps))
        unsent = (
            sa.select(attempts)
            .where(
                attempts.c.unmirrored,
                attempts.c.sweep_id.not_in(without_sweeps),
                attempts.c.id.not_in(without_attempts),
            )
            .order_by(attempts.c.id)
            .limit(limit)
        )
        if sweep_id is not None:
            changed = changed.where(sweeps.c.id == sweep_id)
            unsent = unsent.where(attempts.c.sweep_id == sweep_id)
        with self._reading() as conn:
            pending = [
                PendingSweep(sweep_of(row), row.revision)
                for row in conn.execute(changed.order_by(sweeps.c.created_at).limit(limit))
            ]
            tries = [_pending_attempt(conn, row, max_metrics) for row in conn.execute(unsent).all()]
        return MirrorWork(pending, tries)

    def mirror_sent(
        self, attempt_id: int, upto: int, state: str, usage_upto: int | None = None
    ) -> None:
        """Acknowledge an attempt's metrics up to ``upto`` and the state that its run now shows.

        Anything newer stays pending. Repeating it, or acknowledging less than before, is harmless.
        """
        sent = sa.case((attempts.c.mirror_seq > upto, attempts.c.mirror_seq), else_=upto)
        with self._writing() as write:
            write.conn.execute(
                sa.update(attempts)
                .where(attempts.c.id == attempt_id)
                .values(
                    mirror_seq=sent,
                    mirror_usage=attempts.c.mirror_usage if usage_upto is None else usage_upto,
                    mirror_state=state,
                    unmirrored=sa.or_(attempts.c.last_seq > sent, attempts.c.state != state),
                )
            )

    def mirror_sweep_sent(self, sweep_id: str, revision: int) -> None:
        """Acknowledge a sweep in the version ``revision``. A later change stays pending."""
        with self._writing() as write:
            write.conn.execute(
                sa.update(sweeps)
                .where(sweeps.c.id == sweep_id, sweeps.c.mirrored_revision < revision)
                .values(mirrored_revision=revision)
            )

    def set_mirror(self, sweep_id: str, mirror: dict[str, Any]) -> None:
        """Store the mirror's status, which is not itself a change to be mirrored."""
        with self._writing() as write:
            done = write.conn.execute(
                sa.update(sweeps).where(sweeps.c.id == sweep_id).values(mirror=json_safe(mirror))
            )
            if not done.rowcount:
                raise SweepNotFound(sweep_id)

    def set_mlflow_run(self, attempt_id: int, run_id: str) -> str:
        """Link an attempt to a run of the mirror; return the linked run.

        The first link stays, so that a second mirror notices it and drops its own run.
        """
        with self._writing() as write:
            write.conn.execute(
                sa.update(attempts)
                .where(attempts.c.id == attempt_id, attempts.c.mlflow_run_id.is_(None))
                .values(mlflow_run_id=run_id)
            )
            query = sa.select(attempts.c.mlflow_run_id).where(attempts.c.id == attempt_id)
            return str(write.conn.execute(query).scalar_one_or_none() or run_id)

    def mirror_again(self, sweep_id: str) -> None:
        """Mark a sweep as unsent after its experiment was deleted, so that all is sent again."""
        with self._writing() as write:
            write.conn.execute(
                sa.update(attempts)
                .where(attempts.c.sweep_id == sweep_id)
                .values(
                    mlflow_run_id=None,
                    mirror_seq=0,
                    mirror_usage=None,
                    mirror_state="",
                    unmirrored=True,
                )
            )
            write.conn.execute(
                sa.update(sweeps)
                .where(sweeps.c.id == sweep_id)
                .values(mirror=None, mirrored_revision=0)
            )

    def attempts(self, sweep_id: str) -> list[Attempt]:
        """Return every attempt of a sweep, oldest first."""
        query = sa.select(attempts).where(attempts.c.sweep_id == sweep_id).order_by(attempts.c.id)
        with self._reading() as conn:
            return [attempt_of(row) for row in conn.execute(query)]

    def mirror_moved(self, address: str) -> None:
        """Change links to a local server to ``address``, its current address.

        Its port may differ at each start. Links to other machines stay, and so does every
        link if ``address`` is on another machine: that may be another server.
        """
        now = urlsplit(address)
        if now.hostname not in _LOCAL:
            return
        url = sweeps.c.mirror["url"].as_string()
        elsewhere = sa.not_(url.startswith(f"{address}/", autoescape=True))
        query = sa.select(sweeps.c.id, sweeps.c.mirror).where(elsewhere)
        with self._writing() as write:
            for sweep_id, mirror in write.conn.execute(query).all():
                known = urlsplit(mirror["url"])
                if known.hostname in _LOCAL:
                    moved = known._replace(scheme=now.scheme, netloc=now.netloc).geturl()
                    row = sa.update(sweeps).where(sweeps.c.id == sweep_id)
                    write.conn.execute(row.values(mirror=mirror | {"url": moved}))

    def mirror_behind(self) -> list[str]:
        """Return the ids of sweeps whose mirror reports that it is behind."""
        behind = sweeps.c.mirror["behind_seconds"].as_float() > 0
        with self._reading() as conn:
            return list(conn.execute(sa.select(sweeps.c.id).where(behind)).scalars())

    def mirror_deleted(self, limit: int = 100) -> list[DeletedSweep]:
        """Return deleted sweeps whose deletion the mirror has not sent yet."""
        query = sa.select(deleted_sweeps).order_by(deleted_sweeps.c.at).limit(limit)
        with self._reading() as conn:
            return [
                DeletedSweep(row.sweep_id, row.name, row.experiment_id)
                for row in conn.execute(query)
            ]

    def mirror_deleted_sent(self, sweep_id: str) -> None:
        """Acknowledge that every MLflow run of a deleted sweep has ended."""
        with self._writing() as write:
            gone = deleted_sweeps.c.sweep_id == sweep_id
            write.conn.execute(sa.delete(deleted_sweeps).where(gone))

    def mirror_backlog(self) -> Backlog:
        """Count unsent records."""
        counts = sa.select(
            sa.func.count(), sa.func.sum(attempts.c.last_seq - attempts.c.mirror_seq)
        ).where(attempts.c.unmirrored)
        with self._reading() as conn:
            number, points = conn.execute(counts).one()
            changed = conn.execute(sa.select(sa.func.count()).where(_CHANGED)).scalar_one()
        return Backlog(sweeps=changed, attempts=number, metrics=int(points or 0))


def _pending_attempt(conn: sa.Connection, row: sa.Row[Any], max_metrics: int) -> PendingAttempt:
    query = (
        sa.select(metrics, metric_names.c.name)
        .join(metric_names, metric_names.c.id == metrics.c.name_id)
        .where(metrics.c.attempt_id == row.id, metrics.c.seq > row.mirror_seq)
        .order_by(metrics.c.seq)
        .limit(max_metrics + 1)
    )
    rows = conn.execute(query).all()
    trial = conn.execute(
        sa.select(trials).where(trials.c.sweep_id == row.sweep_id, trials.c.number == row.trial)
    ).one()
    sent = [MetricPoint(m.seq, m.name, m.step, m.value, m.at // 1000) for m in rows[:max_metrics]]
    more = len(rows) > max_metrics
    # A repeated batch leaves numbers without a row; acknowledge them too.
    upto = sent[-1].seq if more else row.last_seq
    usage, usage_upto, more_usage = _pending_usage(conn, row)
    return PendingAttempt(
        trial_of(trial), attempt_of(row), sent, upto, more or more_usage, usage, usage_upto
    )


def _pending_usage(
    conn: sa.Connection, row: sa.Row[Any]
) -> tuple[list[MetricPoint], int | None, bool]:
    """Return samples of usage that were not sent, how to acknowledge them, whether more follow.

    Named as MLflow names its own: ``system/gpu_0_utilization_percentage``. Parts of one look begin
    together, and are sent together.
    """
    query = (
        sa.select(series, metric_names.c.name)
        .join(metric_names, metric_names.c.id == series.c.name_id)
        .where(
            series.c.attempt_id == row.id,
            metric_names.c.kind == "usage",
            series.c.start > (row.mirror_usage or 0),
        )
        .order_by(series.c.start)
        .limit(_PARTS)
    )
    parts = conn.execute(query).all()
    more = len(parts) == _PARTS and parts[0].start < parts[-1].start
    if more:
        parts = [part for part in parts if part.start < parts[-1].start]
    begun = row.started_at // 1000
    found = []
    for part in parts:
        values = array("d")
        values.frombytes(part._mapping["values"])
        for at, value in enumerate(values):
            ms = part.start + at * part.every
            step = max(0, (ms - begun) // 1000)
            found.append(MetricPoint(0, f"system/{part.name}", step, value, ms))
    return found, parts[-1].start if parts else None, more
