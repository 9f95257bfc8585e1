"""Moves trials between states and updates the derived values: counts, points, the best.

Every change of a trial's state goes through ``move_trials``, so that a page can read one row.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from sweeps.records import SweepState, TrialState
from sweeps.store.database.connection import Write
from sweeps.store.database.rows import COUNT_COLUMN
from sweeps.store.database.tables import attempts, points, sweeps, trials

#: Rows named in one statement; SQLite takes 32,766 parameters.
_CHUNK = 500


def lock_sweep(write: Write, sweep_id: str) -> sa.Row[Any] | None:
    """Lock and return the sweep's row. Every writer of a sweep does this first."""
    query = sa.select(sweeps).where(sweeps.c.id == sweep_id).with_for_update()
    return write.conn.execute(query).one_or_none()


def move_sweep(write: Write, sweep_id: str, to: SweepState, reason: str, **values: Any) -> None:
    """Set the sweep's state and announce it. ``values`` are further columns."""
    finished = write.now if to.is_finished() else None
    write.conn.execute(
        sa.update(sweeps)
        .where(sweeps.c.id == sweep_id)
        .values(
            state=to.value,
            reason=reason,
            finished_at=finished,
            revision=sweeps.c.revision + 1,
            **values,
        )
    )
    write.event(sweep_id, "sweep", {"state": to.value, "reason": reason})


def move_trials(
    write: Write,
    sweep: sa.Row[Any],
    which: sa.ColumnElement[bool],
    to: TrialState,
    **values: Any,
) -> list[int]:
    """Set the state of every trial that ``which`` selects; return the numbers of those moved.

    ``values`` are further columns, set on the same rows. Announces each trial that moved.
    """
    mine = sa.and_(trials.c.sweep_id == sweep.id, which)
    columns = (trials.c.number, trials.c.point, trials.c.state, trials.c.objective)
    before = write.conn.execute(sa.select(*columns).where(mine).order_by(trials.c.number)).all()
    if not before:
        return []
    write.conn.execute(
        sa.update(trials).where(mine).values(state=to.value, **_times(write, to), **values)
    )
    moved = [row for row in before if row.state != to.value]
    count_trials(write, sweep.id, leave=Counter(row.state for row in moved), enter={to: len(moved)})
    # Starting a trial changes no mean; retrying a finished one removes its value.
    means_change = to.is_finished() or any(TrialState(row.state).is_finished() for row in before)
    refresh_points(write, sweep, {row.point for row in before}, means_change=means_change)
    for row in moved:
        data = {"trial": row.number, "point": row.point, "state": to.value}
        if to.is_finished():
            data["objective"] = row.objective
        write.event(sweep.id, "trial", data | _public(values))
    return [row.number for row in moved]


def _times(write: Write, to: TrialState) -> dict[str, Any]:
    if to == TrialState.RUNNING:
        return {"started_at": sa.func.coalesce(trials.c.started_at, write.now), "finished_at": None}
    return {"finished_at": write.now if to.is_finished() else None}


def _public(values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in ("objective", "exit_cause") if key in values}


def count_trials(
    write: Write, sweep_id: str, *, leave: dict[str, int], enter: dict[TrialState, int]
) -> None:
    """Move counts from the states that trials left to those they entered."""
    change: Counter[str] = Counter()
    for state, count in leave.items():
        change[COUNT_COLUMN[TrialState(state)]] -= count
    for state, count in enter.items():
        change[COUNT_COLUMN[TrialState(state)]] += count
    values = {name: sweeps.c[name] + by for name, by in change.items() if by}
    if values:
        write.conn.execute(sa.update(sweeps).where(sweeps.c.id == sweep_id).values(values))


def refresh_points(
    write: Write, sweep: sa.Row[Any], numbers: Iterable[int], *, means_change: bool = True
) -> None:
    """Update the named points and the sweep's best from their trials."""
    for chunk in _chunks(sorted(numbers)):
        query = sa.select(trials.c.point, trials.c.state, trials.c.objective).where(
            trials.c.sweep_id == sweep.id, trials.c.point.in_(chunk)
        )
        replicates: dict[int, list[tuple[str, float | None]]] = {}
        for row in write.conn.execute(query):
            replicates.setdefault(row.point, []).append((row.state, row.objective))
        write.conn.execute(
            sa.update(points)
            .where(points.c.sweep_id == sweep.id, points.c.number == sa.bindparam("key"))
            .values({name: sa.bindparam(name) for name in ("mean", "sd", "n", "state", "settled")}),
            [{"key": number} | _summary(rows) for number, rows in replicates.items()],
        )
    if means_change:
        _refresh_best(write, sweep)


def _summary(replicates: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """Return mean, deviation and state of a point.

    A point with a diverged or pruned replicate has no mean: the mean of the remaining seeds
    would make an unstable point look good.
    """
    states = {TrialState(state) for state, _ in replicates}
    values = [
        value for state, value in replicates if state == TrialState.COMPLETE and value is not None
    ]
    usable = bool(values) and not states & {TrialState.DIVERGED, TrialState.PRUNED}
    return {
        "mean": statistics.fmean(values) if usable else None,
        "sd": statistics.stdev(values) if usable and len(values) > 1 else None,
        "n": len(values),
        "state": _point_state(states).value,
        "settled": all(state.is_finished() for state in states),
    }


def _point_state(states: set[TrialState]) -> TrialState:
    open_states = {state for state in states if not state.is_finished()}
    if open_states == {TrialState.WAITING} and states == open_states:
        return TrialState.WAITING
    if open_states:
        return TrialState.RUNNING
    for state in (TrialState.DIVERGED, TrialState.PRUNED, TrialState.COMPLETE, TrialState.FAILED):
        if state in states:
            return state
    return TrialState.CANCELLED


def _refresh_best(write: Write, sweep: sa.Row[Any]) -> None:
    """Store the best point: settled points first, then the better mean, then the lower number."""
    best = _best(write, sweep, settled=True) or _best(write, sweep, settled=False)
    current = write.conn.execute(sa.select(sweeps.c.best).where(sweeps.c.id == sweep.id)).scalar()
    if best != current:
        write.conn.execute(
            sa.update(sweeps)
            .where(sweeps.c.id == sweep.id)
            .values(best=best, revision=sweeps.c.revision + 1)
        )


def _best(write: Write, sweep: sa.Row[Any], *, settled: bool) -> dict[str, Any] | None:
    mean = points.c.mean.desc() if sweep.maximize else points.c.mean.asc()
    query = (
        sa.select(points)
        .where(
            points.c.sweep_id == sweep.id,
            points.c.settled == settled,
            points.c.mean.is_not(None),
        )
        .order_by(mean, points.c.number)
        .limit(1)
    )
    row = write.conn.execute(query).one_or_none()
    if row is None:
        return None
    return {"point": row.number, "params": row.params, "mean": row.mean, "sd": row.sd, "n": row.n}


def close_attempts(
    write: Write,
    sweep_id: str,
    state: TrialState,
    cause: str,
    *,
    trial: int | None = None,
    lease_until: int | None = None,
) -> None:
    """End every attempt of the sweep (or of one trial) that still counts as running.

    ``lease_until``: when the lease of their driver expired. The attempts end at this time, because
    a machine that was off for a night did not train.
    """
    end = write.now if lease_until is None else min(write.now, lease_until)
    finished_at = sa.case((attempts.c.started_at > end, attempts.c.started_at), else_=end)
    running = (attempts.c.sweep_id == sweep_id) & (attempts.c.state == TrialState.RUNNING.value)
    if trial is not None:
        running &= attempts.c.trial == trial
    write.conn.execute(
        sa.update(attempts)
        .where(running)
        .values(state=state.value, finished_at=finished_at, exit_cause=cause, unmirrored=True)
    )


def _chunks(numbers: Sequence[int]) -> Iterable[list[int]]:
    rest = iter(numbers)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
