"""Reads the folder of an experiment of Ray Tune, as Ray 2.60 writes it.

Each trial has a folder with ``params.json``, ``result.json`` (a line for each report) or
``progress.csv``, and ``error.txt`` where it failed; ``experiment_state-*.json`` says how each trial
stands. No pickle is opened.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sweeps.batch.imports.cells import file_time, typed_column
from sweeps.batch.imports.found import (
    Found,
    FoundTrial,
    counted,
    finite_numbers,
    flattened,
    is_number,
    plain_value,
)
from sweeps.batch.imports.table_trials import ended_with
from sweeps.records import Direction, TrialState
from sweeps.store.commands.imports import ImportRefused

#: What Tune adds to every report.
_ADDED = {
    *("training_iteration", "trial_id", "done", "date", "timestamp", "pid", "hostname", "node_ip"),
    *("time_this_iter_s", "time_total_s", "time_since_restore", "iterations_since_restore"),
    *("timesteps_total", "timesteps_since_restore", "episodes_total", "experiment_tag"),
    *("experiment_id", "checkpoint_dir_name", "should_checkpoint", "config", "_metric"),
}
_FINAL = ("TERMINATED", "ERROR")


def read_experiment(
    folder: Path,
    *,
    objective: str | None,
    direction: Direction,
    seed: str = "seed",
    stopped_early: Literal["pruned", "complete"] = "pruned",
) -> Found:
    """Read an experiment.

    Args:
        folder: That of the experiment, with a folder for each trial.
        objective: Metric, nested ones with a slash; None = the one that the experiment names.
        direction: Which end of it is better.
        seed: Field of the config that holds the seed.
        stopped_early: What a trial is that Tune stopped before the longest one's last step.

    Raises ImportRefused for a folder that is none, and for an objective that no trial reports.
    """
    places = sorted(path.parent for path in folder.glob("*/params.json"))
    if not places:
        raise ImportRefused(
            f"{folder} is no experiment of Ray Tune: it must hold folders of trials with "
            "params.json; name the folder below storage_path that has the experiment's name"
        )
    state = _experiment_state(folder)
    chosen = objective or state.metric
    if chosen is None:
        raise ImportRefused(f"--objective must be given: {folder} does not name its metric")
    read = [_Reports.of(place) for place in places]
    _refuse_unknown(folder, read, chosen)
    longest = max((one.step for one in read), default=0)
    trials: list[FoundTrial] = []
    left_out: Counter[str] = Counter()
    early = 0
    for one in read:
        status = state.statuses.get(one.trial_id, "" if state.statuses else "TERMINATED")
        if status not in _FINAL and not one.error:
            left_out[(status or "not started").lower()] += 1
            continue
        trial = _trial(one, chosen, seed)
        if trial.state == TrialState.COMPLETE and one.was_stopped and one.step < longest:
            early += 1
            trial = replace(trial, state=TrialState(stopped_early))
        trials.append(trial)
    notes = [f"{counted(n, 'trial')} left out: {word}" for word, n in left_out.items()]
    never = len(state.statuses.keys() - {one.trial_id for one in read})
    if never:
        notes.append(f"{counted(never, 'trial')} left out: not started")
    if early:
        notes.append(
            f"{counted(early, 'trial')} stopped by Tune before step {longest}, by its scheduler or "
            f"a stopping rule: taken as {stopped_early} (--stopped-early)"
        )
    if not state.statuses:
        notes.append("no experiment_state file: trials without an error count as finished")
    return Found(
        tool="Ray Tune",
        identity=str(folder.resolve()),
        name=folder.resolve().name,
        objective=chosen,
        direction=direction,
        trials=sorted(trials, key=_by_start),
        at=file_time(folder),
        notes=notes,
    )


def _by_start(trial: FoundTrial) -> tuple[str, str]:
    return (trial.started_at.isoformat() if trial.started_at else "", trial.label)


# --- The experiment ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    #: Trial id -> PENDING, RUNNING, PAUSED, TERMINATED, ERROR; {} if it is not known.
    statuses: Mapping[str, str]
    metric: str | None


def _experiment_state(folder: Path) -> _State:
    """Of the newest state file; nothing of a file that is not as expected."""
    for path in sorted(folder.glob("experiment_state-*.json"), reverse=True):
        try:
            values = json.loads(path.read_text("utf-8"))
            trials = [json.loads(parts[0]) for parts in values["trial_data"]]
            statuses = {str(trial["trial_id"]): str(trial["status"]) for trial in trials}
            metric = values.get("runner_data", {}).get("_metric")
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
        return _State(statuses, metric if isinstance(metric, str) else None)
    return _State({}, None)


def _refuse_unknown(folder: Path, read: Sequence["_Reports"], objective: str) -> None:
    known = dict.fromkeys(name for one in read for name in one.metric_names())
    if known and objective not in known:
        raise ImportRefused(
            f"no trial of {folder} reports {objective!r}; they report {', '.join(known)}"
        )


# --- A trial -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reports:
    """What lies in the folder of one trial."""

    trial_id: str
    params: Mapping[str, Any]
    #: Flat, in order.
    reports: Sequence[Mapping[str, Any]]
    #: Last line of the error; "" without one.
    error: str

    @classmethod
    def of(cls, place: Path) -> "_Reports":
        try:
            params = json.loads((place / "params.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ImportRefused(f"{place / 'params.json'} cannot be read: {error}") from error
        reports = list(_reports(place))
        trial_id = str(reports[-1].get("trial_id", "")) if reports else ""
        # train_a5730_00004_4_lr=0.1_2026-…: an id of eight hexadecimal digits or of two parts.
        trial_id = trial_id or _id_of_folder(place.name)
        return cls(trial_id, flattened(params, "."), reports, _last_line(place / "error.txt"))

    @property
    def step(self) -> int:
        return int(self.reports[-1].get("training_iteration", 0)) if self.reports else 0

    @property
    def was_stopped(self) -> bool:
        """Whether Tune stopped it; a function that returns leaves ``done`` false."""
        return bool(self.reports) and self.reports[-1].get("done") in (True, "True")

    def metric_names(self) -> list[str]:
        names = dict.fromkeys(name for report in self.reports for name in report)
        return [n for n in names if n not in _ADDED and not n.startswith("config/")]


def _id_of_folder(name: str) -> str:
    parts = name.split("_")
    return "_".join(parts[1:3]) if len(parts) > 2 else name


def _reports(place: Path) -> Iterator[dict[str, Any]]:
    """Each report, flat; of ``progress.csv`` where there is no ``result.json``."""
    lines = place / "result.json"
    if lines.is_file():
        for line in lines.read_text("utf-8").splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                # The last line of an experiment that was killed may be cut off.
                continue
            values.pop("config", None)
            yield flattened(values, "/")
        return
    table = place / "progress.csv"
    if not table.is_file():
        return
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: typed_column([row[name] or "" for row in rows]) for name in (rows or [{}])[0]}
    for place_of_row in range(len(rows)):
        yield {name: values[place_of_row] for name, values in columns.items()}


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else "error"


def _trial(one: _Reports, objective: str, seed: str) -> FoundTrial:
    params = {name: plain_value(value) for name, value in one.params.items()}
    found_seed = params.pop(seed, None)
    names = one.metric_names()
    last: dict[str, Any] = {}
    for report in one.reports:
        last |= {name: report[name] for name in names if report.get(name) is not None}
    state, cause = ended_with(_number(last.get(objective)), objective)
    if one.error:
        state, cause = TrialState.FAILED, one.error
    first, final = (one.reports[0], one.reports[-1]) if one.reports else ({}, {})
    return FoundTrial(
        label=one.trial_id,
        params=params,
        state=state,
        metrics=finite_numbers({name: last[name] for name in names if name in last}),
        seed=found_seed,
        curves=_curves(one.reports, names),
        step=one.step,
        started_at=_moment(first, before=first.get("time_this_iter_s")),
        finished_at=_moment(final),
        cause=cause,
        provenance={
            name: final[key] for name, key in (("host", "hostname"), ("pid", "pid")) if key in final
        },
    )


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) else None


def _curves(
    reports: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, list[tuple[int, float]]]:
    """(training iteration, value) by metric; a later attempt replaces steps of an earlier one."""
    curves: dict[str, dict[int, float]] = {name: {} for name in names}
    for report in reports:
        step = report.get("training_iteration")
        if isinstance(step, int):
            for name, value in finite_numbers({n: report.get(n) for n in names}).items():
                curves[name][step] = value
    return {name: sorted(curve.items()) for name, curve in curves.items() if curve}


def _moment(report: Mapping[str, Any], before: Any = 0.0) -> datetime | None:
    at = _number(report.get("timestamp"))
    return None if at is None else datetime.fromtimestamp(at - (_number(before) or 0.0), UTC)
