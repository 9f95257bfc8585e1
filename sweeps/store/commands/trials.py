"""Writes of drivers: add trials, start and finish attempts, store results.

Every write checks the claim's token, and may be repeated after StoreUnavailable without writing
twice.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from sweeps.errors import SweepStateConflict, TrialNotFound
from sweeps.records import SUPERSEDED, Attempt, Claim, NewTrial, Trial, TrialState
from sweeps.store.commands.leases import fenced
from sweeps.store.commands.states import close_attempts, count_trials, move_trials, refresh_points
from sweeps.store.database.connection import Database, Write, json_safe, plain_text
from sweeps.store.database.params import Owner, value_rows
from sweeps.store.database.rows import attempt_of, trial_of
from sweeps.store.database.tables import attempts, param_values, points, sweeps, trials


class TrialVerbs(Database):
    """Verbs with which drivers write trials and their attempts."""

    def add_trials(self, claim: Claim, new: Sequence[NewTrial]) -> list[Trial]:
        """Add trials, in order; return each with its number.

        If the sweep already has a configuration and seed, the existing trial is returned, whatever
        its state.
        """
        with self._writing() as write:
            row = fenced(write, claim)
            _insert_points(write, row.id, new)
            added = _insert_trials(write, row, new)
            keys = [(trial.config_key, trial.seed) for trial in new]
            by_key = {(t.config_key, t.seed): t for t in _trials_by_key(write, row.id, keys)}
            for trial in added:
                data = {"trial": trial[0], "point": trial[1], "state": TrialState.WAITING.value}
                write.event(row.id, "trial", data)
            if added:
                count_trials(write, row.id, leave={}, enter={TrialState.WAITING: len(added)})
                refresh_points(write, row, {point for _, point in added})
            return [by_key[key] for key in keys]

    def start_attempt(self, claim: Claim, number: int) -> Attempt:
        """Record that a trial starts to run; return the attempt to report under.

        Returns the attempt this driver already has running on the trial, if any. Raises
        SweepStateConflict for a trial that is finished.
        """
        with self._writing() as write:
            row = fenced(write, claim)
            trial = trial_for_update(write, row.id, number)
            if TrialState(trial.state).is_finished():
                raise SweepStateConflict(
                    f"trial {number} of sweep {row.id} is {trial.state}: it cannot start again"
                )
            last = _last_attempt(write, row.id, number)
            if last is not None and (last.state, last.token) == ("running", claim.token):
                return attempt_of(last)
            close_attempts(write, row.id, TrialState.FAILED, SUPERSEDED, trial=number)
            attempt = write.conn.execute(
                sa.insert(attempts)
                .values(
                    sweep_id=row.id,
                    trial=number,
                    number=1 if last is None else last.number + 1,
                    token=claim.token,
                    state=TrialState.RUNNING.value,
                    started_at=write.now,
                    provenance={},
                )
                .returning(attempts)
            ).one()
            move_trials(write, row, trials.c.number == number, TrialState.RUNNING, exit_cause="")
            return attempt_of(attempt)

    def finish_attempt(
        self,
        claim: Claim,
        number: int,
        attempt_id: int,
        state: TrialState,
        exit_cause: str,
        *,
        trial_state: TrialState,
        objective: float | None = None,
    ) -> None:
        """End an attempt and set its trial's state (waiting: it will be tried again).

        ``objective`` replaces the last reported one if it is finite.
        """
        cause = plain_text(exit_cause)
        with self._writing() as write:
            row = fenced(write, claim)
            trial = trial_for_update(write, row.id, number)
            ended = write.conn.execute(
                sa.update(attempts)
                .where(attempts.c.id == attempt_id, attempts.c.state == TrialState.RUNNING.value)
                .values(state=state.value, exit_cause=cause, finished_at=write.now, unmirrored=True)
                .returning(attempts.c.started_at)
            ).one_or_none()
            if ended is None or TrialState(trial.state).is_finished():
                return
            values: dict[str, Any] = {"exit_cause": cause, "objective": trial.objective}
            if objective is not None and math.isfinite(objective):
                values["objective"] = objective
            move_trials(write, row, trials.c.number == number, trial_state, **values)
            if trial_state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.DIVERGED):
                seconds = (write.now - ended.started_at) / 1e6
                write.conn.execute(
                    sa.update(sweeps)
                    .where(sweeps.c.id == row.id)
                    .values(trial_seconds=sweeps.c.trial_seconds + seconds)
                )

    def cancel_waiting(self, claim: Claim, reason: str) -> list[int]:
        """Cancel every trial that waits; return their numbers."""
        return self._end_waiting(claim, TrialState.CANCELLED, reason)

    def fail_waiting(self, claim: Claim, reason: str) -> list[int]:
        """Fail every trial that waits; return their numbers."""
        return self._end_waiting(claim, TrialState.FAILED, reason)

    def finish_waiting(self, claim: Claim, number: int, state: TrialState, reason: str) -> None:
        """End a waiting trial without a further attempt. No change if it does not wait."""
        with self._writing() as write:
            row = fenced(write, claim)
            which = (trials.c.number == number) & (trials.c.state == TrialState.WAITING.value)
            move_trials(write, row, which, state, exit_cause=plain_text(reason))

    def set_result(self, claim: Claim, result: dict[str, Any]) -> None:
        """Store the result of analysis or matching, replacing the earlier one."""
        with self._writing() as write:
            row = fenced(write, claim)
            write.conn.execute(
                sa.update(sweeps)
                .where(sweeps.c.id == row.id)
                .values(result=json_safe(result), revision=sweeps.c.revision + 1)
            )
            write.event(row.id, "result", json_safe(result))

    def set_reason(self, claim: Claim, reason: str) -> None:
        """Set what a running sweep waits for, as in "waiting for resources"; "" for nothing."""
        with self._writing() as write:
            row = fenced(write, claim)
            if row.reason == reason:
                return
            write.conn.execute(
                sa.update(sweeps)
                .where(sweeps.c.id == row.id)
                .values(reason=plain_text(reason), revision=sweeps.c.revision + 1)
            )
            write.event(row.id, "sweep", {"state": row.state, "reason": reason})

    def _end_waiting(self, claim: Claim, state: TrialState, reason: str) -> list[int]:
        with self._writing() as write:
            row = fenced(write, claim)
            waiting = trials.c.state == TrialState.WAITING.value
            return move_trials(write, row, waiting, state, exit_cause=plain_text(reason))


def insert_new(write: Write, table: sa.Table) -> Any:
    """Return an INSERT that skips existing rows, in the database's dialect."""
    insert = sqlite.insert if write.conn.dialect.name == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def trial_for_update(write: Write, sweep_id: str, number: int) -> sa.Row[Any]:
    """Return a trial's row, under the lock on its sweep. Raises TrialNotFound."""
    query = sa.select(trials).where(trials.c.sweep_id == sweep_id, trials.c.number == number)
    row = write.conn.execute(query).one_or_none()
    if row is None:
        raise TrialNotFound(sweep_id, number)
    return row


def _last_attempt(write: Write, sweep_id: str, number: int) -> sa.Row[Any] | None:
    mine = sa.select(attempts).where(attempts.c.sweep_id == sweep_id, attempts.c.trial == number)
    return write.conn.execute(mine.order_by(attempts.c.number.desc()).limit(1)).one_or_none()


def _insert_points(write: Write, sweep_id: str, new: Sequence[NewTrial]) -> None:
    first = {trial.point: trial for trial in reversed(new)}
    rows = [
        {"sweep_id": sweep_id, "number": number, "params": json_safe(trial.params), "n": 0}
        for number, trial in sorted(first.items())
    ]
    if rows:
        write.conn.execute(insert_new(write, points), rows)
        insert_values(write, "point", rows)


def insert_values(write: Write, owner: Owner, rows: Sequence[dict[str, Any]]) -> None:
    """Insert the sampled values of rows of trials or points, by which listings are sorted."""
    values = [value for row in rows for value in value_rows(owner, row)]
    if values:
        write.conn.execute(insert_new(write, param_values), values)


def _insert_trials(
    write: Write, sweep: sa.Row[Any], new: Sequence[NewTrial]
) -> list[tuple[int, int]]:
    """Insert those that the sweep does not have; return their numbers and points."""
    keys = [(trial.config_key, trial.seed) for trial in new]
    known = {(t.config_key, t.seed) for t in _trials_by_key(write, sweep.id, keys)}
    rows: list[dict[str, Any]] = []
    for trial in new:
        if (trial.config_key, trial.seed) in known:
            continue
        known.add((trial.config_key, trial.seed))
        rows.append(_trial_row(write, sweep, sweep.next_trial + len(rows), trial))
    if rows:
        write.conn.execute(sa.insert(trials), rows)
        insert_values(write, "trial", rows)
        write.conn.execute(
            sa.update(sweeps)
            .where(sweeps.c.id == sweep.id)
            .values(next_trial=sweep.next_trial + len(rows))
        )
    return [(row["number"], row["point"]) for row in rows]


def _trial_row(write: Write, sweep: sa.Row[Any], number: int, trial: NewTrial) -> dict[str, Any]:
    return {
        "sweep_id": sweep.id,
        "number": number,
        "point": trial.point,
        "seed": trial.seed,
        "state": TrialState.WAITING.value,
        "params": json_safe(trial.params),
        "config": json_safe(trial.config),
        "config_key": trial.config_key,
        "role": trial.role,
        "measurement": json_safe(trial.measurement),
        "metrics": {},
        "created_at": write.now,
    }


def _trials_by_key(write: Write, sweep_id: str, keys: Sequence[tuple[str, int]]) -> Iterable[Trial]:
    wanted = set(keys)
    names = sorted({key for key, _ in wanted})
    for start in range(0, len(names), 500):
        some = trials.c.config_key.in_(names[start : start + 500])
        query = sa.select(trials).where(trials.c.sweep_id == sweep_id, some)
        for row in write.conn.execute(query):
            if (row.config_key, row.seed) in wanted:
                yield trial_of(row)
