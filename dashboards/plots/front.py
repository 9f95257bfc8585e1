"""The plot of a Pareto front: points over two objectives, those on the front with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from sweeps.figures.front import front_chart
from sweeps.figures.plotly_values import LEGEND_BELOW, figure_of
from sweeps.figures.quantities import Quantity


def front_plot(
    front: Mapping[str, Any], others: Sequence[Mapping[str, float]], x: Quantity, y: Quantity
) -> Plot:
    """See ``sweeps.figures.front``. The table has every objective of each point of the front."""
    chart = front_chart(front, others, x, y)
    names = [one["metric"] for one in front["objectives"]]
    about = f"{x.name} %{{x:.4g}} {x.unit_markup}<br>{y.name} %{{y:.4g}} {y.unit_markup}"
    hover: list[dict[str, Any]] = [
        {"hovertemplate": f"{about}<extra></extra>"} for _ in chart.series
    ]
    if front["points"]:
        hover[-1] = {
            "meta": {"points": [str(point["point"]) for point in front["points"]], "each": 1},
            "customdata": [point["point"] for point in front["points"]],
            "hovertemplate": f"point %{{customdata}}<br>{about}<extra></extra>",
        }
    drawn = figure_of(chart, hover=hover, height=420, **LEGEND_BELOW)
    ends = ("mean", "low", "high")
    rows: list[Row] = [
        (
            point["point"],
            *(point["values"][name][end] for name in names for end in ends),
            point["values"][names[0]]["n"],
            point["is_distinct"],
        )
        for point in front["points"]
    ]
    columns = (f"{name}.{end}" for name in names for end in ends)
    return Plot(drawn, ("point", *columns, "seeds", "is_distinct"), rows)
