"""The plots of a sweep's page: learning curves and sensitivity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.plots.figure import (
    LEGEND_BELOW,
    OPTIMIZER_COLOURS,
    PALETTE,
    Plot,
    Row,
    band,
    dash,
    figure,
    inks,
    legend_room,
    log_axis,
    wide_axis,
)
from dashboards.wording.formatting import choice_word
from dashboards.wording.plain_text import plain
from dashboards.wording.quantities import quantity

#: With more points than this their marks are small, and deviations stand in the hover text alone:
#: bars would hide the marks, and drawing them would take most of the time.
MOST_WITH_BARS = 200
#: The selected point again, around its mark, in the colour that says so in the tables.
_SELECTED = {
    "name": "selected",
    "marker": {"symbol": "star-open", "size": 15, "line": {"width": 2}, "color": "#A67C00"},
}


@dataclass(frozen=True)
class Curve:
    """A metric over steps, the replicates of one point taken together."""

    label: str
    steps: Sequence[int]
    mean: Sequence[float]
    #: Standard deviation over seeds; None where fewer than two seeds reported.
    sd: Sequence[float | None]
    #: Seeds that reported at each step.
    n: Sequence[int]
    #: Gives the curve its colour where every curve has another one; "" where it is not known.
    optimizer: str = ""


@dataclass(frozen=True)
class Setting:
    """One point of a sweep in a sensitivity plot."""

    point: int
    #: Value of the hyperparameter that is plotted; a word for a choice.
    value: float | str
    mean: float
    sd: float | None
    n: int
    optimizer: str


@dataclass(frozen=True)
class Trend:
    """Mean objective at one value, or in one interval of values, of a hyperparameter."""

    value: float | str
    mean: float
    #: 95 % interval; None where the design or the count does not allow one.
    low: float | None
    high: float | None
    n: int


def learning_curves(metric: str, curves: Sequence[Curve]) -> Plot:
    """Mean of ``metric`` over steps for each point, with a band of one deviation over seeds."""
    what = quantity(metric)
    bands, lines, rows = [], [], list[Row]()
    colours = inks([curve.optimizer for curve in curves])
    for index, (curve, ink) in enumerate(zip(curves, colours, strict=True)):
        mean = [what.shown(value) for value in curve.mean]
        sd = [what.shown(value) if value is not None else 0.0 for value in curve.sd]
        if any(sd):
            # A band that reaches zero would end a log axis; it stops at a tenth of its curve.
            low = [max(m - s, m / 10) if m > 0 else m - s for m, s in zip(mean, sd, strict=True)]
            high = [m + s for m, s in zip(mean, sd, strict=True)]
            bands.append(band(curve.steps, low, high, ink, group=curve.label))
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(mean) <= 30 else "lines",
                "marker": {"size": 4},
                "line": {"color": ink, "width": 2, "dash": dash(index)},
                "name": curve.label,
                "legendgroup": curve.label,
                "x": list(curve.steps),
                "y": mean,
                "customdata": [
                    _spread(*seen, metric) for seen in zip(curve.sd, curve.n, strict=True)
                ],
                "hovertemplate": (
                    f"{curve.label}<br>step %{{x:,}}<br>{what.name} %{{y:.4g}}"
                    " %{customdata}<extra></extra>"
                ),
            }
        )
        columns = (curve.steps, curve.mean, curve.sd, curve.n)
        rows += [(plain(curve.label), *row) for row in zip(*columns, strict=True)]
    drawn = figure(
        [*bands, *lines],
        x={"title": "step t (optimizer steps)", "rangemode": "tozero"},
        y={
            "title": what.axis,
            **wide_axis([what.shown(m) for curve in curves for m in curve.mean]),
        },
        name=f"curves-{metric.replace('/', '-')}",
        height=380 + legend_room(curve.label for curve in curves),
        **LEGEND_BELOW,
    )
    return Plot(drawn, ("point", "step", "mean", "sd", "seeds"), rows)


def sensitivity(
    param: str,
    objective: str,
    settings: Sequence[Setting],
    trend: Sequence[Trend],
    *,
    log: bool,
    selected: int | None,
) -> Plot:
    """Objective of every point against one hyperparameter, with the mean where it is known.

    Args:
        param: Field of the config, for the axis and the file name.
        objective: Metric that the sweep optimises.
        settings: The points to draw.
        trend: Mean and interval over equal or neighbouring values; empty for adaptive samplers.
        log: Whether the hyperparameter's axis is logarithmic.
        selected: Number of the point marked "selected".
    """
    what = quantity(objective)
    traces = [_trend_trace(trend, objective)] if trend else []
    crowded = len(settings) > MOST_WITH_BARS
    for optimizer in sorted({setting.optimizer for setting in settings}):
        mine = [setting for setting in settings if setting.optimizer == optimizer]
        traces.append(_points_trace(param, objective, mine, crowded=crowded))
    if best := [setting for setting in settings if setting.point == selected]:
        traces.append(_points_trace(param, objective, best, crowded=crowded) | _SELECTED)
    drawn = figure(
        traces,
        x={"title": quantity(param).axis, **_axis_of(settings, log=log)},
        y={"title": what.axis, **_range_of_points(settings, objective)},
        name=f"sensitivity-{param}",
        height=300,
        **(LEGEND_BELOW if len(traces) > 1 else {}),
    )
    rows = [(s.point, s.optimizer, s.value, s.mean, s.sd, s.n) for s in settings]
    return Plot(drawn, ("point", "optimizer", param, "mean", "sd", "seeds"), rows)


def _points_trace(
    param: str,
    objective: str,
    settings: Sequence[Setting],
    *,
    crowded: bool,
) -> dict[str, Any]:
    """The marks of one optimizer's points."""
    what, optimizer = quantity(objective), settings[0].optimizer
    digits = ":.4g" if isinstance(settings[0].value, float) else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": optimizer,
        "x": [setting.value for setting in settings],
        "y": [what.shown(setting.mean) for setting in settings],
        **({} if crowded else {"error_y": _bars(settings, objective)}),
        "marker": {
            "color": OPTIMIZER_COLOURS.get(optimizer, PALETTE[5]),
            "size": 5 if crowded else 8,
            "opacity": 0.85 if crowded else 1.0,
            "line": {"width": 0},
        },
        "customdata": [[s.point, _spread(s.sd, s.n, objective)] for s in settings],
        "hovertemplate": (
            f"point %{{customdata[0]}} ({optimizer})<br>{quantity(param).short} %{{x{digits}}}<br>"
            f"{what.name} %{{y:.4g}} %{{customdata[1]}}<extra></extra>"
        ),
    }


def _spread(sd: float | None, n: int, metric: str) -> str:
    """What a mark stands for beside its mean: ``± 0.21 % (sd of 3 seeds)``."""
    what = quantity(metric)
    if sd is None or n < 2:
        return f"{what.unit} (one seed)".strip()
    unit = f" {what.unit}" if what.unit else ""
    return f"± {what.shown(sd):.2g}{unit} (sd of {n} seeds)"


def _bars(settings: Sequence[Setting], objective: str) -> dict[str, Any]:
    shown = quantity(objective).shown
    deviations = [shown(setting.sd or 0.0) for setting in settings]
    return {"type": "data", "array": deviations, "thickness": 1, "width": 0}


def _range_of_points(settings: Sequence[Setting], objective: str) -> dict[str, object]:
    """Fit the axis to the points: an interval from two points may be many times as long."""
    shown = quantity(objective).shown
    low = min((shown(s.mean - (s.sd or 0.0)) for s in settings), default=0.0)
    high = max((shown(s.mean + (s.sd or 0.0)) for s in settings), default=1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return {"range": [low - margin, high + margin]}


def _axis_of(settings: Sequence[Setting], *, log: bool) -> dict[str, object]:
    """A place for each word, or an axis of numbers."""
    words = {setting.value for setting in settings if isinstance(setting.value, str)}
    if words:
        return {"type": "category", "categoryarray": sorted(words, key=_word_order)}
    numbers = {float(setting.value) for setting in settings}
    if log:
        return log_axis(numbers)
    if len(numbers) != 1:
        return {}
    # Plotly would show one on either side of a single number.
    [value] = numbers
    half = 0.5 * abs(value) or 1.0
    return {"range": [value - half, value + half]}


def _word_order(word: str) -> tuple[int, float, str]:
    """What is switched off first, then numbers by size, then words."""
    try:
        return 1, float(word), ""
    except ValueError:
        return (0 if word == choice_word(None) else 2), 0.0, word


def _trend_trace(trend: Sequence[Trend], objective: str) -> dict[str, object]:
    what = quantity(objective)
    up = [what.shown(t.high - t.mean) if t.high is not None else 0.0 for t in trend]
    down = [what.shown(t.mean - t.low) if t.low is not None else 0.0 for t in trend]
    return {
        "type": "scatter",
        # Between words there is nothing that a line could lead over.
        "mode": "markers" if any(isinstance(t.value, str) for t in trend) else "lines+markers",
        "name": "mean, 95 % interval",
        "x": [t.value for t in trend],
        "y": [what.shown(t.mean) for t in trend],
        "error_y": {
            "type": "data",
            "array": up,
            "arrayminus": down,
            "symmetric": False,
            "thickness": 1.5,
            "width": 5,
        },
        "line": {"color": "#8A8F98", "width": 1.5},
        "marker": {"symbol": "line-ew-open", "size": 14, "color": "#8A8F98"},
        "customdata": [[t.n, _interval(t, objective)] for t in trend],
        "hovertemplate": (
            "mean of %{customdata[0]} points: %{y:.4g}"
            f" {what.unit} %{{customdata[1]}}<extra></extra>"
        ),
    }


def _interval(trend: Trend, objective: str) -> str:
    if trend.low is None or trend.high is None:
        return ""
    shown = quantity(objective).shown
    return f"({shown(trend.low):.4g} to {shown(trend.high):.4g})"
