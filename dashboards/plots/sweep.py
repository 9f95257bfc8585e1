"""The plots of a sweep's page: learning curves and sensitivity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboards.plots.answers import Plot, Row
from dashboards.plots.views import Places, View, viewed
from sweeps.figures import sweep as figures
from sweeps.figures.chart import Marks, bars
from sweeps.figures.colours import GREY
from sweeps.figures.plotly_values import LEGEND_BELOW, figure_of, legend_room
from sweeps.figures.quantities import Quantity, plain, quantity
from sweeps.figures.sweep import Curve, Setting

VIEW = View()

#: Colour of the selected point, as in the tables.
_SELECTED = "#A67C00"


@dataclass(frozen=True)
class Trend:
    """Mean objective at one value, or in one interval of values, of a hyperparameter."""

    value: float | str
    mean: float
    #: 95 % interval; None if the design or the count does not allow one.
    low: float | None
    high: float | None
    n: int


def learning_curves(
    metric: str | Quantity, curves: Sequence[Curve], view: View = VIEW, places: Places | None = None
) -> Plot:
    """Mean of ``metric`` over steps for each point, with a band of one deviation over seeds.

    ``places``: where the curves lie if ``view`` asks for another x axis than steps.
    """
    what = quantity(metric)
    chart = figures.learning_curves(what, curves, name=f"curves-{what.key.replace('/', '-')}")
    hover = [
        {
            **({"meta": {"points": [c.key], "each": 0}} if c.key else {}),
            "customdata": [
                _spread(sd, n, what, c.members) for sd, n in zip(c.sd, c.n, strict=True)
            ],
            "hovertemplate": (
                f"{c.label}<br>step %{{x:,}}<br>{what.name} %{{y:.4g}} %{{customdata}}"
                "<extra></extra>"
            ),
        }
        for c in curves
    ]
    height = 380 + legend_room(curve.label for curve in curves)
    rows: list[Row] = [
        (plain(curve.label), *row)
        for curve in curves
        for row in zip(curve.steps, curve.mean, curve.sd, curve.n, strict=True)
    ]
    chart, words = viewed(chart, hover, view, places)
    drawn = figure_of(chart, hover=words, height=height, **LEGEND_BELOW)
    return Plot(drawn, ("point", "step", "mean", "sd", "seeds"), rows)


def sensitivity(
    param: str | Quantity,
    objective: str | Quantity,
    settings: Sequence[Setting],
    trend: Sequence[Trend],
    *,
    log: bool,
    selected: int | None,
    colours: Mapping[str, str] | None = None,
) -> Plot:
    """Objective of every point against one hyperparameter, with the mean if it is known.

    Args:
        param: Field of the config, for the axis and the file name.
        objective: Metric that the sweep optimises.
        settings: The points to draw.
        trend: Mean and interval over equal or neighbouring values; empty for adaptive samplers.
        log: Whether the hyperparameter's axis is logarithmic.
        selected: Number of the point marked "selected".
        colours: As of ``figures.sensitivity``.
    """
    chart = figures.sensitivity(param, objective, settings, is_log=log, colours=colours)
    series = list(chart.series)
    hover = [
        _hover(param, objective, [s for s in settings if s.optimizer == one.name]) for one in series
    ]
    if trend:
        series.insert(0, _trend_marks(trend, objective))
        hover.insert(0, _trend_hover(trend, objective))
    if best := [setting for setting in settings if setting.point == selected]:
        shown = quantity(objective).shown
        x, y = [s.value for s in best], [shown(s.mean) for s in best]
        series.append(Marks("selected", _SELECTED, x, y, symbol="star-open", size=15))
        hover.append({**_hover(param, objective, best), "meta": None})
    legend = LEGEND_BELOW if len(series) > 1 else {}
    drawn = figure_of(replace(chart, series=series), hover=hover, height=300, **legend)
    rows = [(s.point, s.optimizer, s.value, s.mean, s.sd, s.n) for s in settings]
    return Plot(drawn, ("point", "optimizer", quantity(param).key, "mean", "sd", "seeds"), rows)


def _hover(
    param: str | Quantity, objective: str | Quantity, settings: Sequence[Setting]
) -> dict[str, Any]:
    """The point's number, its value, and its mean with its spread."""
    digits = ":.4g" if isinstance(settings[0].value, float) else ""
    return {
        "meta": {"points": [str(s.point) for s in settings], "each": 1},
        "customdata": [[s.point, _spread(s.sd, s.n, objective)] for s in settings],
        "hovertemplate": (
            f"point %{{customdata[0]}} ({settings[0].optimizer})<br>"
            f"{quantity(param).short} %{{x{digits}}}<br>"
            f"{quantity(objective).name} %{{y:.4g}} %{{customdata[1]}}<extra></extra>"
        ),
    }


def _spread(sd: float | None, n: int, metric: str | Quantity, of: str = "seeds") -> str:
    """Spread and seeds behind a mean: ``± 0.21 % (sd of 3 seeds)``."""
    what = quantity(metric)
    if sd is None or n < 2:
        return f"{what.unit_markup} (one {of.removesuffix('s')})".strip()
    unit = f" {what.unit_markup}" if what.unit else ""
    return f"± {what.shown(sd):.2g}{unit} (sd of {n} {of})"


def _trend_marks(trend: Sequence[Trend], objective: str | Quantity) -> Marks:
    shown = quantity(objective).shown
    means = [shown(t.mean) for t in trend]
    low, high = (
        [None if end is None else shown(end) for end in ends]
        for ends in ([t.low for t in trend], [t.high for t in trend])
    )
    return Marks(
        "mean, 95 % interval",
        GREY,
        [t.value for t in trend],
        means,
        **bars(means, low, high),
        symbol="line-ew-open",
        size=14,
        # No line leads from word to word.
        is_joined=not any(isinstance(t.value, str) for t in trend),
        has_caps=True,
    )


def _trend_hover(trend: Sequence[Trend], objective: str | Quantity) -> dict[str, Any]:
    what = quantity(objective)

    def interval(one: Trend) -> str:
        if one.low is None or one.high is None:
            return ""
        return f"({what.shown(one.low):.4g} to {what.shown(one.high):.4g})"

    return {
        "customdata": [[t.n, interval(t)] for t in trend],
        "hovertemplate": (
            f"mean of %{{customdata[0]}} points: %{{y:.4g}} {what.unit_markup} %{{customdata[1]}}"
            "<extra></extra>"
        ),
    }
