"""Records what trials report: metrics, per-step series, provenance, the latest values.

Every write checks the claim's token, and may be repeated: an existing (attempt, metric, step) stays
unchanged.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.errors import SweepStateConflict
from sweeps.records import LARGEST, Claim, TrialReports, added_usage
from sweeps.store.commands.leases import fenced
from sweeps.store.commands.trials import insert_new, trial_for_update
from sweeps.store.database.connection import Database, Write, json_safe, plain_text
from sweeps.store.database.tables import (
    attempts,
    metric_names,
    metrics,
    series,
    sweeps,
    trials,
)
from worker.report import Report, Series


class RecordVerbs(Database):
    """Verbs with which drivers record measurements."""

    def record(self, claim: Claim, number: int, attempt_id: int, reports: list[Report]) -> None:
        """Record an attempt's reports, see ``record_batch``."""
        self.record_batch(claim, [TrialReports(number, attempt_id, reports)])

    def record_batch(self, claim: Claim, batch: Sequence[TrialReports]) -> None:
        """Record reports of any number of trials in one transaction.

        An existing (attempt, metric, step) stays unchanged. Values that are not finite are left
        out; the attempt's provenance names them under "non_finite".
        """
        with self._writing() as write:
            row = fenced(write, claim)
            names = {n for item in batch for report in item.reports for n in report.metrics}
            ids = name_ids(write, row.id, "metric", names) if names else {}
            for item in batch:
                if item.reports:
                    _record(write, row, item, ids)


def _record(write: Write, sweep: sa.Row[Any], item: TrialReports, ids: Mapping[str, int]) -> None:
    trial = trial_for_update(write, sweep.id, item.number)
    attempt = write.conn.execute(
        sa.select(attempts).where(
            attempts.c.id == item.attempt_id,
            attempts.c.sweep_id == sweep.id,
            attempts.c.trial == item.number,
        )
    ).one_or_none()
    if attempt is None:
        raise SweepStateConflict(
            f"attempt {item.attempt_id} is not one of trial {item.number} of sweep {sweep.id}"
        )
    finite = _record_metrics(write, attempt, item.reports, ids)
    _insert_series(write, sweep, item)
    _record_usage(write, sweep, trial, attempt, item.reports)
    _update_trial(write, sweep, trial, item.reports, finite)


def _record_metrics(
    write: Write, attempt: sa.Row[Any], reports: list[Report], ids: Mapping[str, int]
) -> dict[str, float]:
    """Insert metric rows; return the latest finite value of each name."""
    rows: list[dict[str, Any]] = []
    latest: dict[str, float] = {}
    provenance = dict(attempt.provenance)
    for report in reports:
        provenance |= json_safe(report.provenance)
        for name, value in report.metrics.items():
            if not math.isfinite(value):
                flags = provenance.setdefault("non_finite", {})
                flags.setdefault(plain_text(name), report.step)
                continue
            latest[plain_text(name)] = value
            rows.append(
                {
                    "attempt_id": attempt.id,
                    "seq": attempt.last_seq + len(rows) + 1,
                    "name_id": ids[plain_text(name)],
                    "step": report.step,
                    "value": value,
                    "at": write.now,
                }
            )
    if rows:
        insert_metrics(write, rows)
    write.conn.execute(
        sa.update(attempts)
        .where(attempts.c.id == attempt.id)
        .values(last_seq=attempt.last_seq + len(rows), provenance=provenance, unmirrored=True)
    )
    return latest


def insert_metrics(write: Write, rows: list[dict[str, Any]]) -> None:
    """Insert metric rows that do not exist yet."""
    if write.conn.dialect.name == "sqlite":
        write.conn.execute(insert_new(write, metrics), rows)
        return
    # One statement for all rows; a list of rows would be one statement for each.
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write.conn.execute(_INSERT_COLUMNS, columns)


_INSERT_COLUMNS = sa.text(
    """
    INSERT INTO metrics (attempt_id, seq, name_id, step, value, at)
    SELECT * FROM unnest(
        CAST(:attempt_id AS bigint[]), CAST(:seq AS bigint[]), CAST(:name_id AS bigint[]),
        CAST(:step AS bigint[]), CAST(:value AS double precision[]), CAST(:at AS bigint[])
    )
    ON CONFLICT DO NOTHING
    """
)


def _insert_series(write: Write, sweep: sa.Row[Any], item: TrialReports) -> None:
    names = {name for report in item.reports for name in report.series}
    if not names:
        return
    parts = [part for report in item.reports for part in report.series.items()]
    _insert_parts(write, sweep, item.attempt_id, "series", parts)


def _insert_parts(
    write: Write,
    sweep: sa.Row[Any],
    attempt_id: int,
    kind: str,
    parts: Sequence[tuple[str, Series]],
) -> None:
    ids = name_ids(write, sweep.id, kind, {name for name, _ in parts})
    rows = [
        {
            "attempt_id": attempt_id,
            "name_id": ids[plain_text(name)],
            "start": part.start,
            "every": part.every,
            "values": array("d", part.values).tobytes(),
        }
        for name, part in parts
        if part.values
    ]
    if rows:
        write.conn.execute(insert_new(write, series), rows)


def _record_usage(
    write: Write,
    sweep: sa.Row[Any],
    trial: sa.Row[Any],
    attempt: sa.Row[Any],
    reports: list[Report],
) -> None:
    """Record samples, and totals of the attempt, its trial and its sweep."""
    found = [report.usage for report in reports if report.usage is not None]
    if not found:
        return
    parts = [(n, part) for usage in found for n, of in usage.samples.items() for part in of]
    if parts:
        _insert_parts(write, sweep, attempt.id, "usage", parts)
    totals = {n: v for n, v in found[-1].totals.items() if math.isfinite(v)}
    write.conn.execute(sa.update(attempts).where(attempts.c.id == attempt.id).values(usage=totals))
    # What is new since the attempt's last report; the largest values count themselves.
    before = attempt.usage or {}
    news = {n: v if n in LARGEST else v - before.get(n, 0.0) for n, v in totals.items()}
    mine = (trials.c.sweep_id == sweep.id) & (trials.c.number == trial.number)
    of_trial = added_usage(trial.usage or {}, news)
    write.conn.execute(sa.update(trials).where(mine).values(usage=of_trial))
    # Read again, since another trial of the batch may have added to it.
    query = sa.select(sweeps.c.usage).where(sweeps.c.id == sweep.id)
    of_sweep = added_usage(write.conn.execute(query).scalar_one() or {}, news)
    write.conn.execute(sa.update(sweeps).where(sweeps.c.id == sweep.id).values(usage=of_sweep))


def _update_trial(
    write: Write,
    sweep: sa.Row[Any],
    trial: sa.Row[Any],
    reports: list[Report],
    latest: dict[str, float],
) -> None:
    last = reports[-1]
    diverged = [r.diverged_at_step for r in reports if r.diverged_at_step is not None]
    objective = latest.get(sweep.objective_metric or "", trial.objective)
    write.conn.execute(
        sa.update(trials)
        .where(trials.c.sweep_id == sweep.id, trials.c.number == trial.number)
        .values(
            metrics=trial.metrics | latest,
            step=last.step,
            num_steps=last.num_steps,
            objective=objective,
            diverged_at_step=diverged[0] if diverged else trial.diverged_at_step,
        )
    )
    data = {
        "trial": trial.number,
        "point": trial.point,
        "step": last.step,
        "num_steps": last.num_steps,
        "metrics": {name: value for name, value in latest.items() if "/" not in name},
        "objective": objective,
    }
    write.event(sweep.id, "progress", data)


def name_ids(write: Write, sweep_id: str, kind: str, names: set[str]) -> dict[str, int]:
    """Return the id of each metric or series name of the sweep; new names get an id."""
    wanted = {plain_text(name) for name in names}
    mine = (metric_names.c.sweep_id == sweep_id) & (metric_names.c.kind == kind)
    query = sa.select(metric_names.c.name, metric_names.c.id).where(mine)
    found: dict[str, int] = {row.name: row.id for row in write.conn.execute(query)}
    missing = sorted(wanted - found.keys())
    if missing:
        rows = [{"sweep_id": sweep_id, "kind": kind, "name": name} for name in missing]
        write.conn.execute(insert_new(write, metric_names), rows)
        found = {row.name: row.id for row in write.conn.execute(query)}
    return found
