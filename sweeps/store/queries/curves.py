"""Curves: metrics and per-step series of trials, joined over attempts, and means over seeds.

An attempt that resumes a trial replaces the earlier one from its own first step on, so no step
appears twice and steps of a lost attempt after its last checkpoint do not count.
"""

import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sweeps.records import Page, PointCurve, TrialCurves
from sweeps.store.database.connection import Database
from sweeps.store.database.paging import Position, Sort, check_exists, write_cursor
from sweeps.store.database.tables import attempts, metric_names, metrics, series, trials
from sweeps.store.queries.thinning import thin
from sweeps.store.queries.trials import TRIAL_LISTING, trial_row
from sweeps.store.queries.where import trials_where
from worker.report import Series

Curve = list[tuple[int, float]]

#: Trials whose curves are read at once, and values after which a page of them ends.
_TRIALS_AT_ONCE = 50
_MOST_VALUES = 200_000


class CurveVerbs(Database):
    """Verbs that read curves."""

    def metric_names(self, sweep_id: str) -> list[str]:
        """Return the names of every metric that a trial of the sweep reported, sorted."""
        return self._names(sweep_id, "metric")

    def series_names(self, sweep_id: str) -> list[str]:
        """Return the names of every per-step series of the sweep, sorted."""
        return self._names(sweep_id, "series")

    def metrics(
        self,
        sweep_id: str,
        number: int,
        names: Sequence[str] | None = None,
        max_points: int = 1000,
    ) -> dict[str, Curve]:
        """Return a trial's curves by name: (step, value), at most ``max_points`` each.

        None means all names. A name that was never reported is absent.
        """
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            trial_row(conn, sweep_id, number)
            curves = _curves(conn, sweep_id, trials.c.number == number, names)
        return {name: thin(curve, max_points) for (_, name), curve in sorted(curves.items())}

    def values_after(self, sweep_id: str, name: str, after: Mapping[int, int]) -> dict[int, Curve]:
        """Return what attempts reported of one metric after a step, by attempt.

        ``after`` holds the step by attempt; attempts without news are left out.
        """
        mine = (metric_names.c.sweep_id == sweep_id) & (metric_names.c.kind == "metric")
        known = sa.select(metric_names.c.id).where(mine, metric_names.c.name == name)
        found: dict[int, Curve] = {}
        with self._reading() as conn:
            name_id = conn.execute(known).scalar()
            for attempt_id, step in after.items() if name_id is not None else ():
                query = (
                    sa.select(metrics.c.step, metrics.c.value)
                    .where(
                        metrics.c.attempt_id == attempt_id,
                        metrics.c.name_id == name_id,
                        metrics.c.step > step,
                    )
                    .order_by(metrics.c.step)
                )
                if rows := conn.execute(query).all():
                    found[attempt_id] = [(row.step, row.value) for row in rows]
        return found

    def trial_curves(
        self,
        sweep_id: str,
        names: Sequence[str] | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[TrialCurves]:
        """Return whole curves of a page of trials, by number; None means all names.

        A page has fewer trials than ``limit`` if they hold very many values.
        """
        listed = sa.select(trials.c.number, trials.c.point, trials.c.seed).where(
            trials.c.sweep_id == sweep_id
        )
        found: list[TrialCurves] = []
        num_values = 0
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            rows, after = TRIAL_LISTING.page(
                conn, listed, sort="number", cursor=cursor, limit=limit
            )
            for start in range(0, len(rows), _TRIALS_AT_ONCE):
                if num_values >= _MOST_VALUES:
                    last = found[-1].number
                    after = write_cursor(Sort("number", False), Position(last, last))
                    break
                some = rows[start : start + _TRIALS_AT_ONCE]
                which = trials.c.number.in_([row.number for row in some])
                curves: dict[int, dict[str, Curve]] = {row.number: {} for row in some}
                for (number, name), curve in sorted(_curves(conn, sweep_id, which, names).items()):
                    curves[number][name] = curve
                    num_values += len(curve)
                found += [
                    TrialCurves(row.number, row.point, row.seed, curves[row.number]) for row in some
                ]
        return Page(found, after)

    def point_curves(
        self,
        sweep_id: str,
        name: str,
        points: Sequence[int],
        max_points: int = 500,
        *,
        where: str = "",
        among: Sequence[str] = (),
    ) -> list[PointCurve]:
        """Return one metric's mean over the seeds of each point, per step, in the order asked.

        A seed counts at the steps that it has reported; points without a report are left out.
        ``where`` and ``among``: as of ``seed_curves``.
        """
        seeds: dict[int, list[Curve]] = {}
        for one in self.seed_curves(sweep_id, name, points, where=where, among=among):
            seeds.setdefault(one.point, []).append(one.curves[name])
        return [_mean_curve(point, seeds[point], max_points) for point in points if point in seeds]

    def seed_curves(
        self,
        sweep_id: str,
        name: str,
        points: Sequence[int],
        *,
        where: str = "",
        among: Sequence[str] = (),
    ) -> list[TrialCurves]:
        """Return one metric of the trials of some points that have reported it, by number.

        ``where``: only trials that fit the condition; ``among``: sweeps whose fields it may name.
        """
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            which: sa.ColumnElement[bool] = trials.c.point.in_(list(points))
            if where:
                which &= trials_where(conn, sweep_id, where, among)
            numbers = sa.select(trials.c.number, trials.c.point, trials.c.seed).where(
                trials.c.sweep_id == sweep_id, which
            )
            rows = {row.number: row for row in conn.execute(numbers)}
            curves = _curves(conn, sweep_id, which, [name])
        return [
            TrialCurves(number, rows[number].point, rows[number].seed, {name: curve})
            for (number, _), curve in sorted(curves.items())
        ]

    def reported_at(
        self, sweep_id: str, name: str, points: Sequence[int]
    ) -> dict[int, dict[int, float]]:
        """Return when the seeds of points reported a metric: point -> step -> seconds.

        Seconds since the first start of each trial, pauses included, as a mean over its point's
        seeds.
        """
        return self._reported_at(sweep_id, name, trials.c.point.in_(list(points)))

    def reported_at_by(self, sweep_id: str, number: int, name: str) -> dict[int, float]:
        """Return when one trial reported a metric: step -> seconds since its first start."""
        found = self._reported_at(sweep_id, name, trials.c.number == number)
        return next(iter(found.values()), {})

    def _reported_at(
        self, sweep_id: str, name: str, which: sa.ColumnElement[bool]
    ) -> dict[int, dict[int, float]]:
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            query = sa.select(trials.c.number, trials.c.point, trials.c.started_at).where(
                trials.c.sweep_id == sweep_id, which, trials.c.started_at.is_not(None)
            )
            begun = {row.number: (row.point, row.started_at) for row in conn.execute(query)}
            curves = _curves(conn, sweep_id, which, [name], metrics.c.at)
        found: dict[int, dict[int, list[float]]] = {}
        for (number, _), curve in curves.items():
            point, start = begun[number]
            for step, at in curve:
                found.setdefault(point, {}).setdefault(step, []).append((at - start) / 1e6)
        return {
            point: {step: statistics.fmean(values) for step, values in at.items()}
            for point, at in found.items()
        }

    def series(self, sweep_id: str, number: int, name: str) -> list[Series]:
        """Return a trial's per-step records of one quantity, joined: one part per gapless stretch.

        Empty if the trial recorded none.
        """
        query = (
            sa.select(attempts.c.number.label("attempt"), series)
            .join(attempts, attempts.c.id == series.c.attempt_id)
            .join(metric_names, metric_names.c.id == series.c.name_id)
            .where(
                attempts.c.sweep_id == sweep_id,
                attempts.c.trial == number,
                metric_names.c.name == name,
                metric_names.c.kind == "series",
            )
            .order_by(attempts.c.number.desc(), series.c.start)
        )
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            trial_row(conn, sweep_id, number)
            rows = conn.execute(query).all()
        return _joined(rows)

    def usage_names(self, sweep_id: str) -> list[str]:
        """Return the names of everything that was measured of the sweep's machines, sorted."""
        return self._names(sweep_id, "usage")

    def usage_curves(self, sweep_id: str, number: int) -> dict[str, list[tuple[float, float]]]:
        """Return what was measured of a trial's machine: (seconds since its first start, value).

        By name, such as ``gpu_0_utilization_percentage``; over all attempts, in the order of time.
        Empty if nothing was measured.
        """
        query = (
            sa.select(metric_names.c.name, series)
            .join(attempts, attempts.c.id == series.c.attempt_id)
            .join(metric_names, metric_names.c.id == series.c.name_id)
            .where(
                attempts.c.sweep_id == sweep_id,
                attempts.c.trial == number,
                metric_names.c.kind == "usage",
            )
            .order_by(metric_names.c.name, series.c.start)
        )
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            begun = trial_row(conn, sweep_id, number).started_at or 0
            rows = conn.execute(query).all()
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            part = _before(row._mapping, None)
            at = [part.start + k * part.every for k in range(len(part.values))]
            # A node's clock may be behind that of the store.
            places = [max(0, ms - begun // 1000) / 1000 for ms in at]
            found.setdefault(row.name, []).extend(zip(places, part.values, strict=True))
        return found

    def recorded_curve(self, sweep_id: str, number: int, name: str) -> Curve:
        """Return a trial's per-step records of one quantity as (step, value)."""
        return [
            (piece.start + i * piece.every, value)
            for piece in self.series(sweep_id, number, name)
            for i, value in enumerate(piece.values)
        ]

    def _names(self, sweep_id: str, kind: str) -> list[str]:
        query = sa.select(metric_names.c.name).where(
            metric_names.c.sweep_id == sweep_id, metric_names.c.kind == kind
        )
        with self._reading() as conn:
            check_exists(conn, sweep_id)
            return sorted(conn.execute(query).scalars())


def _curves(
    conn: sa.Connection,
    sweep_id: str,
    which: sa.ColumnElement[bool],
    names: Sequence[str] | None,
    column: sa.Column[Any] = metrics.c.value,
) -> dict[tuple[int, str], Curve]:
    """Return (trial number, name) -> curve over the trial's attempts, of the values' column."""
    if names is not None and not names:
        return {}
    wanted = sa.select(metric_names.c.id, metric_names.c.name).where(
        metric_names.c.sweep_id == sweep_id, metric_names.c.kind == "metric"
    )
    if names is not None:
        wanted = wanted.where(metric_names.c.name.in_(list(names)))
    name_of = {row.id: row.name for row in conn.execute(wanted)}
    # Attempts first: for one join a database might read every metric of the name to find a few.
    tries = (
        sa.select(attempts.c.id, attempts.c.trial, attempts.c.number)
        .join(
            trials,
            (trials.c.sweep_id == attempts.c.sweep_id) & (trials.c.number == attempts.c.trial),
        )
        .where(attempts.c.sweep_id == sweep_id, which)
    )
    place_of = {row.id: (row.number, row.trial) for row in conn.execute(tries)}
    query = sa.select(metrics.c.attempt_id, metrics.c.name_id, metrics.c.step, column).where(
        metrics.c.attempt_id.in_(list(place_of)), metrics.c.name_id.in_(list(name_of))
    )
    rows = sorted(conn.execute(query), key=lambda row: (*place_of[row[0]], row[2]))
    joined: dict[tuple[int, str], Curve] = {}
    for attempt, name_id, step, value in rows:
        curve = joined.setdefault((place_of[attempt][1], name_of[name_id]), [])
        while curve and curve[-1][0] >= step:
            curve.pop()
        curve.append((step, value))
    return joined


def _mean_curve(point: int, seeds: Sequence[Curve], max_points: int) -> PointCurve:
    at: dict[int, list[float]] = {}
    for curve in seeds:
        for step, value in curve:
            at.setdefault(step, []).append(value)
    steps = thin(sorted(at), max_points)
    return PointCurve(
        point=point,
        steps=steps,
        mean=[statistics.fmean(at[step]) for step in steps],
        sd=[statistics.stdev(at[step]) if len(at[step]) > 1 else None for step in steps],
        n=[len(at[step]) for step in steps],
    )


def _joined(rows: Iterable[sa.Row[Any]]) -> list[Series]:
    """Join the parts of all attempts by their starts; ``rows`` has the latest attempt first."""
    parts: list[Series] = []
    taken_from: int | None = None
    for part_of_attempt in _by_attempt(rows):
        kept = [part for row in part_of_attempt if (part := _before(row, taken_from)).values]
        if kept:
            parts = kept + parts
            taken_from = kept[0].start
    joined: list[Series] = []
    for part in parts:
        if joined and _continues(joined[-1], part):
            joined[-1].values.extend(part.values)
        else:
            joined.append(part)
    return joined


def _by_attempt(rows: Iterable[sa.Row[Any]]) -> Iterable[list[Mapping[Any, Any]]]:
    grouped: dict[int, list[Mapping[Any, Any]]] = {}
    for row in rows:
        grouped.setdefault(row.attempt, []).append(row._mapping)
    return grouped.values()


def _before(row: Mapping[Any, Any], end: int | None) -> Series:
    """Return the part of a stored series that lies before step ``end``."""
    values = array("d")
    values.frombytes(row["values"])
    start, every = row["start"], row["every"]
    count = len(values) if end is None else max(0, -(-(end - start) // every))
    return Series(start=start, every=every, values=values[:count].tolist())


def _continues(earlier: Series, later: Series) -> bool:
    expected = earlier.start + earlier.every * len(earlier.values)
    return earlier.every == later.every and later.start == expected
