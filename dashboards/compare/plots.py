"""Differences between arms as points with intervals, against no difference."""

from collections.abc import Sequence

from dashboards.compare.view import Difference
from dashboards.plots.answers import Plot, Row
from dashboards.wording.formatting import shortened
from sweeps.figures.colours import GREY, PALETTE
from sweeps.figures.plotly_values import figure
from sweeps.figures.quantities import Quantity, markup, quantity

#: Colour and marker by verdict; filled if a difference is shown.
_STYLES = {"lower": (PALETTE[0], "circle"), "higher": (PALETTE[1], "diamond")}
_NOT_SHOWN = (GREY, "circle-open")
#: Letters of an arm's name beside the plot; longer names would leave no room for the plot.
_NAME = 28


def difference_plot(rows: Sequence[Difference], metric: str | Quantity) -> Plot:
    """One line per pair: the difference of means and its 95 % interval."""
    what = quantity(metric)
    unit = "percentage points" if what.is_fraction else what.unit_markup
    ordered = list(reversed(rows))
    traces = []
    for index, row in enumerate(ordered):
        ink, marker = _STYLES.get(row.verdict.partition(",")[0], _NOT_SHOWN)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [row.middle],
                "y": [index],
                "error_x": {
                    "type": "data",
                    "array": [row.high - row.middle],
                    "arrayminus": [row.middle - row.low],
                    "symmetric": False,
                    "color": ink,
                    "thickness": 2,
                    "width": 6,
                },
                "marker": {"color": ink, "symbol": marker, "size": 10},
                "hovertemplate": (
                    f"{row.arms}<br>{markup(row.text)}<br>{row.verdict}<extra></extra>"
                ),
            }
        )
    zero = {"color": GREY, "width": 1.5, "dash": "dash"}
    drawn = figure(
        traces,
        x={"title": f"difference of {what.name}" + (f" ({unit})" if unit else "")},
        y={
            "title": "pair of arms",
            "tickvals": list(range(len(ordered))),
            "ticktext": [_label(row.arms) for row in ordered],
            "tickfont": {"size": 11.5},
            "range": [-0.6, len(ordered) - 0.4],
        },
        name="differences",
        height=max(200, 110 + 34 * len(rows)),
        shapes=[
            {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": zero}
        ],
    )
    table: list[Row] = [
        (row.arms, row.middle, row.low, row.high, row.p_value, row.verdict) for row in rows
    ]
    return Plot(drawn, ("arms", "difference", "low", "high", "p_holm", "verdict"), table)


def _label(arms: str) -> str:
    return " − ".join(shortened(arm, _NAME) for arm in arms.split(" − "))
