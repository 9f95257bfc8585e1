"""Starts and ends many attempts at once, so that a driver's writer keeps up.

The same as ``start_attempt`` and ``finish_attempt``, with one statement for all attempts instead of
one for each.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.errors import SweepStateConflict
from sweeps.records import SUPERSEDED, Attempt, AttemptEnd, Claim, TrialState
from sweeps.store.commands.leases import fenced
from sweeps.store.commands.states import close_attempts, move_trials
from sweeps.store.database.connection import Database, Write, plain_text
from sweeps.store.database.rows import attempt_of
from sweeps.store.database.tables import attempts, sweeps, trials

_OPEN = (TrialState.WAITING.value, TrialState.RUNNING.value)
_COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.DIVERGED)


class AttemptVerbs(Database):
    """The driver's side of attempts, many at a time."""

    def start_attempts(
        self, claim: Claim, numbers: Sequence[int], keys: Mapping[int, str] | None = None
    ) -> dict[int, int]:
        """Record that trials start to run; return the id of each one's attempt by trial number.

        See ``start_attempt``. ``keys`` holds the caller's key of each attempt by trial number: an
        existing attempt with the key is returned, whatever its state, so that a start whose commit
        was uncertain may be repeated. Raises SweepStateConflict if a trial without such an attempt
        is finished.
        """
        if not numbers:
            return {}
        names = keys or {}
        with self._writing() as write:
            row = fenced(write, claim)
            found = _by_key(write, row.id, names)
            numbers = [n for n in dict.fromkeys(numbers) if n not in found]
            _refuse_finished(write, row.id, numbers)
            last = last_attempts(write, row.id, numbers)
            found |= {
                n: a.id
                for n, a in last.items()
                if (a.state, a.token, a.key) == ("running", claim.token, names.get(n))
            }
            fresh = [n for n in numbers if n not in found]
            for number in fresh:
                if number in last and last[number].state == "running":
                    close_attempts(write, row.id, TrialState.FAILED, SUPERSEDED, trial=number)
            rows = [
                {
                    "sweep_id": row.id,
                    "trial": n,
                    "number": last[n].number + 1 if n in last else 1,
                    "key": names.get(n),
                    "token": claim.token,
                    "state": TrialState.RUNNING.value,
                    "started_at": write.now,
                    "provenance": {},
                }
                for n in fresh
            ]
            if rows:
                insert = sa.insert(attempts).returning(attempts.c.id, attempts.c.trial)
                for made in write.conn.execute(insert, rows):
                    found[made.trial] = made.id
                which = trials.c.number.in_(fresh)
                move_trials(write, row, which, TrialState.RUNNING, exit_cause="")
            return found

    def finish_attempts(self, claim: Claim, ends: Sequence[AttemptEnd]) -> None:
        """End attempts and set the resulting states of their trials. See ``finish_attempt``.

        An attempt, or a trial, that has ended already stays as it is.
        """
        if not ends:
            return
        alike: dict[tuple[TrialState, TrialState, str], list[AttemptEnd]] = defaultdict(list)
        for end in ends:
            alike[end.state, end.trial_state, plain_text(end.exit_cause)].append(end)
        with self._writing() as write:
            row = fenced(write, claim)
            for (state, trial_state, cause), group in alike.items():
                finish_alike(write, row, state, trial_state, cause, group)

    def open_attempts(self, sweep_id: str) -> dict[int, list[Attempt]]:
        """Return the attempts, in order, of every unfinished trial, by trial number."""
        query = (
            sa.select(attempts)
            .join(
                trials,
                (trials.c.sweep_id == attempts.c.sweep_id) & (trials.c.number == attempts.c.trial),
            )
            .where(attempts.c.sweep_id == sweep_id, trials.c.state.in_(_OPEN))
            .order_by(attempts.c.trial, attempts.c.number)
        )
        found: dict[int, list[Attempt]] = defaultdict(list)
        with self._reading() as conn:
            for row in conn.execute(query):
                found[row.trial].append(attempt_of(row))
        return dict(found)


def finish_alike(
    write: Write,
    sweep: sa.Row[Any],
    state: TrialState,
    trial_state: TrialState,
    cause: str,
    group: Sequence[AttemptEnd],
) -> None:
    ended = write.conn.execute(
        sa.update(attempts)
        .where(
            attempts.c.id.in_([end.attempt_id for end in group]),
            attempts.c.state == TrialState.RUNNING.value,
        )
        .values(state=state.value, exit_cause=cause, finished_at=write.now, unmirrored=True)
        .returning(attempts.c.trial, attempts.c.started_at)
    ).all()
    still_open = trials.c.state.in_(_OPEN)
    which = trials.c.number.in_([one.trial for one in ended]) & still_open
    moved = set(move_trials(write, sweep, which, trial_state, exit_cause=cause))
    if trial_state in _COUNTED:
        spent = sum(write.now - one.started_at for one in ended if one.trial in moved) / 1e6
        write.conn.execute(
            sa.update(sweeps)
            .where(sweeps.c.id == sweep.id)
            .values(trial_seconds=sweeps.c.trial_seconds + spent)
        )


def _by_key(write: Write, sweep_id: str, keys: Mapping[int, str]) -> dict[int, int]:
    """Return the existing attempts with these keys, by trial number."""
    if not keys:
        return {}
    query = sa.select(attempts.c.trial, attempts.c.id).where(
        attempts.c.sweep_id == sweep_id, attempts.c.key.in_(list(keys.values()))
    )
    return {row.trial: row.id for row in write.conn.execute(query)}


def _refuse_finished(write: Write, sweep_id: str, numbers: Sequence[int]) -> None:
    query = sa.select(trials.c.number, trials.c.state).where(
        trials.c.sweep_id == sweep_id, trials.c.number.in_(numbers)
    )
    for trial in write.conn.execute(query):
        if TrialState(trial.state).is_finished():
            raise SweepStateConflict(
                f"trial {trial.number} of sweep {sweep_id} is {trial.state}: it cannot start again"
            )


def last_attempts(write: Write, sweep_id: str, numbers: Sequence[int]) -> dict[int, Any]:
    query = (
        sa.select(attempts)
        .where(attempts.c.sweep_id == sweep_id, attempts.c.trial.in_(numbers))
        .order_by(attempts.c.number)
    )
    return {row.trial: row for row in write.conn.execute(query)}
