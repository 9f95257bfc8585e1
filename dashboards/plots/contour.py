"""The objective over two fields at once: a smooth surface through the points, and the points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.plots.answers import NO_PLOT, Plot, Row
from dashboards.plots.scales import Scale, scale_of
from sweeps.figures.plotly_values import figure, log_axis
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import is_number
from sweeps.records import Point
from sweeps.store.queries.thinning import thin

#: Cells on each side.
CELLS = 40
#: Width of the smoothing for one point, as a part of a side; it falls as points are added, by the
#: usual rule for two dimensions.
WIDTH = 0.25
#: Weight of points near a cell below which nothing is drawn there.
LEAST_WEIGHT = 0.04
MAX_MARKS = 600
#: From blue (good) through white to orange: distinguishable for colour-blind readers.
COLOURS = ((0.0, "#0072B2"), (0.5, "#D9E3EC"), (1.0, "#D55E00"))


@dataclass(frozen=True)
class Surface:
    """A grid of smoothed means; None if no point is near. ``z[row][column]``, row = y."""

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
    points: Sequence[Point],
    x: str | Quantity,
    y: str | Quantity,
    objective: str | Quantity,
    *,
    log: tuple[bool, bool],
    maximize: bool = False,
) -> Plot:
    """Contours of the objective over fields ``x`` and ``y``.

    The surface is a mean of the points around each place, weighted by a Gaussian; it averages over
    all other fields, as a sensitivity does. The better end of the objective is blue.
    """
    what, across, up = quantity(objective), quantity(x), quantity(y)
    chosen = both_numeric(points, across.key, up.key)
    if not chosen:
        return NO_PLOT
    sides = (
        scale_of(across.key, [p.params[across.key] for p in chosen], log=log[0]),
        scale_of(up.key, [p.params[up.key] for p in chosen], log=log[1]),
    )
    values = [what.shown(p.mean or 0.0) for p in chosen]
    grid = surface(chosen, sides, values)
    marks = thin(chosen, MAX_MARKS)
    traces = [
        _surface_trace(
            grid, (across, up), what, _range(values, maximize=maximize), maximize=maximize
        ),
        {
            "type": "scatter",
            "mode": "markers",
            "x": [p.params[across.key] for p in marks],
            "y": [p.params[up.key] for p in marks],
            "marker": {"size": 5, "color": "rgba(30,30,30,0.55)", "line": {"width": 0}},
            "meta": {"points": [str(p.number) for p in marks], "each": 1},
            "customdata": [[p.number, what.shown(p.mean or 0.0)] for p in marks],
            "hovertemplate": (
                f"point %{{customdata[0]}}<br>{across.short} %{{x:.4g}}<br>"
                f"{up.short} %{{y:.4g}}<br>{what.name} %{{customdata[1]:.4g}} "
                f"{what.unit_markup}<extra></extra>"
            ),
        },
    ]
    drawn = figure(
        traces,
        x={"title": across.axis, **_side(sides[0])},
        y={"title": up.axis, **_side(sides[1])},
        name=f"contour-{across.key}-{up.key}",
        height=420,
    )
    rows: list[Row] = [
        (p.number, p.params[across.key], p.params[up.key], p.mean, p.sd, p.n) for p in chosen
    ]
    return Plot(drawn, ("point", across.key, up.key, "mean", "sd", "seeds"), rows)


def surface(
    points: Sequence[Point], sides: tuple[Scale, Scale], values: Sequence[float]
) -> Surface:
    """Smooth values at the points onto a grid: binned sums, blurred along both sides."""
    # Loaded with the first contour: the service starts without it.
    import numpy as np

    columns, rows = ([_cell(side.place(p.params[side.field])) for p in points] for side in sides)
    sums, counts = np.zeros((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    np.add.at(sums, (rows, columns), values)
    np.add.at(counts, (rows, columns), 1.0)
    width = CELLS * WIDTH * len(points) ** (-1 / 6)
    at = np.arange(CELLS)
    kernel = np.exp(-0.5 * ((at[:, None] - at) / width) ** 2)
    total, weight = kernel @ sums @ kernel, kernel @ counts @ kernel
    z = [
        [value / n if n >= LEAST_WEIGHT else None for value, n in zip(*row, strict=True)]
        for row in zip(total.tolist(), weight.tolist(), strict=True)
    ]
    x, y = ([side.value((cell + 0.5) / CELLS) for cell in range(CELLS)] for side in sides)
    return Surface(x, y, z)


def _cell(place: float | None) -> int:
    return min(CELLS - 1, max(0, int((place or 0.0) * CELLS)))


def _range(values: Sequence[float], *, maximize: bool) -> tuple[float, float]:
    """Ends of the colour scale, without the worst tenth of the points."""
    best_first = sorted(values, reverse=maximize)
    best, worst = best_first[0], best_first[round(0.9 * (len(best_first) - 1))]
    return (worst, best) if maximize else (best, worst)


def _surface_trace(
    grid: Surface,
    fields: tuple[Quantity, Quantity],
    what: Quantity,
    ends: tuple[float, float],
    *,
    maximize: bool,
) -> dict[str, Any]:
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
        **({"reversescale": True} if maximize else {}),
        "line": {"width": 0.5},
        "connectgaps": False,
        "colorbar": {"title": {"text": what.axis, "side": "right"}, "thickness": 12},
        "hovertemplate": (
            f"{fields[0].short} %{{x:.4g}}<br>{fields[1].short} %{{y:.4g}}<br>"
            f"{what.name} about %{{z:.4g}} {what.unit_markup}<extra></extra>"
        ),
    }


def _side(side: Scale) -> dict[str, Any]:
    ends = [side.low, side.high]
    if side.log:
        return {**log_axis(ends), "range": [math.log10(end) for end in ends]}
    return {"range": ends}
