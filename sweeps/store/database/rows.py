"""Converts rows of the tables to records."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from sweeps.records import Attempt, Event, MachineUse, Point, Sweep, SweepState, Trial, TrialState
from sweeps.store.database.people import AuditEntry, Link, Quotas, Scope, Session, Token

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: TrialState -> the column of ``sweeps`` that counts it.
COUNT_COLUMN = {state: f"n_{state.value}" for state in TrialState}

_DONE = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.DIVERGED)


def time_of(microseconds: int) -> datetime:
    """Return a stored time as a datetime in UTC."""
    # Not fromtimestamp: a float loses the last microseconds.
    return _EPOCH + timedelta(microseconds=microseconds)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else time_of(microseconds)


def microseconds_of(time: datetime | None) -> int | None:
    """Return a time as it is stored; the inverse of ``time_of``."""
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)


def sweep_of(row: sa.Row[Any]) -> Sweep:
    """Make the record of a row of ``sweeps``."""
    cells = row._mapping
    counts = {state.value: cells[COUNT_COLUMN[state]] for state in TrialState}
    return Sweep(
        id=cells["id"],
        kind=cells["kind"],
        name=cells["name"],
        state=SweepState(cells["state"]),
        reason=cells["reason"],
        requested=cells["requested"],
        spec=cells["spec"],
        tags=tuple(cells["tags"]),
        notes=cells["notes"],
        created_at=time_of(cells["created_at"]),
        started_at=_time(cells["started_at"]),
        finished_at=_time(cells["finished_at"]),
        num_trials=cells["num_trials"],
        trials=counts,
        best=cells["best"],
        result=cells["result"],
        mirror=cells["mirror"],
        eta_seconds=_eta_seconds(cells, counts),
        trial_seconds=cells["trial_seconds"],
        usage=MachineUse.of(cells["usage"] or {}),
        owner=cells["submitted_by"],
    )


def _eta_seconds(cells: Mapping[Any, Any], counts: dict[str, int]) -> float | None:
    """Extrapolate the mean time of a finished trial; a running one counts as half done."""
    done = sum(counts[state] for state in _DONE)
    if cells["state"] != SweepState.RUNNING or not done:
        return None
    finished = sum(counts[state] for state in TrialState if state.is_finished())
    total = cells["num_trials"]
    if total is None:
        # Of a match only its procedure knows which share of the steps is done.
        progress = (cells["result"] or {}).get("progress")
        if not progress:
            return None
        total = finished / progress
    running = counts[TrialState.RUNNING]
    left = max(0.0, total - finished - running / 2)
    return float(cells["trial_seconds"] / done * left / max(1, running))


def trial_of(row: sa.Row[Any], attempts: tuple[Attempt, ...] = ()) -> Trial:
    """Make the record of a row of ``trials``."""
    cells = row._mapping
    return Trial(
        sweep_id=cells["sweep_id"],
        number=cells["number"],
        point=cells["point"],
        seed=cells["seed"],
        state=TrialState(cells["state"]),
        params=cells["params"],
        config=cells["config"],
        config_key=cells["config_key"],
        role=cells["role"],
        measurement=cells["measurement"],
        objective=cells["objective"],
        metrics=cells["metrics"],
        step=cells["step"],
        num_steps=cells["num_steps"],
        diverged_at_step=cells["diverged_at_step"],
        exit_cause=cells["exit_cause"],
        created_at=time_of(cells["created_at"]),
        started_at=_time(cells["started_at"]),
        finished_at=_time(cells["finished_at"]),
        attempts=attempts,
        usage=MachineUse.of(cells["usage"] or {}),
    )


def attempt_of(row: sa.Row[Any]) -> Attempt:
    """Make the record of a row of ``attempts``."""
    cells = row._mapping
    return Attempt(
        id=cells["id"],
        number=cells["number"],
        state=TrialState(cells["state"]),
        started_at=time_of(cells["started_at"]),
        finished_at=_time(cells["finished_at"]),
        exit_cause=cells["exit_cause"],
        provenance=cells["provenance"],
        mlflow_run_id=cells["mlflow_run_id"],
        usage=MachineUse.of(cells["usage"] or {}),
    )


def point_of(row: sa.Row[Any]) -> Point:
    """Make the record of a row of ``points``."""
    cells = row._mapping
    return Point(
        sweep_id=cells["sweep_id"],
        number=cells["number"],
        params=cells["params"],
        mean=cells["mean"],
        sd=cells["sd"],
        n=cells["n"],
        state=TrialState(cells["state"]),
    )


def event_of(row: sa.Row[Any]) -> Event:
    """Make the record of a row of ``events``."""
    cells = row._mapping
    return Event(
        id=cells["id"],
        sweep_id=cells["sweep_id"],
        at=time_of(cells["at"]),
        kind=cells["kind"],
        data=cells["data"],
    )


def token_of(row: sa.Row[Any]) -> Token:
    """Make the record of a row of ``tokens``."""
    return Token(
        id=row.id,
        name=row.name,
        owner=row.owner,
        scope=Scope(row.scope),
        quotas=Quotas.of_json(row.quotas),
        created_at=time_of(row.created_at),
        created_by=row.created_by,
        expires_at=_time(row.expires_at),
        revoked_at=_time(row.revoked_at),
        last_used_at=_time(row.last_used_at),
    )


def session_of(row: sa.Row[Any, Any]) -> Session:
    """Make the record of a row of ``sessions``."""
    return Session(row.token, time_of(row.expires_at))


def link_of(row: sa.Row[Any]) -> Link:
    """Make the record of a row of ``links``."""
    times = time_of(row.created_at), row.created_by, time_of(row.expires_at)
    return Link(row.id, row.sweep_id, row.key, *times)


def audit_entry_of(row: sa.Row[Any]) -> AuditEntry:
    """Make the record of a row of ``audit``."""
    where = row.who, row.token, row.address
    return AuditEntry(row.id, time_of(row.at), *where, row.action, row.target, row.data)
