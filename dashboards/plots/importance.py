"""Plots of importance and of variance shares.

Importance tells what sets the best tenth of the points apart; a variance share tells how much of
the spread between all points a field explains by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from dashboards.wording.importance_notes import branch_name
from sweeps.analysis.variance_share import VarianceShare
from sweeps.figures.colours import GREY, PALETTE, colour
from sweeps.figures.plotly_values import LEGEND_BELOW, figure
from sweeps.figures.quantities import Quantity, quantity


def importance_plot(rows: Sequence[Mapping[str, Any]], training: str) -> Plot:
    """A bar for each field of each branch, the most important on top.

    Args:
        rows: As the driver stores them (PED-ANOVA): ``branch``, ``points``, ``quantile`` and
            ``fields``, field -> share 0..1.
        training: Whose fields they are.
    """
    fields = sorted(
        {name for row in rows for name in row["fields"]},
        key=lambda name: max(row["fields"].get(name, 0.0) for row in rows),
    )
    traces = []
    for index, row in enumerate(rows):
        mine = [name for name in fields if name in row["fields"]]
        name = branch_name(row["branch"], training)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [f"{quantity(field, training=training).short} " for field in mine],
                "x": [100 * row["fields"][field] for field in mine],
                "marker": {"color": colour(index)},
                "hovertemplate": (
                    f"%{{y}}: %{{x:.0f}} %<br>{name}, {row['points']:,} points<extra></extra>"
                ),
            }
        )
    share = 100 * max((row["quantile"] for row in rows), default=0.1)
    drawn = figure(
        traces,
        x={"title": f"importance for the best {share:g} % of points (%)", "range": [0, 100]},
        y={
            "title": "field",
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [f"{quantity(field, training=training).short} " for field in fields],
        },
        name="importance",
        height=max(200, 90 + 26 * sum(len(row["fields"]) for row in rows)),
        # A single branch is named too: its bars do not describe all points.
        **(LEGEND_BELOW if any(row["branch"] for row in rows) else {}),
    )
    table: list[Row] = [
        (branch_name(row["branch"], training), field, row["fields"][field], row["points"])
        for row in rows
        for field in reversed(fields)
        if field in row["fields"]
    ]
    return Plot(drawn, ("branch", "field", "importance", "points"), table)


def variance_plot(rows: Sequence[VarianceShare], objective: str | Quantity, training: str) -> Plot:
    """A bar with its interval for each field, the most important on top."""
    ordered = list(reversed(rows))
    names = [f"{quantity(row.field, training=training).short} " for row in ordered]
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
            "color": GREY,
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
