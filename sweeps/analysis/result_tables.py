"""The tables of an analysis and of a comparison."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol

from sweeps.analysis.arms import Analysis, ArmResult
from sweeps.analysis.formatting import (
    NOTHING,
    Write,
    arm_name,
    declared_unit,
    estimate_text,
    figures,
    metric_title,
    settings_words,
    word,
)
from sweeps.analysis.table import Format, Table, to_csv, written


class _Arm(Protocol):
    """An arm of an analysis, as it is computed or as the API sends it."""

    @property
    def test_error(self) -> object | None: ...


#: Metrics that a sweep declares, as ``Sweep.metrics``: {} for images.
Declared = Mapping[str, Mapping[str, Any]]


def result_table(
    analysis: Analysis, form: Format = "text", declared: Declared = MappingProxyType({})
) -> str:
    """Return a row per arm: mean with its 95 % interval over seeds, errors in percent.

    ``declared`` gives units. A training of one's own has a test error only if it reports one.
    """
    columns = [analysis.metric]
    if shows_test_error(analysis.metric, analysis.arms, declared):
        columns.append("test_error")
    titles = (metric_title(name, declared_unit(declared, name)) for name in columns)
    head = ("arm", *titles, "seeds", "points", "chosen params")
    rows = tuple(_row(arm, columns) for arm in analysis.arms)
    table = written(Table(head, rows), form).rstrip("\n")
    if form == "csv":
        return table
    return "\n".join([table, *(f"\n{_note(note, form)}" for note in analysis.notes)])


def shows_test_error(metric: str, arms: Iterable[_Arm], declared: Declared) -> bool:
    """Whether a table of results has a column for the test error beside that of ``metric``."""
    if metric == "test_error":
        return False
    return not declared or any(arm.test_error is not None for arm in arms)


def _note(note: str, form: Format) -> str:
    return f"% {note}" if form == "latex" else note


def _row(arm: ArmResult, columns: Sequence[str]) -> tuple[str, ...]:
    cells = [
        estimate_text(name, arm.test_error if name == "test_error" else arm.objective)
        for name in columns
    ]
    if arm.selected:
        cells[0] += " (selected)"
    params = {name: value for name, value in arm.params.items() if name not in arm.arm}
    points = str(arm.points)
    if arm.points_diverged:
        points += f" ({arm.points_diverged} diverged)"
    seeds = "0" if arm.objective is None else str(arm.objective.n)
    name = settings_words(arm.arm) or arm_name({})
    return (name, *cells, seeds, points, settings_words(params) or NOTHING)


_ARMS = ("arm", "sweep", "point", "n", "mean", "sd", "low", "high", "selected", "params")

_DIFFERENCES = (
    "a",
    "b",
    "difference",
    "low",
    "high",
    "method",
    "p",
    "p (Holm)",
    "a is",
    "non-inferior",
)


def comparison_csv(found: Mapping[str, Any], table: Literal["arms", "differences"]) -> str:
    """One of the two tables as CSV, numbers in full."""
    if table == "arms":
        return to_csv(_arms(found, repr))
    return to_csv(_differences(found, repr))


def comparison_text(
    found: Mapping[str, Any], form: Format = "text", declared: Sequence[Declared] = ()
) -> str:
    """Arms, differences, and everything that differs, one below the other. Not for CSV.

    ``declared``: of each compared sweep; the unit is written where all declare the same.
    """
    metric = str(found["metric"]).replace("_", " ")
    units = {declared_unit(one, found["metric"]) for one in declared}
    if len(units) == 1 and (unit := units.pop()):
        metric += f" ({unit})"
    tables = [_arms(found, figures, f"{metric}: means over seeds with 95 % intervals")]
    if found["differences"]:
        tables.append(_differences(found, figures, f"{metric}: a minus b"))
    if found["not_comparable"]:
        unlike = tuple((row["a"], row["b"], row["reason"]) for row in found["not_comparable"])
        tables.append(Table(("a", "b", "why there is no verdict"), unlike, "Not comparable"))
    for key, name, caption in (
        ("differing_fields", "field", "Fields that differ between the arms"),
        ("mixed_provenance", "what", "Mixed provenance"),
    ):
        if found[key]:
            tables.append(_by_arm(found, key, name, caption))
    notes = [f"{_note(note, form)}\n" for note in found["notes"]]
    return "\n".join([*(written(table, form) for table in tables), *notes])


#: Digits of fields, which are compared by eye: two more than of means.
_DIGITS = 6
_word = partial(word, digits=_DIGITS)


def _by_arm(found: Mapping[str, Any], key: str, name: str, caption: str) -> Table:
    labels = [arm["label"] for arm in found["arms"]]
    rows = [
        (row[name], *(_word(row["values"].get(label)) for label in labels)) for row in found[key]
    ]
    return Table((name, *labels), tuple(rows), caption)


def _arms(found: Mapping[str, Any], number: Write, caption: str = "") -> Table:
    rows = tuple(
        (
            arm["label"],
            arm["sweep"],
            _word(arm["point"]),
            str(arm["n"]),
            *(_number(arm[name], number) for name in ("mean", "sd", "low", "high")),
            f"best of {arm['chosen_from']}" if arm["selected"] else "no",
            settings_words(arm["params"], _DIGITS),
        )
        for arm in found["arms"]
    )
    return Table(_ARMS, rows, caption)


def _differences(found: Mapping[str, Any], number: Write, caption: str = "") -> Table:
    rows = tuple(
        (
            row["a"],
            row["b"],
            *(_number(row[name], number) for name in ("difference", "low", "high")),
            row["method"],
            _number(row["p_value"], number),
            _number(row["p_holm"], number),
            row["verdict"],
            {None: NOTHING, True: "yes", False: "not shown"}[row["non_inferior"]],
        )
        for row in found["differences"]
    )
    return Table(_DIFFERENCES, rows, caption)


def _number(value: float | None, number: Write) -> str:
    return "" if value is None else number(value)
