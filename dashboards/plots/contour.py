"""The objective over two fields at once: a smooth surface through the points, and the points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.plots.figure import Plot, Row, figure, log_axis
from dashboards.plots.scales import Scale, is_number, scale_of
from dashboards.wording.quantities import quantity
from sweeps.records import Point

#: Cells on each side.
CELLS = 40
#: Width of the smoothing for one point, as a part of a side; it falls as points are added, by the
#: usual rule for two dimensions.
WIDTH = 0.25
#: Weight of points near a cell below which nothing is drawn there.
LEAST_WEIGHT = 0.04
MAX_MARKS = 600
#: Blue where it is good, through white, to orange: told apart by every reader.
COLOURS = ((0.0, "#0072B2"), (0.5, "#D9E3EC"), (1.0, "#D55E00"))


@dataclass(frozen=True)
class Surface:
    """A grid of smoothed means; None where no point is near. ``z[row][column]``, row = y."""

    x: list[float]
    y: list[float]
    z: list[list[float | None]]


def both_numeric(points: Sequence[Point], x: str, y: str) -> list[Point]:
    """The points with a mean in which both fields are numbers."""
    return [
        p
        for p in points
        if p.mean is not None and is_number(p.params.get(x)) and is_number(p.params.get(y))
    ]


def contour_plot(
    points: Sequence[Point], x: str, y: str, objective: str, *, log: tuple[bool, bool]
) -> Plot:
    """Contours of the objective over fields ``x`` and ``y``.

    The surface is a mean of the points around each place, weighted by a Gaussian; it averages over
    all other fields, as a sensitivity does.
    """
    chosen = both_numeric(points, x, y)
    what = quantity(objective)
    if not chosen:
        return Plot({}, (), ())
    sides = (
        scale_of(x, [p.params[x] for p in chosen], log=log[0]),
        scale_of(y, [p.params[y] for p in chosen], log=log[1]),
    )
    values = [what.shown(p.mean or 0.0) for p in chosen]
    grid = surface(chosen, sides, values)
    marks = chosen[:: max(1, math.ceil(len(chosen) / MAX_MARKS))]
    traces = [
        _surface_trace(grid, (x, y), objective, _range(values)),
        {
            "type": "scatter",
            "mode": "markers",
            "x": [p.params[x] for p in marks],
            "y": [p.params[y] for p in marks],
            "marker": {"size": 5, "color": "rgba(30,30,30,0.55)", "line": {"width": 0}},
            "customdata": [[p.number, what.shown(p.mean or 0.0)] for p in marks],
            "hovertemplate": (
                f"point %{{customdata[0]}}<br>{quantity(x).short} %{{x:.4g}}<br>"
                f"{quantity(y).short} %{{y:.4g}}<br>{what.name} %{{customdata[1]:.4g}} {what.unit}"
                "<extra></extra>"
            ),
        },
    ]
    drawn = figure(
        traces,
        x={"title": quantity(x).axis, **_side(sides[0])},
        y={"title": quantity(y).axis, **_side(sides[1])},
        name=f"contour-{x}-{y}",
        height=420,
    )
    rows: list[Row] = [(p.number, p.params[x], p.params[y], p.mean, p.sd, p.n) for p in chosen]
    return Plot(drawn, ("point", x, y, "mean", "sd", "seeds"), rows)


def surface(
    points: Sequence[Point], sides: tuple[Scale, Scale], values: Sequence[float]
) -> Surface:
    """Smooth values at the points onto a grid, in two passes over binned sums."""
    sums = [[0.0] * CELLS for _ in range(CELLS)]
    counts = [[0.0] * CELLS for _ in range(CELLS)]
    for point, value in zip(points, values, strict=True):
        column, row = (_cell(side.place(point.params[side.field])) for side in sides)
        sums[row][column] += value
        counts[row][column] += 1
    width = CELLS * WIDTH * len(points) ** (-1 / 6)
    kernel = [math.exp(-0.5 * (offset / width) ** 2) for offset in range(CELLS)]
    sums, counts = (_blurred(_blurred(grid, kernel), kernel) for grid in (sums, counts))
    z = [
        [total / n if n >= LEAST_WEIGHT else None for total, n in zip(*rows, strict=True)]
        for rows in zip(sums, counts, strict=True)
    ]
    x, y = ([side.value((at + 0.5) / CELLS) for at in range(CELLS)] for side in sides)
    return Surface(x, y, z)


def _cell(place: float | None) -> int:
    return min(CELLS - 1, max(0, int((place or 0.0) * CELLS)))


def _blurred(grid: list[list[float]], kernel: Sequence[float]) -> list[list[float]]:
    """Blur along the rows and turn the grid over its diagonal, so that twice does both ways."""
    blurred = [
        [
            sum(value * kernel[abs(at - column)] for at, value in enumerate(row) if value)
            for column in range(CELLS)
        ]
        for row in grid
    ]
    return [list(column) for column in zip(*blurred, strict=True)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Ends of the colours: a few points that did badly would leave one colour for the rest."""
    ordered = sorted(values)
    return ordered[0], ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))]


def _surface_trace(
    grid: Surface, fields: tuple[str, str], objective: str, ends: tuple[float, float]
) -> dict[str, Any]:
    what = quantity(objective)
    return {
        "type": "contour",
        "x": grid.x,
        "y": grid.y,
        "z": grid.z,
        "zmin": ends[0],
        "zmax": ends[1],
        "zauto": False,
        "ncontours": 14,
        "colorscale": [list(stop) for stop in COLOURS],
        "line": {"width": 0.5},
        "connectgaps": False,
        "colorbar": {"title": {"text": what.axis, "side": "right"}, "thickness": 12},
        "hovertemplate": (
            f"{quantity(fields[0]).short} %{{x:.4g}}<br>{quantity(fields[1]).short} %{{y:.4g}}<br>"
            f"{what.name} about %{{z:.4g}} {what.unit}<extra></extra>"
        ),
    }


def _side(side: Scale) -> dict[str, Any]:
    ends = [side.low, side.high]
    if side.log:
        return {**log_axis(ends), "range": [math.log10(end) for end in ends]}
    return {"range": ends}
