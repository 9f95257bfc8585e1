"""Agents outside: lease waiting trials to them, take in their reports, find those that fell silent.

One transaction serves any number of requests, so that thousands a second can be written.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from sweeps.errors import NotExternal, SweepNotFound, SweepsError
from sweeps.records import SweepState, Trial, TrialState
from sweeps.store.commands.agent_reports import Intake
from sweeps.store.commands.agent_requests import (
    AgentRequest,
    Answer,
    Ask,
    Handout,
    LapsedLease,
    Leased,
    Tell,
)
from sweeps.store.commands.attempts import last_attempts
from sweeps.store.commands.states import move_trials
from sweeps.store.database.connection import Database, Write, json_safe, plain_text
from sweeps.store.database.rows import time_of, trial_of
from sweeps.store.database.tables import attempts, events, sweeps, trials
from worker.config.training import EXTERNAL

#: What agents' requests read of a sweep: its spec and its result may be long.
_SWEEP: tuple[sa.ColumnElement[Any], ...] = (
    sweeps.c.id,
    sweeps.c.state,
    sweeps.c.reason,
    sweeps.c.requested,
    sweeps.c.objective_metric,
    sweeps.c.maximize,
    sweeps.c.n_waiting,
    sweeps.c.n_running,
    sweeps.c.spec["objectives"].label("objectives"),
    sweeps.c.spec["training"].as_string().label("training"),
    sweeps.c.spec["concurrency"].as_integer().label("concurrency"),
)
#: States in which trials are handed out: a queued one waits for a driver, its trials need none.
_OPEN = (SweepState.QUEUED, SweepState.RUNNING)
#: More trials at once than any sweep has.
MAX_TRIALS = 2**31
#: Trials that one transaction hands out: SQLite takes 32,766 parameters.
_MOST_AT_ONCE = 10_000
#: Events that ``touched`` reads at a time.
_MAX_EVENTS = 5000


class AgentVerbs(Database):
    """Verbs of agents, and of the drivers that look after their trials."""

    def serve_agents(self, requests: Sequence[AgentRequest]) -> list[Answer | SweepsError]:
        """Answer requests of agents in one transaction, each with its answer or its refusal.

        Reports and endings count before questions are answered. Every request may be repeated:
        it is answered as it was, and nothing is recorded twice.
        """
        found: dict[int, Answer | SweepsError] = {}
        with self._writing() as write:
            rows = _locked(write, {request.sweep_id for request in requests})
            served = []
            for index, request in enumerate(requests):
                row = rows.get(request.sweep_id)
                if row is None:
                    found[index] = SweepNotFound(request.sweep_id)
                elif row.training != EXTERNAL:
                    found[index] = NotExternal(row.id, row.training or "images")
                else:
                    served.append((index, request))
            self._take_in(write, rows, served, found)
            asks: dict[str, dict[int, Ask]] = {}
            for index, request in served:
                if isinstance(request, Ask):
                    asks.setdefault(request.sweep_id, {})[index] = request
            for sweep_id, mine in asks.items():
                found |= self._hand_out(write, sweep_id, mine)
        return [found[index] for index in range(len(requests))]

    def renew_leases(self) -> int:
        """Give every agent the time of its lease anew; return how many there are.

        For a service that starts: nobody could reach it before.
        """
        until = self._clock() + _microseconds(attempts.c.lease_seconds)
        held = sa.update(attempts).where(
            attempts.c.state == TrialState.RUNNING.value, attempts.c.lease_seconds.is_not(None)
        )
        with self._writing() as write:
            return write.conn.execute(held.values(lease_until=until)).rowcount

    def lapsed_leases(self, sweep_ids: Collection[str]) -> list[LapsedLease]:
        """Return the trials of these sweeps whose agents were silent for longer than their lease.

        A trial that has a lease without an end, from before the clock was set back, is among them.
        """
        clock = self._clock()
        now = sa.literal(clock) if isinstance(clock, int) else clock
        query = sa.select(
            attempts.c.sweep_id,
            attempts.c.trial,
            attempts.c.id,
            attempts.c.agent,
            attempts.c.lease_seconds,
            (attempts.c.lease_seconds + (now - attempts.c.lease_until) / 1e6).label("silent"),
        ).where(
            attempts.c.sweep_id.in_(list(sweep_ids)),
            attempts.c.state == TrialState.RUNNING.value,
            attempts.c.lease_seconds.is_not(None),
            self._is_lapsed(attempts.c.lease_until),
        )
        with self._reading() as conn:
            rows = conn.execute(query).all()
        return [
            LapsedLease(
                sweep_id=row.sweep_id,
                number=row.trial,
                attempt_id=row.id,
                agent=row.agent or "",
                seconds=float(row.silent),
                lease_seconds=row.lease_seconds,
            )
            for row in rows
        ]

    def touched(self, sweep_ids: Collection[str], after: int) -> tuple[int, dict[str, set[int]]]:
        """Return the last id of the events above ``after``, and the trials of these sweeps in them.

        By sweep. Read again with the id until it does not grow.
        """
        query = (
            sa.select(
                events.c.id, events.c.sweep_id, events.c.data["trial"].as_integer().label("n")
            )
            .where(events.c.sweep_id.in_(list(sweep_ids)), events.c.id > after)
            .order_by(events.c.id)
            .limit(_MAX_EVENTS)
        )
        found: dict[str, set[int]] = {}
        with self._reading() as conn:
            for row in conn.execute(query):
                after = row.id
                if row.n is not None:
                    found.setdefault(row.sweep_id, set()).add(row.n)
        return after, found

    # --- Inside -------------------------------------------------------------------------------

    def _take_in(
        self,
        write: Write,
        rows: dict[str, sa.Row[Any]],
        served: Sequence[tuple[int, AgentRequest]],
        found: dict[int, Answer | SweepsError],
    ) -> None:
        """Take in what agents report and tell; put the answers, or refusals, into ``found``."""
        news = [(i, request) for i, request in served if not isinstance(request, Ask)]
        if not news:
            return
        mine = {request.sweep_id: rows[request.sweep_id] for _, request in news}
        intake = Intake(write, mine, [request for _, request in news])
        for index, request in news:
            try:
                if isinstance(request, Tell):
                    found[index] = intake.end(request)
                else:
                    found[index] = intake.hear(request)
            except SweepsError as error:
                found[index] = error
        intake.write(self._clock())

    def _hand_out(self, write: Write, sweep_id: str, asks: dict[int, Ask]) -> dict[int, Handout]:
        """Answer questions for trials of one sweep, first come, first served."""
        # Read anew: an ending may just have changed the counts.
        (row,) = write.conn.execute(sa.select(*_SWEEP).where(sweeps.c.id == sweep_id)).all()
        found: dict[int, Handout] = {}
        state, room, waiting = SweepState(row.state), _room(row), min(row.n_waiting, _MOST_AT_ONCE)
        granted: dict[int, int] = {}
        again: dict[str, int] = {}
        for index, ask in asks.items():
            held = self._asked_before(write, ask)
            if held:
                found[index] = Handout(held, "", state)
            elif ask.key is not None and ask.key in again:
                # The same question twice in one transaction: the first answer is for both.
                continue
            elif reason := _why_none(row, room, waiting):
                found[index] = Handout([], reason, state)
            else:
                granted[index] = min(ask.count, room, waiting)
                room, waiting = room - granted[index], waiting - granted[index]
                if ask.key is not None:
                    again[ask.key] = index
        leased = self._lease(write, row, [(asks[i], count) for i, count in granted.items()])
        found |= {i: Handout(mine, "", state) for i, mine in zip(granted, leased, strict=True)}
        for index in asks.keys() - found.keys():
            found[index] = found[again[str(asks[index].key)]]
        return found

    def _asked_before(self, write: Write, ask: Ask) -> list[Leased]:
        """Return the trials that the same question was answered with, as far as they still run."""
        if ask.key is None:
            return []
        query = (
            sa.select(attempts.c.key.label("lease"), attempts.c.lease_seconds, trials)
            .join(
                trials,
                (trials.c.sweep_id == attempts.c.sweep_id) & (trials.c.number == attempts.c.trial),
            )
            .where(
                attempts.c.sweep_id == ask.sweep_id,
                attempts.c.ask_key == plain_text(ask.key),
                attempts.c.state == TrialState.RUNNING.value,
            )
            .order_by(attempts.c.id)
        )
        held = [
            Leased(trial_of(row), row.lease, row.lease_seconds) for row in write.conn.execute(query)
        ]
        if held:
            write.conn.execute(
                sa.update(attempts)
                .where(
                    attempts.c.sweep_id == ask.sweep_id,
                    attempts.c.key.in_([leased.lease for leased in held]),
                )
                .values(lease_until=self._clock() + _microseconds(attempts.c.lease_seconds))
            )
        return held

    def _lease(
        self, write: Write, row: sa.Row[Any], granted: Sequence[tuple[Ask, int]]
    ) -> list[list[Leased]]:
        """Start attempts at the trials that have waited longest: so many for each question."""
        total = sum(count for _, count in granted)
        if not total:
            return [[] for _ in granted]
        waiting = (
            sa.select(trials)
            .where(trials.c.sweep_id == row.id, trials.c.state == TrialState.WAITING.value)
            .order_by(trials.c.number)
            .limit(total)
        )
        chosen = [_running(trial_of(trial), write.now) for trial in write.conn.execute(waiting)]
        numbers = [trial.number for trial in chosen]
        last = last_attempts(write, row.id, numbers)
        leased: list[list[Leased]] = []
        rows = []
        rest = iter(chosen)
        for ask, count in granted:
            mine = [
                Leased(trial, secrets.token_hex(16), ask.lease_seconds)
                for trial in islice(rest, count)
            ]
            leased.append(mine)
            rows += [_attempt(write, ask, one, last.get(one.trial.number)) for one in mine]
        seconds = sa.cast(sa.bindparam("microseconds"), sa.BigInteger)
        write.conn.execute(sa.insert(attempts).values(lease_until=self._clock() + seconds), rows)
        move_trials(write, row, trials.c.number.in_(numbers), TrialState.RUNNING, exit_cause="")
        return leased


def _locked(write: Write, sweep_ids: Collection[str]) -> dict[str, sa.Row[Any]]:
    """Lock sweeps, in the order of their ids so that no two writers wait for each other."""
    query = sa.select(*_SWEEP).where(sweeps.c.id.in_(sorted(sweep_ids))).order_by(sweeps.c.id)
    rows: Sequence[sa.Row[Any]] = write.conn.execute(query.with_for_update()).all()
    return {row.id: row for row in rows}


def _room(row: sa.Row[Any]) -> int:
    """Return how many trials may start beside those that run."""
    return MAX_TRIALS if row.concurrency is None else row.concurrency - row.n_running


def _why_none(row: sa.Row[Any], room: int, waiting: int) -> str:
    """Return why a sweep hands out no trial now; "" if it does."""
    state = SweepState(row.state)
    because = f": {row.reason}" if row.reason and state.is_finished() else ""
    if state not in _OPEN:
        return f"the sweep is {state.value}{because}"
    if row.requested != "none":
        return f"the sweep is about to be {_SOON[row.requested]}"
    if room <= 0:
        return f"{row.concurrency} trials run, as many as concurrency allows"
    if waiting:
        return ""
    running = row.n_running + row.n_waiting
    return f"no trial waits, {running} run" if running else "no trial waits yet"


_SOON = {"pause": "paused", "cancel": "cancelled", "delete": "deleted"}


def _attempt(write: Write, ask: Ask, leased: Leased, last: sa.Row[Any] | None) -> dict[str, Any]:
    agent = plain_text(ask.agent)
    return {
        "sweep_id": ask.sweep_id,
        "trial": leased.trial.number,
        "number": 1 if last is None else last.number + 1,
        "key": leased.lease,
        "token": 0,
        "state": TrialState.RUNNING.value,
        "started_at": write.now,
        "provenance": json_safe({"agent": agent}),
        "agent": agent,
        "ask_key": None if ask.key is None else plain_text(ask.key),
        "lease_seconds": ask.lease_seconds,
        "microseconds": int(ask.lease_seconds * 1e6),
    }


def _running(trial: Trial, now: int) -> Trial:
    """Return a waiting trial as it is from now on."""
    started_at = trial.started_at or time_of(now)
    return replace(trial, state=TrialState.RUNNING, exit_cause="", started_at=started_at)


def _microseconds(seconds: sa.ColumnElement[float]) -> sa.ColumnElement[int]:
    return sa.cast(seconds * 1e6, sa.BigInteger)
