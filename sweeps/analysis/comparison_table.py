"""A comparison as tables for a terminal, Markdown, LaTeX or CSV."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sweeps.analysis.tables import Format, table_text

_ARMS = ["arm", "sweep", "point", "n", "mean", "sd", "low", "high", "selected", "params"]
_DIFFERENCES = [
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
]


def comparison_csv(found: Mapping[str, Any], table: Literal["arms", "differences"]) -> str:
    """One of the two tables as CSV, numbers in full."""
    if table == "arms":
        return table_text(_ARMS, [_arm(arm, repr) for arm in found["arms"]], "csv")
    rows = [_difference(row, repr) for row in found["differences"]]
    return table_text(_DIFFERENCES, rows, "csv")


def comparison_text(found: Mapping[str, Any], form: Format = "text") -> str:
    """Arms, differences, and everything that differs, one below the other. Not for CSV."""
    short = "{:.4g}".format
    metric = str(found["metric"]).replace("_", " ")
    parts = [
        table_text(
            _ARMS,
            [_arm(arm, short) for arm in found["arms"]],
            form,
            f"{metric}: means over seeds with 95 % intervals",
        )
    ]
    if found["differences"]:
        rows = [_difference(row, short) for row in found["differences"]]
        parts.append(table_text(_DIFFERENCES, rows, form, f"{metric}: a minus b"))
    if found["not_comparable"]:
        unlike = [[row["a"], row["b"], row["reason"]] for row in found["not_comparable"]]
        head = ["a", "b", "why there is no verdict"]
        parts.append(table_text(head, unlike, form, "Not comparable"))
    for key, name, caption in (
        ("differing_fields", "field", "Fields that differ between the arms"),
        ("mixed_provenance", "what", "Mixed provenance"),
    ):
        if found[key]:
            parts.append(_by_arm(found, key, name, form, caption))
    sign = "% " if form == "latex" else ""
    parts += [f"{sign}{note}\n" for note in found["notes"]]
    return "\n".join(parts)


def _by_arm(found: Mapping[str, Any], key: str, name: str, form: Format, caption: str) -> str:
    labels = [arm["label"] for arm in found["arms"]]
    rows = [
        [row[name], *(_word(row["values"].get(label)) for label in labels)] for row in found[key]
    ]
    return table_text([name, *labels], rows, form, caption)


def _arm(arm: Mapping[str, Any], number: Any) -> list[str]:
    return [
        arm["label"],
        arm["sweep"],
        _word(arm["point"]),
        str(arm["n"]),
        *(_number(arm[name], number) for name in ("mean", "sd", "low", "high")),
        f"best of {arm['chosen_from']}" if arm["selected"] else "no",
        ", ".join(f"{name} {_word(value)}" for name, value in arm["params"].items()),
    ]


def _difference(row: Mapping[str, Any], number: Any) -> list[str]:
    return [
        row["a"],
        row["b"],
        *(_number(row[name], number) for name in ("difference", "low", "high")),
        row["method"],
        _number(row["p_value"], number),
        _number(row["p_holm"], number),
        row["verdict"],
        {None: "–", True: "yes", False: "not shown"}[row["non_inferior"]],
    ]


def _number(value: float | None, number: Any) -> str:
    return "" if value is None else str(number(value))


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_word, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
