"""Tables as text for a terminal, Markdown, LaTeX or CSV: of words, an analysis or a comparison."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sweeps.analysis.arms import Analysis, ArmResult, Estimate

Format = Literal["text", "markdown", "latex", "csv"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "±": r"$\pm$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}

_LATEX_SIGNS = re.compile("|".join(map(re.escape, _LATEX)))


def table_text(
    header: Sequence[str], rows: Sequence[Sequence[str]], form: Format = "text", caption: str = ""
) -> str:
    """Return the table, ending with a line break. ``caption`` stands above it, not in CSV."""
    if form == "csv":
        return _csv(header, rows)
    if form == "latex":
        return _latex(header, rows, caption)
    body = _markdown(header, rows) if form == "markdown" else _text(header, rows)
    return f"{caption}\n\n{body}\n" if caption else f"{body}\n"


def latex_text(text: str) -> str:
    """Text in which LaTeX takes no sign for a command."""
    return _LATEX_SIGNS.sub(lambda found: _LATEX[found[0]], text)


def _text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)])


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """For the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(latex_text, cells)) + r" \\"

    lines = [
        f"% {caption}" if caption else "",
        rf"\begin{{tabular}}{{{'l' * len(header)}}}",
        r"\toprule",
        line(header),
        r"\midrule",
        *map(line, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(part for part in lines if part) + "\n"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def result_table(analysis: Analysis, form: Format = "text") -> str:
    """Return a row per arm: mean ± half the 95 % interval over seeds, errors in percent."""
    columns = [analysis.metric] + ([] if analysis.metric == "test_error" else ["test_error"])
    header = ["arm", *(_title(name) for name in columns), "seeds", "points", "chosen params"]
    rows = [_row(arm, columns) for arm in analysis.arms]
    table = table_text(header, rows, form).rstrip("\n")
    if form == "csv":
        return table
    sign = "% " if form == "latex" else ""
    return "\n".join([table, *(f"\n{sign}{note}" for note in analysis.notes)])


def _row(arm: ArmResult, columns: Sequence[str]) -> list[str]:
    cells = []
    for name in columns:
        value = arm.test_error if name == "test_error" else arm.objective
        cells.append(shown_estimate(value, name))
    if arm.selected:
        cells[0] += " (selected)"
    params = {name: value for name, value in arm.params.items() if name not in arm.arm}
    points = str(arm.points)
    if arm.points_diverged:
        points += f" ({arm.points_diverged} diverged)"
    seeds = "0" if arm.objective is None else str(arm.objective.n)
    return [_params(arm.arm) or "all", *cells, seeds, points, _params(params) or "–"]


def shown_estimate(value: Estimate | None, metric: str) -> str:
    """Return "4.14 ± 0.30": percent where the metric is an error, four digits else."""
    if value is None:
        return "–"
    percent = metric.endswith("_error")
    scale, digits = (100.0, "{:.2f}") if percent else (1.0, "{:.4g}")
    text = digits.format(value.mean * scale)
    if value.high is not None:
        text += f" ± {digits.format((value.high - value.mean) * scale)}"
    return text


def _title(metric: str) -> str:
    return metric.replace("_", " ") + (" %" if metric.endswith("_error") else "")


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in params.items())


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
