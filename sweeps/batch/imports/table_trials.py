"""Makes trials of the rows of a table whose columns are known: fields, metrics, seed, state."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweeps.batch.imports.found import FoundTrial, counted, finite_numbers, is_number
from sweeps.records import TrialState
from sweeps.store.commands.imports import ImportRefused

#: What tools write for the state of a run; None: it has not ended, and is left out.
STATES: Mapping[str, TrialState | None] = {
    **dict.fromkeys(
        ("complete", "completed", "finished", "terminated", "success", "succeeded", "done", "ok"),
        TrialState.COMPLETE,
    ),
    **dict.fromkeys(("pruned", "stopped", "early_stopped"), TrialState.PRUNED),
    **dict.fromkeys(("diverged", "nan"), TrialState.DIVERGED),
    **dict.fromkeys(
        ("failed", "fail", "failure", "error", "errored", "crashed", "killed", "preempted"),
        TrialState.FAILED,
    ),
    **dict.fromkeys(("cancelled", "canceled"), TrialState.CANCELLED),
    **dict.fromkeys(("running", "waiting", "pending", "queued", "preempting", "paused")),
}


@dataclass(frozen=True)
class Table:
    """A table with the meaning of its columns. Sequences have a value for each row."""

    columns: Mapping[str, Sequence[Any]]
    fields: Sequence[str]
    #: With the objective first.
    metrics: Sequence[str]
    #: Column -> its name in the sweep, where that is another.
    names: Mapping[str, str]
    seed: str | None
    step: str | None
    #: What the source calls each row, in what state it is ("" = it ran to its end), its times.
    labels: Sequence[str]
    states: Sequence[str]
    started: Sequence[datetime | None]
    finished: Sequence[datetime | None]

    def name(self, column: str) -> str:
        return self.names.get(column, column)

    @property
    def objective(self) -> str:
        return self.name(self.metrics[0])


def trials_of(table: Table) -> tuple[list[FoundTrial], list[str]]:
    """The trials that have ended, and what was left out. Raises ImportRefused for other tables."""
    _refuse_words(table)
    trials: list[FoundTrial] = []
    left_out: Counter[str] = Counter()
    for rows in _groups(table):
        word = table.states[rows[-1]].strip().lower()
        if word and word not in STATES:
            raise ImportRefused(
                f"row {rows[-1] + 2} has the state {word!r}, which is none of {', '.join(STATES)}"
            )
        state = STATES[word] if word else TrialState.COMPLETE
        if state is None:
            left_out[word] += 1
        else:
            trials.append(_trial(table, rows, state, word))
    return trials, [f"{counted(n, 'trial')} left out: {word}" for word, n in left_out.items()]


def _refuse_words(table: Table) -> None:
    for name in table.metrics:
        for row, value in enumerate(table.columns[name]):
            if value is not None and not is_number(value):
                raise ImportRefused(f"{name} must hold numbers, got {value!r} in row {row + 2}")


def _groups(table: Table) -> list[list[int]]:
    """Rows of each trial: one, or, with steps, all of the same fields, seed and name, by step."""
    if table.step is None:
        return [[row] for row in range(len(table.labels))]
    names = [*table.fields, *([table.seed] if table.seed else [])]
    groups: dict[str, list[int]] = {}
    for row, label in enumerate(table.labels):
        key = repr([label, *(table.columns[name][row] for name in names)])
        groups.setdefault(key, []).append(row)
    steps = table.columns[table.step]
    wrong = [step for step in steps if type(step) is not int or step < 0]
    if wrong:
        raise ImportRefused(f"{table.step} must hold whole numbers from 0, got {wrong[0]!r}")
    return [sorted(rows, key=lambda row: steps[row]) for rows in groups.values()]


def _trial(table: Table, rows: Sequence[int], state: TrialState, word: str) -> FoundTrial:
    last = rows[-1]
    value = table.columns[table.metrics[0]][last]
    cause = "" if state == TrialState.COMPLETE else f"{word} in the source"
    if state == TrialState.COMPLETE:
        state, cause = ended_with(value, table.objective)
    return FoundTrial(
        label=table.labels[last] or f"row {last + 2}",
        params={
            table.name(name): table.columns[name][last]
            for name in table.fields
            if table.columns[name][last] is not None
        },
        state=state,
        metrics=finite_numbers(
            {table.name(name): table.columns[name][last] for name in table.metrics}
        ),
        seed=table.columns[table.seed][last] if table.seed else None,
        curves=_curves(table, rows),
        step=table.columns[table.step][last] if table.step else 0,
        started_at=table.started[rows[0]],
        finished_at=table.finished[last],
        cause=cause,
    )


def ended_with(value: float | None, objective: str) -> tuple[TrialState, str]:
    """State and cause of a trial that ran to its end, by its objective."""
    if value is None:
        return TrialState.FAILED, f"no value of {objective}"
    if not math.isfinite(value):
        return TrialState.DIVERGED, f"{objective} is {value}"
    return TrialState.COMPLETE, ""


def _curves(table: Table, rows: Sequence[int]) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every metric; of a step that comes twice, the later row."""
    if table.step is None:
        return {}
    curves = {}
    for name in table.metrics:
        found = {table.columns[table.step][row]: table.columns[name][row] for row in rows}
        if curve := finite_numbers(found):
            curves[table.name(name)] = list(curve.items())
    return curves
