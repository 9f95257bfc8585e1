"""The paper's tables as points beside ours, and its figures from our curves."""

from collections import Counter
from collections.abc import Sequence

from dashboards.plots.figure import (
    DASHES,
    LEGEND_BELOW,
    OPTIMIZER_COLOURS,
    PALETTE,
    Plot,
    Row,
    band,
    figure,
    readable_axis,
    wide_axis,
)
from dashboards.wording.quantities import quantity
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
                "color": "#8A8F98",
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
                "color": "#8A8F98",
            },
            "marker": {
                "size": 10,
                "color": [
                    OPTIMIZER_COLOURS.get(_NAMES.get(row.entry.label, ""), PALETTE[5])
                    for _, row in ours
                ],
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
            "marker": {"size": 5, "color": "#8A8F98"},
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
    bands, lines, rows = [], [], list[Row]()
    drawn_of: Counter[str] = Counter()
    for curve in curves:
        # A colour for each optimizer, as in every other plot; its curves differ in their dashes.
        ink = OPTIMIZER_COLOURS.get(curve.optimizer, PALETTE[5])
        stroke = DASHES[drawn_of[curve.optimizer] % len(DASHES)]
        drawn_of[curve.optimizer] += 1
        mean, low, high = (
            [what.shown(value) for value in values]
            for values in (curve.mean, curve.low, curve.high)
        )
        if curve.n > 1:
            bands.append(band(curve.steps, low, high, ink, group=curve.label))
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": curve.label,
                "legendgroup": curve.label,
                "x": list(curve.steps),
                "y": mean,
                "line": {"color": ink, "width": 2, "dash": stroke},
                "hovertemplate": (
                    f"{curve.label}<br>step %{{x:,}}<br>{what.name} %{{y:.4g}} {what.unit}"
                    f" (mean of {curve.n})<extra></extra>"
                ),
            }
        )
        columns = (curve.steps, curve.mean, curve.low, curve.high)
        rows += [(curve.label, *row, curve.n) for row in zip(*columns, strict=True)]
    shown = [y for line in lines for y in _floats(line["y"])]
    axis = readable_axis(shown) if wide_axis(shown) else {}
    drawn = figure(
        [*bands, *lines],
        x={"title": "step t (optimizer steps)", "rangemode": "tozero"},
        y={"title": what.axis, **axis},
        name=name,
        height=380,
        shapes=[_final(optimizer, value) for optimizer, value in finals],
        **LEGEND_BELOW,
    )
    return Plot(drawn, ("arm", "step", "mean", "low", "high", "seeds"), rows)


def _floats(values: object) -> list[float]:
    return list(values) if isinstance(values, list) else []


def _final(optimizer: str, value: float) -> dict[str, object]:
    ink = OPTIMIZER_COLOURS.get(optimizer, PALETTE[5])
    line = {"color": ink, "width": 1.5, "dash": "dot"}
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": line,
    }
