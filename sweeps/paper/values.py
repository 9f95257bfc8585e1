"""What the paper reports and says, from one data file."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PaperEntry:
    """One number of a table."""

    label: str
    #: The part of the table it stands in; "" where there is one part.
    part: str
    #: The point of the table's preset.
    params: dict[str, Any]
    #: Percent, mean of ``PaperValues.runs`` runs without a spread.
    test_error: float

    @property
    def name(self) -> str:
        """What tells it apart within its table."""
        return f"{self.label}, {self.part}" if self.part else self.label


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper for one data set and network."""

    id: str
    title: str
    preset: str
    rows: tuple[PaperEntry, ...]


@dataclass(frozen=True)
class PaperRatio:
    """What Figure 1 (b) says of two of its curves."""

    label: str
    claim: str
    over: dict[str, Any]
    under: dict[str, Any]
    expected: float
    #: Whether the paper says that the ratio is the expected one, or that it is not.
    holds: bool


@dataclass(frozen=True)
class PaperClaim:
    """A sentence of the text, and the preset that tries it."""

    preset: str
    title: str
    claim: str


@dataclass(frozen=True)
class PaperValues:
    """Everything that our runs are compared with."""

    source: str
    #: Runs behind each of the paper's means.
    runs: int
    #: Percentage points within which a mean counts as the paper's.
    margin: float
    tables: tuple[PaperTable, ...]
    ratios: tuple[PaperRatio, ...]
    claims: tuple[PaperClaim, ...]


@cache
def paper_values() -> PaperValues:
    """Read the data file."""
    text = (files("sweeps.paper") / "values.json").read_text(encoding="utf-8")
    values = json.loads(text)
    return PaperValues(
        source=values["source"],
        runs=values["runs"],
        margin=values["margin"],
        tables=tuple(_table(table) for table in values["tables"]),
        ratios=tuple(PaperRatio(**ratio) for ratio in values["ratios"]),
        claims=tuple(PaperClaim(**claim) for claim in values["claims"]),
    )


def _table(values: dict[str, Any]) -> PaperTable:
    rows = tuple(PaperEntry(**row) for row in values["rows"])
    return PaperTable(values["id"], values["title"], values["preset"], rows)
