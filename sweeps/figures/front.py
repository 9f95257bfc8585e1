"""The Pareto front of a sweep with several objectives, over two of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.figures.axes import spans_decade
from sweeps.figures.chart import Axis, Chart, Marks, bars
from sweeps.figures.colours import GREY, PALETTE
from sweeps.figures.quantities import Quantity


def front_chart(
    front: Mapping[str, Any],
    others: Sequence[Mapping[str, float]],
    x: Quantity,
    y: Quantity,
    *,
    title: str = "",
) -> Chart:
    """Means of two objectives: the points on the front with their 95 % intervals, and the others.

    Args:
        front: As the driver stores it; see ``sweeps.analysis.stored.front``.
        others: Metric -> mean, of each point off the front.
        x, y: The objectives on the axes.
        title: "" beside a caption.
    """
    on = [point["values"] for point in front["points"]]
    series = []
    if others:
        off = [x.shown(one[x.key]) for one in others], [y.shown(one[y.key]) for one in others]
        series.append(Marks("other points", GREY, off[0], off[1], size=5))
    if on:
        across, up = (_values(on, what) for what in (x, y))
        of_x, of_y = (bars(mean, low, high) for mean, low, high in (across, up))
        series.append(
            Marks(
                "on the front",
                PALETTE[0],
                across[0],
                up[0],
                **of_y,
                left=of_x["below"],
                right=of_x["above"],
                size=9,
                has_caps=True,
            )
        )
    return Chart("front", _axis(x, series, "x"), _axis(y, series, "y"), series, title)


def _values(
    points: Sequence[Mapping[str, Any]], what: Quantity
) -> tuple[list[float], list[float | None], list[float | None]]:
    """Means, and both ends of their intervals."""
    found = [point[what.key] for point in points]
    low, high = (
        [None if one[end] is None else what.shown(one[end]) for one in found]
        for end in ("low", "high")
    )
    return [what.shown(one["mean"]) for one in found], low, high


def _axis(what: Quantity, series: Sequence[Marks], which: str) -> Axis:
    """Fit to the means: an interval from two seeds may be many times as long."""
    means = [float(value) for one in series for value in getattr(one, which)]
    if spans_decade(means):
        return Axis(what.axis, is_log=True, ends=(0.8 * min(means), 1.25 * max(means)))
    low, high = min(means, default=0.0), max(means, default=1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(what.axis, ends=(low - margin, high + margin))
