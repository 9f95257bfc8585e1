"""The plot of how much of the spread between all points each field explains by itself."""

from collections.abc import Sequence

from dashboards.plots.figure import PALETTE, Plot, figure
from dashboards.wording.quantities import quantity
from sweeps.analysis.variance_share import VarianceShare


def variance_plot(rows: Sequence[VarianceShare], objective: str) -> Plot:
    """A bar with its interval for each field, the most important on top."""
    ordered = list(reversed(rows))
    names = [f"{quantity(row.field).short} " for row in ordered]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [100 * row.share for row in ordered],
        "error_x": {
            "type": "data",
            "array": [100 * (row.high - row.share) for row in ordered],
            "arrayminus": [100 * (row.share - row.low) for row in ordered],
            "symmetric": False,
            "thickness": 1.5,
            "width": 5,
            "color": "#8A8F98",
        },
        "marker": {"color": PALETTE[0]},
        "customdata": [[100 * row.low, 100 * row.high, row.n] for row in ordered],
        "hovertemplate": (
            "%{y}: %{x:.0f} % (%{customdata[0]:.0f} to %{customdata[1]:.0f} %)"
            "<br>from %{customdata[2]} points<extra></extra>"
        ),
    }
    drawn = figure(
        [trace],
        x={
            "title": f"share of the variance of {quantity(objective).name} (%)",
            "range": [0, 100],
        },
        y={"title": "field", "type": "category"},
        name="variance",
        height=max(180, 70 + 34 * len(rows)),
    )
    table = [(row.field, row.share, row.low, row.high, row.n) for row in rows]
    return Plot(drawn, ("field", "share", "low", "high", "points"), table)
