"""An analysis as a table that people read."""

from collections.abc import Sequence
from typing import Any

from sweeps.analysis.arms import Analysis, ArmResult, Estimate
from sweeps.analysis.tables import Format, table_text


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
