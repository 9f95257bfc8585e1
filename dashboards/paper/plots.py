"""The paper's tables as points beside ours, and its figures from our curves."""

from collections import Counter
from collections.abc import Callable, Sequence

from dashboards.plots.answers import Plot, Row
from sweeps.figures.axes import readable_ends, spans_decade
from sweeps.figures.chart import STEPS, Axis, Chart, Level, Line
from sweeps.figures.colours import DASHES, GREY, optimizer_colour
from sweeps.figures.plotly_values import LEGEND_BELOW, figure, figure_of
from sweeps.figures.quantities import quantity
from sweeps.paper.comparison import ComparedTable, Measured
from sweeps.paper.figures import MeanCurve

_NAMES = {"SGD": "sgd", "Adam": "adam", "ND-Adam": "ndadam"}


def table_plot(found: ComparedTable) -> Plot:
    """The paper's mean of each row as a diamond, ours with its interval and every seed."""
    rows = list(reversed(found.rows))
    names = [row.entry.name for row in rows]
    ours = [(index, row) for index, row in enumerate(rows) if row.measured.mean is not None]
    traces: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "paper, mean of 3",
            "x": [row.entry.test_error for row in rows],
            "y": [index + 0.16 for index in range(len(rows))],
            "marker": {
                "symbol": "diamond-open",
                "size": 11,
                "color": GREY,
                "line": {"width": 2},
            },
            "hovertemplate": "paper %{x:.2f} %<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "ours, mean with 95 % interval",
            "x": [row.measured.mean for _, row in ours],
            "y": [index - 0.1 for index, _ in ours],
            "error_x": {
                "type": "data",
                "array": [_half(row.measured) for _, row in ours],
                "thickness": 2,
                "width": 6,
                "color": GREY,
            },
            "marker": {
                "size": 10,
                "color": [optimizer_colour(_NAMES.get(row.entry.label, "")) for _, row in ours],
            },
            "customdata": [row.measured.n for _, row in ours],
            "hovertemplate": "ours %{x:.2f} % of %{customdata} seeds<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "our seeds",
            "x": [value for _, row in ours for value in row.measured.values],
            "y": [index - 0.3 for index, row in ours for _ in row.measured.values],
            "marker": {"size": 5, "color": GREY},
            "hovertemplate": "one seed %{x:.2f} %<extra></extra>",
        },
    ]
    drawn = figure(
        traces,
        x={"title": "test error (%)"},
        y={
            "title": "row of the table",
            "tickvals": list(range(len(rows))),
            "ticktext": names,
            "range": [-0.7, len(rows) - 0.3],
        },
        name=found.table.id,
        height=120 + 46 * len(rows),
        **LEGEND_BELOW,
    )
    table: list[Row] = [
        (
            row.entry.label,
            row.entry.part,
            row.entry.test_error,
            row.measured.mean,
            row.measured.low,
            row.measured.high,
            row.measured.n,
            row.verdict,
        )
        for row in found.rows
    ]
    columns = ("method", "part", "paper", "ours", "low", "high", "seeds", "verdict")
    return Plot(drawn, columns, table)


def _half(ours: Measured) -> float:
    """Half of the interval; nothing for a single seed."""
    return 0.0 if ours.high is None or ours.mean is None else ours.high - ours.mean


def curves_plot(
    name: str, metric: str, curves: Sequence[MeanCurve], finals: Sequence[tuple[str, float]] = ()
) -> Plot:
    """Mean of each arm over steps with the range of its seeds, and the paper's final values.

    Args:
        name: Of a downloaded file.
        metric: Gives the axis its words and its unit.
        curves: One per arm.
        finals: Optimizer and the paper's final value, in the unit of the axis; dotted lines.
    """
    what = quantity(metric)
    lines = curve_lines(curves, what.shown)
    shown = [value for line in lines for value in line.y if value is not None]
    wide = spans_decade(shown)
    y = Axis(what.axis, is_log=wide, ends=readable_ends(shown) if wide else None)
    levels = [Level(value, optimizer_colour(optimizer), "dot") for optimizer, value in finals]
    hover = [
        {
            "hovertemplate": (
                f"{curve.label}<br>step %{{x:,}}<br>{what.name} %{{y:.4g}} {what.unit}"
                f" (mean of {curve.n})<extra></extra>"
            )
        }
        for curve in curves
    ]
    chart = Chart(name, STEPS, y, lines, levels=levels)
    drawn = figure_of(chart, hover=hover, height=380, **LEGEND_BELOW)
    rows: list[Row] = [
        (curve.label, *row, curve.n)
        for curve in curves
        for row in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True)
    ]
    return Plot(drawn, ("arm", "step", "mean", "low", "high", "seeds"), rows)


def curve_lines(
    curves: Sequence[MeanCurve], shown: Callable[[float], float], *, has_bands: bool = True
) -> list[Line]:
    """The curves of a figure, each with the range of its seeds.

    They have the colour of their optimizer; curves of one optimizer differ in their dashes.
    """
    lines = []
    drawn_of: Counter[str] = Counter()
    for curve in curves:
        mean, low, high = (
            [shown(value) for value in values] for values in (curve.mean, curve.low, curve.high)
        )
        if curve.n < 2 or not has_bands:
            low, high = [], []
        stroke = DASHES[drawn_of[curve.optimizer] % len(DASHES)]
        drawn_of[curve.optimizer] += 1
        ink = optimizer_colour(curve.optimizer)
        lines.append(Line(curve.label, ink, curve.steps, mean, low, high, dash=stroke))
    return lines
