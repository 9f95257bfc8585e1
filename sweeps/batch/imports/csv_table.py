"""Reads a CSV table with a row for each trial, or, with a column of steps, for each report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.batch.imports.cells import (
    Asked,
    file_time,
    labels_of_rows,
    moment,
    read_table,
    refuse_missing,
    typed_column,
)
from sweeps.batch.imports.found import Found
from sweeps.batch.imports.table_trials import Table, trials_of
from sweeps.store.commands.imports import ImportRefused

#: Columns that are no fields: what they say of a row is read, or is of no use.
_LABELS = ("trial", "run", "name", "id")
_ABOUT = {*_LABELS, "state", "status", "started_at", "finished_at"}
#: Beginnings of names: of fields, and of metrics.
_OF_FIELDS, _OF_METRICS = ("config.", "params."), ("metrics.", "summary.")


def read_csv(path: Path, asked: Asked) -> Found:
    """Read a table with a head, in UTF-8.

    Columns are fields unless they are asked for as something else, say which trial a row is
    (``trial``, ``run``, ``name``, ``id``), its state or its times (``state``, ``status``,
    ``started_at``, ``finished_at``), or are text that differs in every row. If any begins with
    ``config.`` or ``params.``, only those are fields, and those with ``metrics.`` or ``summary.``
    are metrics, as ``ndsweep export`` writes them.

    Raises ImportRefused for a file that is no such table, and for names that are no columns.
    """
    head, rows = read_table(path)
    if asked.objective is None or asked.direction is None:
        raise ImportRefused("--objective and --direction must be given for a CSV file")
    refuse_missing(path, head, asked)
    columns = {name: typed_column([row[name] for row in rows]) for name in head}
    kinds = _kinds(head, columns, asked, asked.objective)
    state = next((name for name in ("state", "status") if name in head), None)
    label = next((name for name in _LABELS if name in head), None)
    table = Table(
        columns=columns,
        fields=kinds.fields,
        metrics=kinds.metrics,
        names=_short_names([*kinds.fields, *kinds.metrics]),
        seed=kinds.seed,
        step=asked.step,
        labels=[row[label] if label else "" for row in rows],
        states=[row[state] if state else "" for row in rows],
        started=[moment(row.get("started_at")) for row in rows],
        finished=[moment(row.get("finished_at")) for row in rows],
    )
    trials, left_out = trials_of(table)
    fields = sorted(map(table.name, kinds.fields))
    return Found(
        tool="CSV",
        identity="\n".join([str(path.resolve()), *fields]),
        name=path.stem,
        objective=table.objective,
        direction=asked.direction,
        trials=trials,
        at=file_time(path),
        notes=[*left_out, *kinds.notes],
    )


@dataclass(frozen=True)
class _Kinds:
    fields: list[str]
    #: With the objective first.
    metrics: list[str]
    seed: str | None
    notes: list[str]


def _kinds(
    head: Sequence[str], columns: Mapping[str, Sequence[Any]], asked: Asked, objective: str
) -> _Kinds:
    """Sort the columns into fields and metrics, and say which were left out."""
    seeds = ("seed", "config.seed", "params.seed")
    seed = asked.seed or next((name for name in seeds if name in head), None)
    metrics = [objective, *asked.metrics, *(n for n in head if n.startswith(_OF_METRICS))]
    others = {*metrics, *asked.ignore, *_ABOUT, *seeds, seed, asked.step}
    prefixed = [name for name in head if name.startswith(_OF_FIELDS)]
    fields = [name for name in asked.fields or prefixed or head if name not in others]
    notes = []
    empty = [name for name in fields if all(value is None for value in columns[name])]
    if empty:
        notes.append(f"empty columns: {', '.join(empty)}")
    labels = [n for n in fields if n not in asked.fields and labels_of_rows(columns[n])]
    notes += [
        f"{name} is text that differs in every row, and no field (--params NAME,… makes it one)"
        for name in labels
    ]
    kept = [name for name in fields if name not in (*empty, *labels)]
    return _Kinds(kept, list(dict.fromkeys(metrics)), seed, notes)


def _short_names(columns: Sequence[str]) -> dict[str, str]:
    """Column -> its name without ``config.`` and ``metrics.``."""
    prefixes = (*_OF_FIELDS, *_OF_METRICS)
    return {name: name.partition(".")[2] for name in columns if name.startswith(prefixes)}
