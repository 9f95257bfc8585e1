"""Imports sweeps that were run elsewhere, without a driver of this store.

A whole sweep is one transaction, so neither readers nor runners see it incomplete or queued.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from sweeps.errors import SweepsError, SweepStateConflict
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.store.commands.reports import name_ids
from sweeps.store.commands.states import count_trials, lock_sweep, move_sweep, refresh_points
from sweeps.store.commands.sweeps import insert_sweep, insert_tags, new_sweep, sweep_by_id
from sweeps.store.commands.trials import insert_new, insert_values
from sweeps.store.database.connection import Database, Write, json_safe, plain_text
from sweeps.store.database.rows import sweep_of
from sweeps.store.database.tables import attempts, metrics, points, sweeps, trials

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ImportRefused(SweepsError):
    """What was named holds nothing that can be imported."""


@dataclass(frozen=True)
class ImportedAttempt:
    """One attempt at an imported trial."""

    state: TrialState
    started_at: datetime
    finished_at: datetime
    exit_cause: str


@dataclass(frozen=True)
class ImportedTrial:
    """A finished trial of another machine."""

    point: int
    seed: int
    params: dict[str, Any]
    config: dict[str, Any]
    config_key: str
    state: TrialState
    objective: float | None
    #: Latest value of every metric.
    metrics: dict[str, float]
    #: (step, value) by name; all belong to the last attempt.
    curves: dict[str, list[tuple[int, float]]]
    step: int
    #: None where the source does not know how long the whole run is.
    num_steps: int | None
    diverged_at_step: int | None
    exit_cause: str
    #: At least one, in order.
    attempts: tuple[ImportedAttempt, ...]
    #: Provenance of the last attempt.
    provenance: dict[str, Any]


@dataclass(frozen=True)
class ImportedSweep:
    """Result of importing the runs of one spec."""

    sweep: Sweep
    #: Number of trials added, and of failed trials replaced by a finished run.
    added: int
    replaced: int


class ImportVerbs(Database):
    """Verbs for finished sweeps from elsewhere."""

    def import_sweep(
        self,
        spec: dict[str, Any],
        found: Sequence[ImportedTrial],
        *,
        key: str,
        name: str,
        tags: Sequence[str],
        notes: str,
        num_trials: int,
    ) -> ImportedSweep:
        """Add trials to the complete sweep of this key; create the sweep if it does not exist.

        An existing trial (the same configuration and seed) stays unchanged, unless it failed and
        the new one did not. Raises SweepStateConflict while the sweep is not finished.
        """
        with self._writing() as write:
            query = sa.select(sweeps.c.id).where(sweeps.c.idempotency_key == key).with_for_update()
            sweep_id: str | None = write.conn.execute(query).scalar_one_or_none()
            if sweep_id is None:
                labels = sorted(set(tags))
                body = {"kind": "sweep", "spec": spec, "name": name, "tags": labels}
                body |= {"notes": notes}
                digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
                made = insert_sweep(write, new_sweep(body, digest, num_trials, key))
                assert made is not None
                sweep_id = str(made.id)
                insert_tags(write, sweep_id, labels)
            elif not SweepState(sweep_by_id(write.conn, sweep_id).state).is_finished():
                raise SweepStateConflict(
                    f"sweep {sweep_id} ({name}) was imported before and now goes on; import again "
                    "when it is finished"
                )
            added, replaced = _add(write, sweep_id, found)
            if added or replaced:
                _settle(write, sweep_id, spec, num_trials)
            return ImportedSweep(sweep_by_id(write.conn, sweep_id), added, replaced)

    def imported_sweep(self, key: str) -> Sweep | None:
        """Return the sweep that was imported under this key, if it exists."""
        query = sa.select(sweeps).where(sweeps.c.idempotency_key == key)
        with self._reading() as conn:
            row = conn.execute(query).one_or_none()
        return None if row is None else sweep_of(row)

    def set_imported_result(self, sweep_id: str, result: dict[str, Any]) -> None:
        """Store the analysis of an imported sweep, unless the sweep has been continued."""
        with self._writing() as write:
            row = lock_sweep(write, sweep_id)
            if row is None or not SweepState(row.state).is_finished():
                return
            write.conn.execute(
                sa.update(sweeps)
                .where(sweeps.c.id == sweep_id)
                .values(result=json_safe(result), revision=sweeps.c.revision + 1)
            )
            write.event(sweep_id, "result", json_safe(result))


def _add(write: Write, sweep_id: str, found: Sequence[ImportedTrial]) -> tuple[int, int]:
    """Insert new trials; return how many were added and how many replaced."""
    query = sa.select(trials).where(trials.c.sweep_id == sweep_id)
    known = {(row.config_key, row.seed): row for row in write.conn.execute(query)}
    number = max((row.number for row in known.values()), default=-1) + 1
    states: Counter[TrialState] = Counter()
    left: Counter[str] = Counter()
    replaced = 0
    touched: set[int] = set()
    for trial in found:
        old = known.get((trial.config_key, trial.seed))
        if old is None:
            _insert_point(write, sweep_id, trial)
            _insert_trial(write, sweep_id, number, trial)
            number, point = number + 1, trial.point
        elif old.state == TrialState.FAILED and trial.state != TrialState.FAILED:
            _replace(write, old, trial)
            left[old.state] += 1
            replaced, point = replaced + 1, old.point
        else:
            continue
        states[trial.state] += 1
        touched.add(point)
    if touched:
        count_trials(write, sweep_id, leave=left, enter=states)
        write.conn.execute(
            sa.update(sweeps).where(sweeps.c.id == sweep_id).values(next_trial=number)
        )
        row = lock_sweep(write, sweep_id)
        assert row is not None
        refresh_points(write, row, touched)
    return sum(states.values()) - replaced, replaced


def _insert_point(write: Write, sweep_id: str, trial: ImportedTrial) -> None:
    row = {"sweep_id": sweep_id, "number": trial.point, "params": json_safe(trial.params), "n": 0}
    write.conn.execute(insert_new(write, points), [row])
    insert_values(write, "point", [row])


def _insert_trial(write: Write, sweep_id: str, number: int, trial: ImportedTrial) -> None:
    row = {
        "sweep_id": sweep_id,
        "number": number,
        "point": trial.point,
        "seed": trial.seed,
        "params": json_safe(trial.params),
        "config": json_safe(trial.config),
        "config_key": trial.config_key,
        "role": "",
        "measurement": None,
        "created_at": _micros(trial.attempts[0].started_at),
    }
    write.conn.execute(sa.insert(trials).values(row | _outcome(trial)))
    insert_values(write, "trial", [row])
    _insert_attempts(write, sweep_id, number, trial)
    _announce(write, sweep_id, number, trial.point, trial)


def _replace(write: Write, old: sa.Row[Any], trial: ImportedTrial) -> None:
    mine = (trials.c.sweep_id == old.sweep_id) & (trials.c.number == old.number)
    write.conn.execute(sa.update(trials).where(mine).values(_outcome(trial)))
    _insert_attempts(write, old.sweep_id, old.number, trial)
    _announce(write, old.sweep_id, old.number, old.point, trial)


def _outcome(trial: ImportedTrial) -> dict[str, Any]:
    return {
        "state": trial.state.value,
        "objective": trial.objective,
        "metrics": json_safe(trial.metrics),
        "step": trial.step,
        "num_steps": trial.num_steps,
        "diverged_at_step": trial.diverged_at_step,
        "exit_cause": plain_text(trial.exit_cause),
        "started_at": _micros(trial.attempts[0].started_at),
        "finished_at": _micros(trial.attempts[-1].finished_at),
    }


def _insert_attempts(write: Write, sweep_id: str, number: int, trial: ImportedTrial) -> None:
    mine = (attempts.c.sweep_id == sweep_id) & (attempts.c.trial == number)
    query = sa.select(sa.func.coalesce(sa.func.max(attempts.c.number), 0)).where(mine)
    first = write.conn.execute(query).scalar_one() + 1
    attempt_id = 0
    for index, attempt in enumerate(trial.attempts):
        is_last = index == len(trial.attempts) - 1
        row = {
            "sweep_id": sweep_id,
            "trial": number,
            "number": first + index,
            "token": 0,
            "state": attempt.state.value,
            "started_at": _micros(attempt.started_at),
            "finished_at": _micros(attempt.finished_at),
            "exit_cause": plain_text(attempt.exit_cause),
            "provenance": json_safe(trial.provenance) if is_last else {},
        }
        insert = sa.insert(attempts).values(row).returning(attempts.c.id)
        attempt_id = write.conn.execute(insert).scalar_one()
    _insert_curves(write, sweep_id, attempt_id, trial)


def _insert_curves(write: Write, sweep_id: str, attempt_id: int, trial: ImportedTrial) -> None:
    ids = name_ids(write, sweep_id, "metric", set(trial.curves))
    began, ended = (
        _micros(t) for t in (trial.attempts[0].started_at, trial.attempts[-1].finished_at)
    )
    steps = max(trial.num_steps or trial.step, 1)
    values = sorted((s, name, v) for name, curve in trial.curves.items() for s, v in curve)
    rows = [
        {
            "attempt_id": attempt_id,
            "seq": seq,
            "name_id": ids[plain_text(name)],
            "step": step,
            "value": value,
            # The time of each report is not recorded; this is the best approximation.
            "at": began + (ended - began) * step // steps,
        }
        for seq, (step, name, value) in enumerate(values, start=1)
    ]
    if rows:
        write.conn.execute(sa.insert(metrics), rows)
    mine = attempts.c.id == attempt_id
    write.conn.execute(sa.update(attempts).where(mine).values(last_seq=len(rows)))


def _announce(write: Write, sweep_id: str, number: int, point: int, trial: ImportedTrial) -> None:
    data = {"trial": number, "point": point, "state": trial.state.value}
    write.event(sweep_id, "trial", data | {"objective": trial.objective, "exit_cause": ""})


def _settle(write: Write, sweep_id: str, spec: dict[str, Any], num_trials: int) -> None:
    """Set the sweep's state, counts and reason after its trials are inserted."""
    done = sum(sweep_by_id(write.conn, sweep_id).trials.values())
    began, ended, took = write.conn.execute(
        sa.select(
            sa.func.min(trials.c.started_at),
            sa.func.max(trials.c.finished_at),
            sa.func.sum(trials.c.finished_at - trials.c.started_at),
        ).where(trials.c.sweep_id == sweep_id)
    ).one()
    how_much = "all done" if done >= num_trials else f"{done} of {num_trials} runs"
    move_sweep(
        write,
        sweep_id,
        SweepState.COMPLETE,
        f"imported: {how_much}",
        spec=json_safe(spec),
        num_trials=num_trials,
        started_at=began,
        trial_seconds=float(took) / 1e6,
        lease_until=None,
        owner=None,
    )
    mine = sweeps.c.id == sweep_id
    write.conn.execute(sa.update(sweeps).where(mine).values(finished_at=ended))


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
