"""Reads for pages, routes and replay: trials, points, events, rows for export."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.errors import TrialNotFound
from sweeps.records import Event, Page, Point, SweepCount, SweepState, Trial, TrialState
from sweeps.store.database.connection import Database
from sweeps.store.database.paging import Listing, check_choice, check_exists, check_limit
from sweeps.store.database.params import by_metric, by_param, is_by_metric, is_by_param
from sweeps.store.database.rows import COUNT_COLUMN, attempt_of, event_of, point_of, trial_of
from sweeps.store.database.tables import attempts, events, points, sweeps, trials
from sweeps.store.queries.where import trials_where

TRIAL_LISTING = Listing(
    keys={
        name: trials.c[name]
        for name in (
            "number",
            "point",
            "seed",
            "state",
            "objective",
            "step",
            "started_at",
            "finished_at",
        )
    },
    tie=trials.c.number,
)

POINT_LISTING = Listing(
    keys={name: points.c[name] for name in ("number", "mean", "sd", "n", "state")},
    tie=points.c.number,
)

_MAX_EVENTS = 1000
_BATCH = 500
#: Trial numbers are 32-bit integers in both databases.
_MAX_NUMBER = 2**31


class ReadVerbs(Database):
    """Verbs that only read. Every returned record is a value."""

    def trials(
        self,
        sweep_id: str,
        *,
        state: str | None = None,
        point: int | None = None,
        where: str | None = None,
        sort: str = "number",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Trial]:
        """Return a page of a sweep's trials, without their attempts.

        ``where`` is a condition such as ``alpha_v > 0.05 and state = complete``; see
        ``queries.where``. ``sort`` may also be ``params.FIELD`` or ``metrics.NAME``; trials
        without that value come last.
        """
        query = sa.select(trials).where(trials.c.sweep_id == sweep_id)
        if state is not None:
            query = query.where(trials.c.state == check_choice("state", state, list(TrialState)))
        if point is not None:
            inside = 0 <= point < _MAX_NUMBER
            query = query.where(trials.c.point == point if inside else sa.false())
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            listing = TRIAL_LISTING
            if where is not None and where.strip():
                query = query.where(trials_where(conn, sweep_id, where))
            if is_by_param(sort):
                listing, query = by_param(conn, "trial", listing, query, sweep_id, sort)
            elif is_by_metric(sort):
                listing, query = by_metric(conn, listing, query, [sweep_id], sort)
            rows, after = listing.page(conn, query, sort=sort, cursor=cursor, limit=limit)
        return Page([trial_of(row) for row in rows], after)

    def trial(self, sweep_id: str, number: int) -> Trial:
        """Return one trial with its attempts, oldest first. Raises TrialNotFound."""
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            row = trial_row(conn, sweep_id, number)
            mine = sa.select(attempts).where(
                attempts.c.sweep_id == sweep_id, attempts.c.trial == number
            )
            tries = conn.execute(mine.order_by(attempts.c.number)).all()
        return trial_of(row, tuple(attempt_of(attempt) for attempt in tries))

    def points(
        self,
        sweep_id: str,
        *,
        sort: str = "mean",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Point]:
        """Return a page of the leaderboard. Points without a mean come last.

        ``sort`` may also be ``params.FIELD``; points without that value come last.
        """
        query = sa.select(points).where(points.c.sweep_id == sweep_id)
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            listing = POINT_LISTING
            if is_by_param(sort):
                listing, query = by_param(conn, "point", listing, query, sweep_id, sort)
            rows, after = listing.page(conn, query, sort=sort, cursor=cursor, limit=limit)
        return Page([point_of(row) for row in rows], after)

    def points_where(self, sweep_id: str, where: str, among: Sequence[str] = ()) -> set[int]:
        """Return the numbers of the points with a trial that fits a condition.

        ``among``: sweeps that are asked together, whose fields may be named.
        """
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            clause = trials_where(conn, sweep_id, where, among)
            query = sa.select(trials.c.point).where(trials.c.sweep_id == sweep_id, clause)
            return set(conn.execute(query.distinct()).scalars())

    def all_trials(self, sweep_id: str, *, point: int | None = None) -> Iterator[Trial]:
        """Yield every trial, or every trial of a point, by number, with few in memory at a time.

        Their attempts are left out.
        """
        after = -1
        chosen = trials.c.sweep_id == sweep_id
        if point is not None:
            chosen &= trials.c.point == point
        while True:
            query = (
                sa.select(trials)
                .where(chosen, trials.c.number > after)
                .order_by(trials.c.number)
                .limit(_BATCH)
            )
            with self._reading() as conn:
                check_exists(conn, sweep_id)
                rows = conn.execute(query).all()
            yield from map(trial_of, rows)
            if len(rows) < _BATCH:
                return
            after = rows[-1].number

    def all_points(self, sweep_id: str) -> list[Point]:
        """Return every point by number: small rows, for analysis."""
        query = sa.select(points).where(points.c.sweep_id == sweep_id)
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            return [point_of(row) for row in conn.execute(query.order_by(points.c.number))]

    def export_rows(self, sweep_id: str) -> Iterator[dict[str, Any]]:
        """Yield one flat row per trial: place, state, ``config.*``, ``usage.*``, ``metrics.*``.

        Of usage only what was measured is there.
        """
        for trial in self.all_trials(sweep_id):
            yield {
                "sweep": trial.sweep_id,
                "trial": trial.number,
                "point": trial.point,
                "seed": trial.seed,
                "role": trial.role,
                "state": trial.state.value,
                "objective": trial.objective,
                "step": trial.step,
                "num_steps": trial.num_steps,
                "diverged_at_step": trial.diverged_at_step,
                "exit_cause": trial.exit_cause,
                "started_at": trial.started_at,
                "finished_at": trial.finished_at,
                **{f"config.{name}": value for name, value in trial.config.items()},
                **{f"usage.{n}": v for n, v in vars(trial.usage).items() if v is not None},
                **{f"metrics.{name}": trial.metrics[name] for name in sorted(trial.metrics)},
            }

    def events(self, sweep_id: str | None, after: int = 0, limit: int = 100) -> list[Event]:
        """Return events with ids above ``after``, in order, of one sweep or (None) of all.

        At most 1,000. After an id was returned, no event with a lower id appears.
        """
        check_limit(limit, _MAX_EVENTS)
        start = min(max(after, 0), 2**63 - 1)
        query = sa.select(events).where(events.c.id > start).order_by(events.c.id).limit(limit)
        with self._reading() as conn:
            if sweep_id is not None:
                check_exists(conn, sweep_id)
                query = query.where(events.c.sweep_id == sweep_id)
            return [event_of(row) for row in conn.execute(query)]

    def counts(self) -> list[SweepCount]:
        """Return how many sweeps and trials there are, by kind and state."""
        columns = [sa.func.sum(sweeps.c[name]).label(name) for name in COUNT_COLUMN.values()]
        query = (
            sa.select(sweeps.c.kind, sweeps.c.state, sa.func.count().label("sweeps"), *columns)
            .group_by(sweeps.c.kind, sweeps.c.state)
            .order_by(sweeps.c.kind, sweeps.c.state)
        )
        with self._reading() as conn:
            rows = conn.execute(query).all()
        return [
            SweepCount(
                kind=row.kind,
                state=SweepState(row.state),
                sweeps=row.sweeps,
                trials={s.value: int(row._mapping[name]) for s, name in COUNT_COLUMN.items()},
            )
            for row in rows
        ]

    def last_event_id(self, sweep_id: str | None = None) -> int:
        """Return the newest event's id, 0 before the first."""
        query = sa.select(sa.func.max(events.c.id))
        with self._reading() as conn:
            if sweep_id is not None:
                check_exists(conn, sweep_id)
                query = query.where(events.c.sweep_id == sweep_id)
            return int(conn.execute(query).scalar() or 0)


def trial_row(conn: sa.Connection, sweep_id: str, number: int) -> sa.Row[Any]:
    """Return a trial's row. Raises TrialNotFound."""
    if not 0 <= number < _MAX_NUMBER:
        raise TrialNotFound(sweep_id, number)
    query = sa.select(trials).where(trials.c.sweep_id == sweep_id, trials.c.number == number)
    row = conn.execute(query).one_or_none()
    if row is None:
        raise TrialNotFound(sweep_id, number)
    return row
