"""Parallel coordinates: every point as a line over the sampled fields and the objective.

Drawn as SVG lines in a few groups, not with plotly's own trace: that one needs WebGL and compiles
code at run time, which the pages' security policy forbids.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from dashboards.plots.scales import Scale, scale_of
from dashboards.wording.formatting import number, sampled_value
from sweeps.figures.plotly_values import LEGEND_BELOW, figure
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import is_log
from sweeps.records import Point
from sweeps.store.queries.thinning import thin

#: Lines that a reader can still distinguish; the best points are all among them.
MAX_LINES = 400
#: Where a line passes an axis whose field its point does not use: below the axis.
UNUSED = -0.13
#: Share of the points up to which a group reaches, its name, colour and width. From Okabe and
#: Ito's colours; the best is drawn last and thickest.
GROUPS = (
    (0.1, "best tenth", "#D55E00", 2.2),
    (0.25, "to a quarter", "#E69F00", 1.6),
    (0.5, "to a half", "#56B4E9", 1.1),
    (1.0, "the rest", "#8A8F98", 0.8),
)


def parallel_plot(
    points: Sequence[Point], space: Mapping[str, Any], objective: str | Quantity, *, maximize: bool
) -> Plot:
    """Lines over the fields of the space, in groups by rank of the objective."""
    ranked = sorted(
        (p for p in points if p.mean is not None),
        key=lambda p: (-(p.mean or 0.0) if maximize else p.mean or 0.0, p.number),
    )
    lines = _chosen(ranked)
    fields = [field for field in space if any(field in p.params for _, p in lines)]
    scales = [
        scale_of(f, [p.params[f] for _, p in lines if f in p.params], log=is_log(space[f]))
        for f in fields
    ]
    unused = {f for f in fields if any(f not in p.params for _, p in lines)}
    what = quantity(objective)
    shown = [what.shown(p.mean or 0.0) for _, p in lines]
    last = scale_of(what.key, shown or [0.0], log=True)
    traces, rows = [], list[Row]()
    start = 0
    for upto, name, colour, width in GROUPS:
        end = max(math.ceil(upto * len(ranked)), 1)
        mine = [p for rank, p in lines if start <= rank < end]
        start = end
        if mine:
            trace = _trace(mine, [*scales, last], what, name)
            traces.append({**trace, "line": {"color": colour, "width": width}})
    for rank, point in lines:
        rows.append((point.number, rank + 1, point.mean, *(point.params.get(f) for f in fields)))
    drawn = figure(
        list(reversed(traces)),
        x={
            "title": "sampled fields and objective",
            "tickvals": list(range(len(scales) + 1)),
            "ticktext": [*(quantity(f).short for f in fields), what.axis],
            "range": [-0.25, len(scales) + 0.25],
            "fixedrange": True,
            "side": "top",
        },
        y={
            "title": "place between the ends",
            "visible": False,
            "range": [-0.2, 1.06],
            "fixedrange": True,
        },
        name="parallel-coordinates",
        height=420,
        shapes=[_axis(index) for index in range(len(scales) + 1)],
        annotations=[
            label
            for index, scale in enumerate([*scales, last])
            for label in _labels(index, scale, any_unused=scale.field in unused)
        ],
        **LEGEND_BELOW,
    )
    drawn["layout"]["margin"] = {"l": 30, "r": 30, "t": 70, "b": 10}
    return Plot(drawn, ("point", "rank", "mean", *fields), rows)


def _chosen(ranked: Sequence[Point]) -> list[tuple[int, Point]]:
    """Rank and point of each line: all of the best points, an even part of the others."""
    best = min(len(ranked), MAX_LINES // 4)
    lines = list(enumerate(ranked))
    return [*lines[:best], *thin(lines[best:], MAX_LINES - best)]


def _trace(
    points: Sequence[Point], scales: Sequence[Scale], what: Quantity, name: str
) -> dict[str, Any]:
    x: list[int | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for point in points:
        mean = what.shown(point.mean or 0.0)
        about = f"point {point.number}: {what.name} {mean:.4g} {what.unit_markup}"
        for index, scale in enumerate(scales):
            value = mean if index == len(scales) - 1 else point.params.get(scale.field)
            known = index == len(scales) - 1 or scale.field in point.params
            place = scale.place(value) if known else None
            # A line straight through would look like a value.
            y.append(UNUSED if place is None else round(place, 4))
            x.append(index)
            words = sampled_value(value) if known else "not used"
            text.append(f"{about}<br>{quantity(scale.field).short} = {words}")
        x.append(None)
        y.append(None)
        text.append("")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "connectgaps": False,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _axis(index: int) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": index,
        "x1": index,
        "y0": 0,
        "y1": 1,
        "line": {"color": "#8A8F98", "width": 1},
        "layer": "above",
    }


def _labels(index: int, scale: Scale, *, any_unused: bool) -> list[dict[str, Any]]:
    """Ends and middle of a numeric axis, or every word of an axis of words."""
    if scale.words:
        places = [((at + 0.5) / len(scale.words), word) for at, word in enumerate(scale.words)]
    elif scale.high > scale.low:
        ends = (0.0, 0.5, 1.0)
        places = [(place, number(scale.value(place), 3)) for place in ends]
    else:
        places = [(0.5, number(scale.low, 3))]
    if any_unused:
        places.append((UNUSED, "not used"))
    return [
        {
            "x": index,
            "y": place,
            "text": word[:24],
            "showarrow": False,
            "xanchor": "left",
            "xshift": 5,
            "font": {"size": 11},
        }
        for place, word in places
    ]
