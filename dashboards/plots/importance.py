"""The plot of the stored importance: what sets the best tenth of the points apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.figure import LEGEND_BELOW, Plot, Row, colour, figure
from dashboards.wording.importance_notes import branch_name
from dashboards.wording.quantities import quantity


def importance_plot(rows: Sequence[Mapping[str, Any]]) -> Plot:
    """A bar for each field of each branch, the most important on top.

    Args:
        rows: As the driver stores them (PED-ANOVA): ``branch``, ``points``, ``quantile`` and
            ``fields``, field -> share 0..1.
    """
    fields = sorted(
        {name for row in rows for name in row["fields"]},
        key=lambda name: max(row["fields"].get(name, 0.0) for row in rows),
    )
    traces = []
    for index, row in enumerate(rows):
        mine = [name for name in fields if name in row["fields"]]
        name = branch_name(row["branch"])
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [f"{quantity(field).short} " for field in mine],
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
            "categoryarray": [f"{quantity(field).short} " for field in fields],
        },
        name="importance",
        height=max(200, 90 + 26 * sum(len(row["fields"]) for row in rows)),
        # A single branch is named too: its bars are not of all points.
        **(LEGEND_BELOW if any(row["branch"] for row in rows) else {}),
    )
    table: list[Row] = [
        (branch_name(row["branch"]), field, row["fields"][field], row["points"])
        for row in rows
        for field in reversed(fields)
        if field in row["fields"]
    ]
    return Plot(drawn, ("branch", "field", "importance", "points"), table)
