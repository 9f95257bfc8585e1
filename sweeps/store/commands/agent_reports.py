"""Takes in what agents report and tell: many requests at once, with a few statements for all.

A request is checked as a whole before anything of it counts, so a refused one leaves nothing.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from sweeps.errors import InvalidReport, LeaseEnded, TrialNotFound
from sweeps.records import LOST, AttemptEnd, TrialState
from sweeps.store.commands.agent_requests import (
    MAX_METRIC_NAMES,
    AgentReport,
    AgentReports,
    Heard,
    Tell,
    Told,
)
from sweeps.store.commands.attempts import finish_alike
from sweeps.store.commands.reports import insert_metrics, name_ids
from sweeps.store.database.connection import Write, plain_text
from sweeps.store.database.tables import attempts, metric_names, metrics, trials

_CHUNK = 500
#: Cause of an attempt whose sweep was paused: its agent may still tell how the trial ended.
PAUSED = ("paused", "the sweep was paused")


@dataclass(eq=False)
class _Trial:
    """A trial as it stands after the requests so far."""

    sweep_id: str
    number: int
    point: int
    state: TrialState
    metrics: dict[str, float]
    objective: float | None
    step: int
    num_steps: int | None
    diverged_at_step: int | None
    #: Metrics that arrived in this transaction.
    fresh: dict[str, float]
    is_changed: bool = False


@dataclass(eq=False)
class _Attempt:
    """An attempt as it stands after the requests so far."""

    id: int
    number: int
    trial: _Trial
    lease_seconds: float
    state: TrialState
    exit_cause: str
    last_seq: int
    last_step: int | None
    provenance: dict[str, Any]
    is_heard: bool = False
    is_flagged: bool = False
    #: Objectives that reports of this transaction had.
    reported: set[str] = field(default_factory=set)


class Intake:
    """Reports and endings of one transaction: ``hear`` each, then ``write`` all."""

    def __init__(
        self, write: Write, sweeps: Mapping[str, Any], requests: Sequence[AgentReports | Tell]
    ) -> None:
        """``sweeps`` holds the locked rows by id."""
        self._write = write
        self._sweeps = sweeps
        self._leases: dict[tuple[str, str], _Attempt] = {}
        self._numbers: dict[str, set[int]] = defaultdict(set)
        # Sweep -> metric rows, with their names.
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        # By sweep, cause and state of the trial, from which that of the attempt follows.
        self._ends: dict[tuple[str, str, TrialState], list[AttemptEnd]] = defaultdict(list)
        self._reopened: list[int] = []
        for sweep_id in sweeps:
            mine = [request for request in requests if request.sweep_id == sweep_id]
            self._load(sweep_id, mine)

    def hear(self, request: AgentReports) -> Heard:
        """Take reports in. Raises LeaseEnded, InvalidReport, TrialNotFound."""
        attempt = self._attempt(request)
        if attempt.state != TrialState.RUNNING:
            return Heard(True, attempt.exit_cause, 0.0)
        self._take(request.sweep_id, attempt, request.reports, "reports")
        attempt.is_heard = True
        if attempt.state != TrialState.RUNNING:
            return Heard(True, attempt.exit_cause, 0.0)
        return Heard(False, "", attempt.lease_seconds)

    def end(self, request: Tell) -> Told:
        """Take an ending in. Raises LeaseEnded, InvalidReport, TrialNotFound."""
        attempt = self._attempt(request)
        is_late = attempt.state != TrialState.RUNNING
        is_given_back = request.state == TrialState.WAITING
        if is_late and (is_given_back or not self._may_still_tell(attempt)):
            return Told(attempt.trial.state, attempt.exit_cause)
        if is_given_back:
            # Nobody's fault: it counts neither as a failure nor as lost.
            self._end(attempt, TrialState.CANCELLED, _cause(request, attempt), request.state)
            return Told(attempt.trial.state, attempt.exit_cause)
        if request.state == TrialState.COMPLETE:
            self._require_objective(request, attempt)
        step = request.step
        if step is None and request.metrics:
            step = _step_of_ending(attempt, request.metrics)
        has_diverged = False
        if step is not None:
            report = AgentReport(step, request.metrics)
            has_diverged = self._take(request.sweep_id, attempt, (report,), "")
        if is_late:
            self._reopened.append(attempt.id)
        if not has_diverged:
            self._end(attempt, request.state, _cause(request, attempt))
        return Told(attempt.state, attempt.exit_cause)

    def write(self, clock: Any) -> None:
        """Write everything that was heard. ``clock`` is now, in microseconds."""
        for sweep_id, rows in self._rows.items():
            names = name_ids(self._write, sweep_id, "metric", {row["name"] for row in rows})
            columns = [_with_id(row, names[row["name"]]) for row in rows]
            insert_metrics(self._write, columns)
        heard = [attempt for attempt in self._leases.values() if attempt.is_heard]
        self._write_attempts(heard, clock)
        self._write_trials({attempt.trial for attempt in heard if attempt.trial.is_changed})
        if self._reopened:
            self._write.conn.execute(
                sa.update(attempts)
                .where(attempts.c.id.in_(self._reopened))
                .values(state=TrialState.RUNNING.value)
            )
        for (sweep_id, cause, trial_state), ends in self._ends.items():
            state = ends[0].state
            finish_alike(self._write, self._sweeps[sweep_id], state, trial_state, cause, ends)

    # --- Reading ------------------------------------------------------------------------------

    def _load(self, sweep_id: str, requests: Sequence[AgentReports | Tell]) -> None:
        keys = sorted({request.lease for request in requests})
        rows: list[sa.Row[Any]] = []
        for some in _chunks(keys):
            query = sa.select(attempts).where(
                attempts.c.sweep_id == sweep_id, attempts.c.key.in_(some)
            )
            rows += self._write.conn.execute(query).all()
        numbers = sorted({request.number for request in requests} | {row.trial for row in rows})
        found = self._trials(sweep_id, numbers)
        self._numbers[sweep_id] = set(found)
        for row in rows:
            self._leases[sweep_id, row.key] = _Attempt(
                row.id,
                row.number,
                found[row.trial],
                row.lease_seconds or 0.0,
                TrialState(row.state),
                row.exit_cause,
                row.last_seq,
                row.last_step,
                dict(row.provenance),
            )

    def _trials(self, sweep_id: str, numbers: Sequence[int]) -> dict[int, _Trial]:
        columns = [
            trials.c[name]
            for name in (
                "number",
                "point",
                "state",
                "metrics",
                "objective",
                "step",
                "num_steps",
                "diverged_at_step",
            )
        ]
        found = {}
        for some in _chunks(numbers):
            query = sa.select(*columns).where(
                trials.c.sweep_id == sweep_id, trials.c.number.in_(some)
            )
            for row in self._write.conn.execute(query):
                values = dict(row._mapping) | {"state": TrialState(row.state)}
                found[row.number] = _Trial(sweep_id=sweep_id, fresh={}, **values)
        return found

    def _attempt(self, request: AgentReports | Tell) -> _Attempt:
        if request.number not in self._numbers[request.sweep_id]:
            raise TrialNotFound(request.sweep_id, request.number)
        attempt = self._leases.get((request.sweep_id, request.lease))
        where = f"trial {request.number} of sweep {request.sweep_id}"
        if attempt is None or attempt.trial.number != request.number:
            raise LeaseEnded(f"lease {request.lease[:40]!r} is none of {where}; ask again")
        if attempt.exit_cause.startswith(LOST):
            raise LeaseEnded(
                f"the lease of attempt {attempt.number} at {where} has ended "
                f"({attempt.exit_cause}); ask again"
            )
        return attempt

    def _may_still_tell(self, attempt: _Attempt) -> bool:
        """Whether an attempt that a pause cut off may settle its trial: nobody else has tried."""
        if attempt.exit_cause not in PAUSED or attempt.trial.state != TrialState.WAITING:
            return False
        trial = attempt.trial
        newest = sa.select(sa.func.max(attempts.c.number)).where(
            attempts.c.sweep_id == trial.sweep_id, attempts.c.trial == trial.number
        )
        return bool(self._write.conn.execute(newest).scalar() == attempt.number)

    def _require_objective(self, request: Tell, attempt: _Attempt) -> None:
        for metric in self._objectives(request.sweep_id):
            if metric in attempt.reported or metric in request.metrics:
                continue
            reported = (
                sa.select(metrics.c.step)
                .join(metric_names, metric_names.c.id == metrics.c.name_id)
                .where(metrics.c.attempt_id == attempt.id, metric_names.c.name == metric)
            )
            if self._write.conn.execute(reported.limit(1)).first() is None:
                raise InvalidReport(
                    f"metrics must hold the objective {metric!r} where state is 'complete' and no "
                    f"report of the lease had it, got {sorted(request.metrics)[:10]}",
                    field="metrics",
                )

    def _objectives(self, sweep_id: str) -> list[str]:
        """Metrics of the sweep's objectives, the one that the trial keeps first."""
        row = self._sweeps[sweep_id]
        first = [] if row.objective_metric is None else [row.objective_metric]
        return [one["metric"] for one in row.objectives or ()] or first

    # --- Checking and keeping -----------------------------------------------------------------

    def _take(
        self, sweep_id: str, attempt: _Attempt, reports: Sequence[AgentReport], field: str
    ) -> bool:
        """Check all reports, then keep what is new of them; say whether the trial diverged."""
        new = self._new_reports(attempt, reports, field)
        objectives = self._objectives(sweep_id)
        for report in new:
            self._keep(sweep_id, attempt, report, objectives)
            if any(name in report.metrics and report.metrics[name] is None for name in objectives):
                attempt.trial.diverged_at_step = report.step
                self._end(attempt, TrialState.DIVERGED, f"diverged at step {report.step}")
                return True
        return False

    def _new_reports(
        self, attempt: _Attempt, reports: Sequence[AgentReport], field: str
    ) -> list[AgentReport]:
        new: list[AgentReport] = []
        last = attempt.last_step
        names = set(attempt.trial.metrics)
        for index, report in enumerate(reports):
            place = f"{field}.{index}." if field else ""
            if last is not None and report.step < last:
                if not new and self._has(attempt, report):
                    continue
                raise InvalidReport(
                    f"{place}step must not go backwards: trial {attempt.trial.number} is at step "
                    f"{last}, got {report.step}",
                    field=f"{place}step",
                )
            names |= report.metrics.keys()
            if len(names) > MAX_METRIC_NAMES:
                raise InvalidReport(
                    f"{place}metrics must leave trial {attempt.trial.number} at most "
                    f"{MAX_METRIC_NAMES:,} metric names, got {len(names):,}",
                    field=f"{place}metrics",
                )
            last = report.step
            new.append(report)
        return new

    def _has(self, attempt: _Attempt, report: AgentReport) -> bool:
        """Whether a report arrived before: the answer to it was lost on its way."""
        values = {plain_text(n): v for n, v in report.metrics.items() if _is_finite(v)}
        pending = {
            row["name"]: row["value"]
            for row in self._rows.get(attempt.trial.sweep_id, ())
            if (row["attempt_id"], row["step"]) == (attempt.id, report.step)
        }
        query = (
            sa.select(metric_names.c.name, metrics.c.value)
            .join(metric_names, metric_names.c.id == metrics.c.name_id)
            .where(metrics.c.attempt_id == attempt.id, metrics.c.step == report.step)
        )
        stored = {row.name: row.value for row in self._write.conn.execute(query)}
        return values.items() <= (stored | pending).items()

    def _keep(
        self, sweep_id: str, attempt: _Attempt, report: AgentReport, objectives: Sequence[str]
    ) -> None:
        trial = attempt.trial
        for given, value in report.metrics.items():
            name = plain_text(given)
            if value is None or not math.isfinite(value):
                flags = attempt.provenance.setdefault("non_finite", {})
                attempt.is_flagged |= name not in flags
                flags.setdefault(name, report.step)
                continue
            attempt.last_seq += 1
            self._rows[sweep_id].append(
                {
                    "attempt_id": attempt.id,
                    "seq": attempt.last_seq,
                    "name": name,
                    "step": report.step,
                    "value": value,
                    "at": self._write.now,
                }
            )
            trial.fresh[name] = value
            if name in objectives:
                attempt.reported.add(name)
                trial.objective = value if name == objectives[0] else trial.objective
        attempt.is_heard = trial.is_changed = True
        attempt.last_step = trial.step = report.step
        trial.num_steps = trial.num_steps if report.num_steps is None else report.num_steps
        trial.metrics = trial.metrics | trial.fresh

    def _end(
        self,
        attempt: _Attempt,
        state: TrialState,
        cause: str,
        trial_state: TrialState | None = None,
    ) -> None:
        trial_state = trial_state or state
        attempt.state, attempt.trial.state = state, trial_state
        attempt.exit_cause = cause
        end = AttemptEnd(attempt.trial.number, attempt.id, state, trial_state, cause)
        self._ends[attempt.trial.sweep_id, cause, trial_state].append(end)

    # --- Writing ------------------------------------------------------------------------------

    def _write_attempts(self, heard: Sequence[_Attempt], clock: Any) -> None:
        if not heard:
            return
        seconds = sa.cast(sa.func.coalesce(attempts.c.lease_seconds, 0.0) * 1e6, sa.BigInteger)
        self._write.conn.execute(
            sa.update(attempts)
            .where(attempts.c.id == sa.bindparam("this"))
            .values(
                last_seq=sa.bindparam("seq"),
                last_step=sa.bindparam("step"),
                lease_until=clock + seconds,
                unmirrored=True,
            ),
            [{"this": a.id, "seq": a.last_seq, "step": a.last_step} for a in heard],
        )
        for attempt in heard:
            if attempt.is_flagged:
                self._write.conn.execute(
                    sa.update(attempts)
                    .where(attempts.c.id == attempt.id)
                    .values(provenance=attempt.provenance)
                )

    def _write_trials(self, changed: Iterable[_Trial]) -> None:
        columns = ("metrics", "step", "num_steps", "objective", "diverged_at_step")
        rows = []
        for trial in sorted(changed, key=lambda one: (one.sweep_id, one.number)):
            values = {f"new_{name}": getattr(trial, name) for name in columns}
            rows.append({"sweep": trial.sweep_id, "this": trial.number} | values)
            data = {
                "trial": trial.number,
                "point": trial.point,
                "step": trial.step,
                "num_steps": trial.num_steps,
                "metrics": {n: v for n, v in trial.fresh.items() if "/" not in n},
                "objective": trial.objective,
            }
            self._write.event(trial.sweep_id, "progress", data)
        if rows:
            self._write.conn.execute(
                sa.update(trials)
                .where(
                    trials.c.sweep_id == sa.bindparam("sweep"),
                    trials.c.number == sa.bindparam("this"),
                )
                .values({name: sa.bindparam(f"new_{name}") for name in columns}),
                rows,
            )


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _step_of_ending(attempt: _Attempt, told: Mapping[str, float | None]) -> int | None:
    """Return the step of metrics that came with an ending; None if they are known already."""
    known = attempt.trial.metrics
    if attempt.last_step is None:
        return 0
    if not known.keys() & told.keys():
        return attempt.last_step
    is_repeated = all(known.get(name) == value for name, value in told.items())
    return None if is_repeated else attempt.last_step + 1


def _cause(request: Tell, attempt: _Attempt) -> str:
    if request.state == TrialState.WAITING:
        why = f": {plain_text(request.reason)}" if request.reason else ""
        return f"given back by its agent{why}"
    if request.reason:
        return plain_text(request.reason)
    if request.state == TrialState.DIVERGED:
        return f"diverged at step {attempt.last_step or 0}"
    return "complete" if request.state == TrialState.COMPLETE else "failed without a reason"


def _with_id(row: Mapping[str, Any], name_id: int) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "name"} | {"name_id": name_id}


def _chunks(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
