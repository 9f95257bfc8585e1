"""Claims on sweeps: a lease, and a fencing token that excludes earlier drivers."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.errors import LeaseLost
from sweeps.records import (
    RUNNER_LOST,
    Claim,
    Demand,
    Kind,
    Request,
    Runner,
    Sweep,
    SweepState,
    TrialState,
    resources_of,
)
from sweeps.store.commands.states import close_attempts, lock_sweep, move_sweep, move_trials
from sweeps.store.commands.sweeps import carry_out, left_of
from sweeps.store.database.connection import Database, Write, json_safe, microseconds
from sweeps.store.database.rows import time_of
from sweeps.store.database.tables import attempts, metrics, runners, sweeps, trials
from worker.config.training import EXTERNAL

#: States to which a runner releases a sweep whose driver died.
_TO_GO_ON = (SweepState.QUEUED, SweepState.FAILED)
#: How long a runner is listed after its last report.
_FORGET_SECONDS = 86_400.0

_IS_EXTERNAL = sa.func.coalesce(sweeps.c.spec["training"].as_string(), "") == EXTERNAL

#: Built once, because every submission executes it.
_RUNNERS = (
    sa.select(runners).where(runners.c.at >= sa.bindparam("since")).order_by(runners.c.at.desc())
)


class ClaimVerbs(Database):
    """Verbs of runners: claim, renew, release."""

    def claim(
        self,
        owner: str,
        lease_seconds: float = 15.0,
        kinds: Sequence[Kind] = ("sweep", "match"),
        *,
        driven: Collection[str] = (),
        external: bool = False,
    ) -> Claim | None:
        """Claim the sweep that has waited longest, or one whose driver's lease has expired.

        ``external``: one whose trials are run outside, else only others. Its running trials stay
        with their agents.

        Trials that an earlier driver left running, or cut off at the end of a budget, wait again;
        their attempts end as failed, "lost". ``driven`` are ids of sweeps whose drivers are known
        to be alive: they are not claimed although their leases may expire while a disk does not
        respond. Returns None if no sweep needs a driver.
        """
        with self._writing() as write:
            self._carry_out_wishes(write)
            free = self._first_free(write, kinds, driven, external=external)
            if free is None:
                return None
            row = self._take(write, free.id, owner, lease_seconds)
            # Cut off by a budget that has been extended since, or is spent again soon.
            stopped = {TrialState.CANCELLED.value}
            if not external:
                # Trials of agents go on without their driver.
                if free.lease_until is not None:
                    _close_lost(write, free)
                stopped.add(TrialState.RUNNING.value)
            move_trials(write, row, trials.c.state.in_(stopped), TrialState.WAITING)
            write.event(row.id, "sweep", {"state": row.state, "reason": "", "owner": owner})
            return Claim(row.id, row.token, owner)

    def renew(self, claim: Claim, lease_seconds: float = 15.0) -> None:
        """Extend the lease. Raises LeaseLost if the sweep was taken or ended."""
        with self._writing() as write:
            lease_until = self._clock() + int(lease_seconds * 1e6)
            renewed = write.conn.execute(
                sa.update(sweeps).where(*_held(claim)).values(lease_until=lease_until)
            )
            if not renewed.rowcount:
                raise LeaseLost(claim.sweep_id, claim.token)

    def requested(self, claim: Claim) -> Request:
        """Return the user's request for the sweep: "none", "pause" or "cancel".

        Raises LeaseLost.
        """
        with self._reading() as conn:
            wish: Request | None = conn.execute(
                sa.select(sweeps.c.requested).where(*_held(claim))
            ).scalar_one_or_none()
        if wish is None:
            raise LeaseLost(claim.sweep_id, claim.token)
        return wish

    def release(
        self, claim: Claim, state: SweepState, reason: str, *, seen: Sweep | None = None
    ) -> bool:
        """Release the sweep: finished, paused, or queued for another runner.

        Running trials wait again if the sweep may continue, else they end with it; agents keep
        theirs while it is queued. If users have
        sent a request, extended the sweep, or retried failed trials since it was ``seen``, nothing
        changes and the result is False. Without ``seen``, for a driver that died, a sweep that
        would continue is paused or cancelled if users requested it. Raises LeaseLost; repeating a
        successful release changes nothing.
        """
        with self._writing() as write:
            row = lock_sweep(write, claim.sweep_id)
            if row is not None and (row.token, row.state) == (claim.token, state.value):
                return True
            row = fenced(write, claim)
            if seen is not None and _was_changed(row, seen):
                return False
            if seen is None and row.requested != "none" and state in _TO_GO_ON:
                carry_out(write, row, row.requested)
                return True
            _end_trials(write, row, state, reason)
            move_sweep(
                write,
                row.id,
                state,
                reason,
                requested=left_of(row.requested),
                lease_until=None,
                owner=None,
                queued_at=write.now,
            )
            return True

    def explain_queued(self, reason: str, after_seconds: float = 2.0) -> int:
        """Set the reason of sweeps queued for longer than this; return how many were changed."""
        waited = sa.and_(
            sweeps.c.state == SweepState.QUEUED.value,
            sweeps.c.queued_at < microseconds() - int(after_seconds * 1e6),
            sweeps.c.reason != reason,
            ~_IS_EXTERNAL,
        )
        with self._reading() as conn:
            # Called every second, and usually there is nothing to write.
            if conn.execute(sa.select(sweeps.c.id).where(waited).limit(1)).first() is None:
                return 0
        with self._writing() as write:
            values = {"reason": reason, "revision": sweeps.c.revision + 1}
            changed = sa.update(sweeps).where(waited).values(values).returning(sweeps.c.id)
            ids = list(write.conn.execute(changed).scalars())
            for sweep_id in ids:
                write.event(sweep_id, "sweep", {"state": "queued", "reason": reason})
            return len(ids)

    def report_runner(self, owner: str, info: dict[str, Any]) -> None:
        """Record that this runner is alive, and the resources of its cluster."""
        with self._writing() as write:
            # A runner has a new name at every start, so rows of ended runners are deleted.
            gone = runners.c.at < write.now - int(_FORGET_SECONDS * 1e6)
            write.conn.execute(sa.delete(runners).where((runners.c.owner == owner) | gone))
            row = {"owner": owner, "at": write.now, "info": json_safe(info)}
            write.conn.execute(sa.insert(runners).values(row))

    def runners(self, within_seconds: float = 60.0) -> list[Runner]:
        """Return the runners that reported lately, newest first."""
        since = microseconds() - int(within_seconds * 1e6)
        with self._reading() as conn:
            found = conn.execute(_RUNNERS, {"since": since})
            return [Runner(row.owner, time_of(row.at), row.info) for row in found]

    def demands(self) -> list[Demand]:
        """Return the running and wanted trials of each driven sweep that is to continue."""
        last = (
            sa.select(sa.func.max(trials.c.started_at))
            .where(trials.c.sweep_id == sweeps.c.id)
            .scalar_subquery()
        )
        query = sa.select(
            sweeps.c.id, sweeps.c.spec, sweeps.c.n_waiting, sweeps.c.n_running, last.label("last")
        ).where(
            sweeps.c.state == SweepState.RUNNING.value,
            sweeps.c.requested == "none",
            ~self._is_lapsed(sweeps.c.lease_until),
        )
        with self._reading() as conn:
            return [_demand(row) for row in conn.execute(query.where(~_IS_EXTERNAL))]

    def wishes(self, claims: Collection[Claim]) -> dict[str, Request]:
        """Return what users request of claimed sweeps, by sweep; those lost are missing."""
        query = sa.select(sweeps.c.id, sweeps.c.token, sweeps.c.requested).where(
            sweeps.c.id.in_([claim.sweep_id for claim in claims]),
            sweeps.c.state == SweepState.RUNNING.value,
        )
        with self._reading() as conn:
            held = {(row.id, row.token): row.requested for row in conn.execute(query)}
        named = {claim: held.get((claim.sweep_id, claim.token)) for claim in claims}
        return {claim.sweep_id: wish for claim, wish in named.items() if wish is not None}

    def has_external(self) -> bool:
        """Whether a sweep of agents waits for a driver, or has one."""
        query = sa.select(sweeps.c.id).where(
            sweeps.c.state.in_([SweepState.QUEUED.value, SweepState.RUNNING.value]), _IS_EXTERNAL
        )
        with self._reading() as conn:
            return conn.execute(query.limit(1)).first() is not None

    def _first_free(
        self, write: Write, kinds: Sequence[Kind], driven: Collection[str], *, external: bool
    ) -> sa.Row[Any, Any, Any] | None:
        """Lock a sweep that needs a driver; other runners skip it."""
        is_running = sweeps.c.state == SweepState.RUNNING.value
        lapsed = sa.and_(is_running, self._is_lapsed(sweeps.c.lease_until))
        first = (
            sa.select(sweeps.c.id, sweeps.c.lease_until, sweeps.c.owner)
            .where(sa.or_(sweeps.c.state == SweepState.QUEUED.value, lapsed))
            .where(sweeps.c.kind.in_(kinds), sweeps.c.id.not_in(driven))
            .where(_IS_EXTERNAL if external else ~_IS_EXTERNAL)
            .order_by(sweeps.c.queued_at, sweeps.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        return write.conn.execute(first).one_or_none()

    def _take(self, write: Write, sweep_id: str, owner: str, lease_seconds: float) -> sa.Row[Any]:
        return write.conn.execute(
            sa.update(sweeps)
            .where(sweeps.c.id == sweep_id)
            .values(
                state=SweepState.RUNNING.value,
                reason="",
                owner=owner,
                token=sweeps.c.token + 1,
                lease_until=self._clock() + int(lease_seconds * 1e6),
                started_at=sa.func.coalesce(sweeps.c.started_at, write.now),
                finished_at=None,
                revision=sweeps.c.revision + 1,
            )
            .returning(sweeps)
        ).one()

    def _carry_out_wishes(self, write: Write) -> None:
        """Pause or cancel sweeps whose driver died before it carried out the request."""
        abandoned = (
            sa.select(sweeps)
            .where(
                sweeps.c.state == SweepState.RUNNING.value,
                sweeps.c.requested != "none",
                self._is_lapsed(sweeps.c.lease_until),
            )
            .with_for_update(skip_locked=True)
        )
        for row in write.conn.execute(abandoned).all():
            carry_out(write, row, row.requested)


def _close_lost(write: Write, lapsed: sa.Row[Any, Any, Any]) -> None:
    """End the attempts of a sweep whose lease ran out, and say what is known of their end.

    Only a runner renews leases: it has stopped, while its driver may have gone on.
    """
    running = (attempts.c.sweep_id == lapsed.id) & (attempts.c.state == TrialState.RUNNING.value)
    latest = (metrics.c.attempt_id == attempts.c.id) & (metrics.c.seq == attempts.c.last_seq)
    query = sa.select(sa.func.max(metrics.c.at)).select_from(attempts.join(metrics, latest))
    heard: int | None = write.conn.scalar(query.where(running))
    driver = "no report of its driver is known"
    if heard is not None:
        driver = f"its driver reported until {time_of(heard):%H:%M:%S} UTC"
    lease = f"the lease of {lapsed.owner} ran out at {time_of(lapsed.lease_until):%H:%M:%S} UTC"
    end = max(lapsed.lease_until, heard or 0)
    cause = f"{RUNNER_LOST}: {lease}, {driver}"
    close_attempts(write, lapsed.id, TrialState.FAILED, cause, lease_until=end)


def _demand(row: sa.Row[Any, Any, Any, Any, Any]) -> Demand:
    resources = resources_of(row.spec)
    return Demand(
        sweep_id=row.id,
        cpus=resources.cpus,
        gpus=resources.gpus,
        concurrency=row.spec.get("concurrency"),
        waiting=row.n_waiting,
        running=row.n_running,
        last_start=row.last or 0,
    )


def fenced(write: Write, claim: Claim) -> sa.Row[Any]:
    """Lock the claim's sweep and return its row. Raises LeaseLost if the token is old."""
    row = lock_sweep(write, claim.sweep_id)
    if row is None or (row.token, row.state) != (claim.token, SweepState.RUNNING.value):
        raise LeaseLost(claim.sweep_id, claim.token)
    return row


def _held(claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        sweeps.c.id == claim.sweep_id,
        sweeps.c.token == claim.token,
        sweeps.c.state == SweepState.RUNNING.value,
    )


def _was_changed(row: sa.Row[Any], seen: Sweep) -> bool:
    """Whether users changed a sweep since it was read."""
    retried = row.n_failed < seen.trials[TrialState.FAILED]
    return retried or (row.requested, row.spec) != (seen.requested, seen.spec)


def _end_trials(write: Write, row: sa.Row[Any], state: SweepState, reason: str) -> None:
    running = trials.c.state == TrialState.RUNNING.value
    cause = f"the sweep ended: {state.value}" + (f", {reason}" if reason else "")
    if state in (SweepState.COMPLETE, SweepState.CANCELLED):
        still_open = running | (trials.c.state == TrialState.WAITING.value)
        close_attempts(write, row.id, TrialState.CANCELLED, cause)
        move_trials(write, row, still_open, TrialState.CANCELLED, exit_cause=cause)
    elif state != SweepState.QUEUED or row.spec.get("training") != EXTERNAL:
        close_attempts(write, row.id, TrialState.CANCELLED, cause)
        move_trials(write, row, running, TrialState.WAITING)
