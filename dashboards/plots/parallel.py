"""Parallel coordinates: every point as a line over the sampled fields and the objective.

Drawn as SVG lines in a few groups, not with plotly's own trace: that one needs WebGL and compiles
code at run time, which the pages' security policy forbids.
"""

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from dashboards.plots.answers import Plot, Row
from dashboards.plots.groups import NO_VALUE, grouped
from dashboards.plots.scales import Scale, scale_of
from dashboards.wording.formatting import choice_word, number, sampled_value
from sweeps.figures.plotly_values import LEGEND_BELOW, figure
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import is_log, is_number
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


class Style(NamedTuple):
    """How the lines of a group are drawn."""

    name: str
    colour: str
    width: float


#: Of points that do not fit the reader's condition, and the most of them that are drawn.
LEFT_OUT = Style("left out", "rgba(138,143,152,0.25)", 0.8)
MAX_FAINT = 100


def parallel_plot(
    points: Sequence[Point],
    space: Mapping[str, Any],
    objective: str | Quantity,
    training: str,
    *,
    maximize: bool,
    fitting: Set[int] | None = None,
    colour: str = "",
) -> Plot:
    """Lines over the fields of the space, in groups by rank of the objective.

    Args:
        points: All of the sweep.
        space: Field -> domain.
        objective: Metric that the sweep optimises.
        training: Whose fields they are.
        maximize: Whether more of it is better.
        fitting: Points that fit the reader's condition; the others are drawn faintly. None = all.
        colour: A field by whose values lines are grouped in place of the rank.
    """
    ranked = sorted(
        (p for p in points if p.mean is not None),
        key=lambda p: (-(p.mean or 0.0) if maximize else p.mean or 0.0, p.number),
    )
    fits = [fitting is None or p.number in fitting for p in ranked]
    lines = _chosen(ranked, fits)
    left_out = thin([p for p, is_in in zip(ranked, fits, strict=True) if not is_in], MAX_FAINT)
    drawn_points = [*(p for _, p in lines), *left_out]
    fields = [field for field in space if any(field in p.params for p in drawn_points)]
    scales = [
        scale_of(f, [p.params[f] for p in drawn_points if f in p.params], log=is_log(space[f]))
        for f in fields
    ]
    unused = {f for f in fields if any(f not in p.params for p in drawn_points)}
    what = quantity(objective)
    names = [quantity(field, training=training).short for field in fields]
    words = [*names, what.short]
    last = scale_of(what.key, [what.shown(p.mean or 0.0) for p in drawn_points] or [0.0], log=True)
    traces = []
    if left_out:
        traces.append(_trace(left_out, [*scales, last], words, what, LEFT_OUT))
    for style, mine in _groups(lines, len(ranked), quantity(colour, training=training)):
        traces.append(_trace(mine, [*scales, last], words, what, style))
    rows: list[Row] = [
        (point.number, rank + 1, point.mean, *(point.params.get(f) for f in fields))
        for rank, point in lines
    ]
    drawn = figure(
        traces,
        x={
            "title": "sampled fields and objective",
            "tickvals": list(range(len(scales) + 1)),
            "ticktext": [*names, what.axis],
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
    size = 100.0 if what.is_fraction else 1.0
    drawn["brush"] = [
        *(_brush(scale, drawn_points, is_unused=scale.field in unused) for scale in scales),
        {"field": "point_mean", "low": last.low / size, "high": last.high / size, "log": last.log},
    ]
    return Plot(drawn, ("point", "rank", "mean", *fields), rows)


def _chosen(ranked: Sequence[Point], fits: Sequence[bool]) -> list[tuple[int, Point]]:
    """Rank and point of each line that fits: all of the best, an even part of the others."""
    lines = [(rank, p) for rank, p in enumerate(ranked) if fits[rank]]
    best = min(len(lines), MAX_LINES // 4)
    return [*lines[:best], *thin(lines[best:], MAX_LINES - best)]


def _groups(
    lines: Sequence[tuple[int, Point]], count: int, colour: Quantity
) -> list[tuple[Style, list[Point]]]:
    """Style and points of each group; what is drawn last lies on top."""
    points = [point for _, point in lines]
    if colour.key:
        by_value = grouped(colour, [p.params.get(colour.key, NO_VALUE) for p in points])
        return [
            (Style(one.name, one.colour, 1.3), [points[at] for at in one.members])
            for one in by_value
        ]
    found = []
    start = 0
    for upto, name, ink, width in GROUPS:
        end = max(math.ceil(upto * count), 1)
        mine = [point for rank, point in lines if start <= rank < end]
        start = end
        if mine:
            found.append((Style(name, ink, width), mine))
    return found[::-1]


def _brush(scale: Scale, points: Sequence[Point], *, is_unused: bool) -> dict[str, Any]:
    """What the page's script needs to write a brushed part of an axis as a condition."""
    ends: dict[str, Any]
    if not scale.words:
        ends = {"low": scale.low, "high": scale.high, "log": scale.log}
    else:
        values = {
            choice_word(p.params[scale.field]): p.params[scale.field]
            for p in points
            if scale.field in p.params
        }
        places = [(at + 0.5) / len(scale.words) for at in range(len(scale.words))]
        words = [literal(values[word]) for word in scale.words]
        ends = {"words": list(zip(places, words, strict=True))}
    return {"field": scale.field, **ends, **({"unused": UNUSED} if is_unused else {})}


def literal(value: Any) -> str:
    """A value as a condition on trials writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return repr(value)
    text = value if isinstance(value, str) else json.dumps(value)
    quote = "'" if '"' in text else '"'
    return f"{quote}{text}{quote}"


def _trace(
    points: Sequence[Point],
    scales: Sequence[Scale],
    fields: Sequence[str],
    what: Quantity,
    style: Style,
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
            text.append(f"{about}<br>{fields[index]} = {words}")
        x.append(None)
        y.append(None)
        text.append("")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": style.name,
        "x": x,
        "y": y,
        "text": text,
        "connectgaps": False,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": style.colour, "width": style.width},
        "meta": {"points": [str(point.number) for point in points], "each": len(scales) + 1},
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
