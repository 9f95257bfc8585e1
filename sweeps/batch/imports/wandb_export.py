"""Reads the CSV file that the runs table of Weights & Biases exports.

Its columns are: about the run (Name, State, Created, Runtime, Sweep, …), then the config in
alphabetical order, then the summary in alphabetical order. Read from exports of 2025.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
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
from sweeps.batch.imports.found import Found, is_number
from sweeps.batch.imports.table_trials import Table, trials_of
from sweeps.records import Direction
from sweeps.store.commands.imports import ImportRefused

#: Columns about a run, in whatever order a person put them.
_ABOUT = {
    *("Name", "ID", "Agent", "State", "Notes", "User", "Tags", "Created", "Updated", "End Time"),
    *("Runtime", "Sweep", "Group", "Job Type", "JobType", "Hostname", "Host", "Commit", "Github"),
    *("GPU Count", "GPU Type", "Entity", "Project", "Heartbeat", "Last Seen", "Description"),
}
#: What a sweep's own configuration adds to that of its runs.
_OF_SWEEP = ("method", "program", "metric.name", "metric.goal")
_OF_SWEEP_PARTS = ("parameters.", "early_terminate.")


def read_wandb(path: Path, asked: Asked) -> Found:
    """Read an export of the runs table.

    Without ``--params``, the fields are the columns of the config, and the other columns of numbers
    are metrics. The objective is that of the W&B sweep where the table has it (``metric.name``).

    Raises ImportRefused for other files, and where the order of the columns does not tell config
    and summary apart.
    """
    head, rows = read_table(path)
    if not {"Name", "State"} <= set(head):
        raise ImportRefused(
            f"{path.name} is no export of the runs table of W&B: it must have the columns Name and "
            f"State, got {', '.join(head[:10])}; `ndsweep import csv` reads other tables"
        )
    refuse_missing(path, head, asked)
    columns = {name: typed_column([row[name] for row in rows]) for name in head}
    objective, direction = _objective(head, columns, asked)
    rest = [name for name in head if name not in _ABOUT]
    fields = list(asked.fields) or _config(rest, columns, objective)
    seed = asked.seed or ("seed" if "seed" in rest else None)
    labels = [n for n in fields if n not in asked.fields and labels_of_rows(columns[n])]
    fields = [n for n in fields if n not in (*labels, *asked.ignore, seed, objective)]
    metrics = [objective, *(n for n in _measured(rest, columns, fields, asked) if n != objective)]
    notes = [
        f"{name} is text that differs in every run, and no field (--params NAME,… makes it one)"
        for name in labels
    ]
    created = [moment(row.get("Created")) for row in rows]
    runtimes = columns.get("Runtime", [None] * len(rows))
    table = Table(
        columns=columns,
        fields=fields,
        metrics=[name for name in metrics if name != seed],
        names={},
        seed=seed,
        step=None,
        labels=[row["Name"] for row in rows],
        states=[row["State"] for row in rows],
        started=created,
        finished=[
            at + timedelta(seconds=seconds) if at is not None and is_number(seconds) else None
            for at, seconds in zip(created, runtimes, strict=True)
        ],
    )
    trials, left_out = trials_of(table)
    return Found(
        tool="W&B",
        identity="\n".join([str(path.resolve()), *sorted(fields)]),
        name=path.stem,
        objective=objective,
        direction=direction,
        trials=trials,
        at=file_time(path),
        notes=[*left_out, *notes],
    )


def _objective(
    head: Sequence[str], columns: Mapping[str, Sequence[Any]], asked: Asked
) -> tuple[str, Direction]:
    """What was asked for, else what the W&B sweep of the runs declares."""
    objective = asked.objective or _only(columns.get("metric.name"))
    if objective is None or objective not in head:
        named = "" if objective is None else f", and {objective!r} of metric.name is no column"
        raise ImportRefused(f"--objective must name the column of the objective{named}")
    declared = {"minimize": "minimize", "maximize": "maximize"}
    goal = _only(columns.get("metric.goal")) if asked.objective is None else None
    direction: Any = asked.direction or declared.get(str(goal))
    if direction is None:
        raise ImportRefused(
            f"--direction must say which end of {objective} is better, minimize or maximize"
        )
    return objective, direction


def _only(values: Sequence[Any] | None) -> str | None:
    """The word that all rows have that have any."""
    found = {value for value in values or () if value is not None}
    return str(found.pop()) if len(found) == 1 else None


def _config(rest: Sequence[str], columns: Mapping[str, Sequence[Any]], objective: str) -> list[str]:
    """The columns before the one place at which the alphabet begins again."""
    breaks = {
        tuple(place for place, (a, b) in enumerate(pairwise(map(key, rest)), 1) if b < a)
        for key in (str, str.casefold)
    }
    single = [places[0] for places in breaks if len(places) == 1]
    if not single or objective in rest[: single[0]]:
        raise ImportRefused(
            "the order of the columns does not tell config and summary apart (each is in "
            "alphabetical order as W&B exports them); name the fields with --params"
        )
    config = rest[: single[0]]
    is_of_sweep = any(name.startswith("parameters.") for name in config)
    return [
        name
        for name in config
        if any(value is not None for value in columns[name])
        and not (is_of_sweep and (name in _OF_SWEEP or name.startswith(_OF_SWEEP_PARTS)))
    ]


def _measured(
    rest: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    fields: Sequence[str],
    asked: Asked,
) -> list[str]:
    """Columns of the summary that hold numbers, without W&B's own."""
    start = max((rest.index(name) for name in fields), default=-1) + 1
    candidates = asked.metrics or [name for name in rest[start:] if not name.startswith("_")]
    return [
        name
        for name in candidates
        if name not in (*fields, *asked.ignore)
        and any(map(is_number, columns[name]))
        and all(value is None or is_number(value) for value in columns[name])
    ]
