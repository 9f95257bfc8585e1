"""An analysis as a table that people read: plain text or Markdown."""

from collections.abc import Sequence
from typing import Any, Literal

from sweeps.analysis import Analysis, ArmResult, Estimate

Format = Literal["text", "markdown"]


def result_table(analysis: Analysis, form: Format = "text") -> str:
    """Return a row per arm: mean ± half the 95 % interval over seeds, errors in percent."""
    columns = [analysis.metric] + ([] if analysis.metric == "test_error" else ["test_error"])
    header = ["arm", *(_title(name) for name in columns), "seeds", "points", "chosen params"]
    rows = [_row(arm, columns) for arm in analysis.arms]
    table = _markdown(header, rows) if form == "markdown" else _text(header, rows)
    return "\n".join([table, *(f"\n{note}" for note in analysis.notes)])


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


def _text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)])
