"""Tables of text: reads a CSV file, and gives each column the type that all its cells have."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeps.batch.imports.found import plain_value
from sweeps.records import Direction
from sweeps.store.commands.imports import ImportRefused


@dataclass(frozen=True)
class Asked:
    """What a person says of a table."""

    #: Column of the objective, and which end of it is better; None = as the table says.
    objective: str | None = None
    direction: Direction | None = None
    #: Columns of the configuration; () = the reader's rule.
    fields: Sequence[str] = ()
    #: Further columns that were measured.
    metrics: Sequence[str] = ()
    ignore: Sequence[str] = ()
    #: Column of the seed; None = ``seed``, if there is one.
    seed: str | None = None
    #: Column of steps: each row is one report then.
    step: str | None = None


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows of a CSV file with a head. Raises ImportRefused for other files."""
    try:
        # W&B and spreadsheets may begin a file with a mark of its encoding.
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ImportRefused(f"cannot read {path}: {reason}") from error
    try:
        rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
    except csv.Error as error:
        raise ImportRefused(f"{path} is not CSV: {error}") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise ImportRefused(f"{path} must have a head and at least one row, got {len(rows)} lines")
    head = [name.strip() for name in rows[0]]
    repeated = sorted({name for name in head if head.count(name) > 1})
    if repeated or "" in head:
        what = f"{repeated[0]!r} twice" if repeated else "one without a name"
        raise ImportRefused(f"{path} must name each column once, got {what}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(head):
            raise ImportRefused(
                f"{path}: every row must have the {len(head)} columns of the head, row {number} "
                f"has {len(row)}"
            )
    return head, [dict(zip(head, row, strict=True)) for row in rows[1:]]


def typed_column(cells: Sequence[str]) -> list[Any]:
    """Cells as values of one type: whole numbers, numbers, booleans, lists of numbers, or text.

    An empty cell has no value: None.
    """
    stripped = [cell.strip() for cell in cells]
    for read in (_whole, _number, _boolean, _list):
        try:
            return [read(cell) if cell else None for cell in stripped]
        except ValueError:
            continue
    return [plain_value(cell) if cell else None for cell in stripped]


def _whole(cell: str) -> Any:
    return plain_value(int(cell))


def _number(cell: str) -> float:
    return float(cell)


def _boolean(cell: str) -> bool:
    words = {"true": True, "false": False}
    if cell.lower() not in words:
        raise ValueError(cell)
    return words[cell.lower()]


def _list(cell: str) -> Any:
    if not cell.startswith("["):
        raise ValueError(cell)
    value = plain_value(json.loads(cell))
    if not isinstance(value, list):
        raise ValueError(cell)
    return value


def labels_of_rows(values: Sequence[Any]) -> bool:
    """Whether a column of text names rows: another word in each of at least three."""
    known = [value for value in values if value is not None]
    return (
        len(known) == len(values) >= 3
        and all(isinstance(value, str) for value in known)
        and len(set(known)) == len(known)
    )


def moment(cell: str | None) -> datetime | None:
    """A time in ISO 8601, in UTC where it names no zone; None for other text."""
    try:
        at = datetime.fromisoformat((cell or "").strip())
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


def file_time(path: Path) -> datetime:
    """When a file was last written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def refuse_missing(path: Path, head: Sequence[str], asked: Asked) -> None:
    """Raise ImportRefused for a name that is no column."""
    named = [("--objective", asked.objective), ("--seed", asked.seed), ("--step", asked.step)]
    named += [("--params", name) for name in asked.fields]
    named += [("--metrics", name) for name in asked.metrics]
    named += [("--ignore", name) for name in asked.ignore]
    for option, name in named:
        if name is not None and name not in head:
            raise ImportRefused(
                f"{option} must name columns of {path.name}, which has {', '.join(head[:30])}"
                f"{' and more' if len(head) > 30 else ''}; got {name!r}"
            )
