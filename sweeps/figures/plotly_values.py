"""Draws a chart as plotly's values: plain dicts, which a page's script shows.

They carry no colour of text, paper or grid: the page's script sets those for light and dark.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeps.figures.axes import log_ticks, tick_text
from sweeps.figures.chart import Axis, Chart, Level, Line, Marks
from sweeps.figures.colours import translucent

#: Pixels of a legend's letter, of what stands before a label, of its rows, and of its width.
_LETTER, _KEY, _LEGEND_ROW, _LEGEND_WIDTH = 7, 45, 24, 860
#: A curve of more values has no marks at them: they would hide it.
_MOST_MARKS = 30

#: In one row under the axis title, at the bottom of the figure whatever its height.
LEGEND_BELOW: dict[str, Any] = {
    "showlegend": True,
    "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
}


def figure_of(
    chart: Chart, *, hover: Sequence[Mapping[str, Any]] = (), height: int = 320, **layout: Any
) -> dict[str, Any]:
    """A chart as a figure.

    Args:
        chart: What to draw.
        hover: For each of its series, what a reader sees on pointing at it: ``hovertemplate`` and
            ``customdata``; () = plotly's own text.
        height: Pixels.
        layout: Goes into the figure's layout.
    """
    if chart.title:
        layout["title"] = {"text": chart.title, "font": {"size": 14}}
    shapes = [*map(_level, chart.levels), *_window(chart)]
    return figure(
        traces_of(chart, hover),
        x=axis_of(chart.x, _numbers(x for one in chart.series for x in one.x)),
        y=axis_of(chart.y, chart.values()),
        name=chart.name,
        height=height,
        **({"shapes": shapes} if shapes else {}),
        **layout,
    )


def traces_of(chart: Chart, hover: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Its bands, then its curves and marks in their order."""
    lines = [one for one in chart.series if isinstance(one, Line)]
    bands = [_band(line) for line in lines if line.low]
    traces = [_line(one) if isinstance(one, Line) else _marks(one) for one in chart.series]
    if hover:
        traces = [{**trace, **words} for trace, words in zip(traces, hover, strict=True)]
    return [*bands, *traces]


def axis_of(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Settings of one axis over ``values``."""
    if axis.words:
        words = {"categoryorder": "array", "categoryarray": list(axis.words)}
        return {"title": axis.title, "type": "category", **words}
    found: dict[str, Any] = {"title": axis.title}
    if axis.is_log:
        found |= log_axis(axis.ends or values)
    if axis.is_count:
        # Steps are counted: 20,000, not 2 times a power of ten.
        found |= {"tickformat": ",", "rangemode": "tozero"}
    if axis.ends is not None:
        found["range"] = [math.log10(e) for e in axis.ends] if axis.is_log else list(axis.ends)
    if axis.ticks:
        ticks = list(axis.ticks)
        found |= {"tickvals": ticks, "ticktext": [f"{value:g}" for value in ticks]}
    return found


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """Settings of a log axis over ``values``."""
    positive = [value for value in values if value > 0]
    ticks = log_ticks(positive)
    # Numbers that stand close are left upright: there are few of them.
    axis: dict[str, Any] = {"type": "log", "tickangle": 0}
    if not ticks:
        return axis
    axis |= {"tickvals": ticks, "ticktext": [tick_text(value) for value in ticks]}
    if min(positive) < max(positive):
        return axis
    # Around a single value plotly would choose a range that starts at zero.
    middle = math.log10(positive[0])
    return axis | {"range": [middle - 0.5, middle + 0.5]}


def figure(
    traces: list[dict[str, Any]],
    *,
    x: dict[str, Any],
    y: dict[str, Any],
    name: str,
    height: int = 320,
    **layout: Any,
) -> dict[str, Any]:
    """Assemble a figure. ``name`` becomes the file name of a downloaded image.

    Every text in it that is not markup of this product is shown as it is written.
    """
    found = {
        "data": traces,
        "layout": {
            "xaxis": titled(x),
            "yaxis": titled(y),
            "height": height,
            "margin": {"l": 60, "r": 24, "t": 34, "b": 48},
            "hovermode": "closest",
            "showlegend": False,
            # As in the tables: 20 000 with a narrow space, and a point before decimals.
            "separators": ".\N{NARROW NO-BREAK SPACE}",
            # Zoom and hidden traces survive a live update.
            "uirevision": name,
            **layout,
        },
        "name": name,
    }
    return {key: _shown(value) for key, value in found.items()}


#: Tags of titles and of what is shown on hovering; plotly would also take links and styles.
_TAG = re.compile(r"<(?!/?(?:sup|sub|br|b|i|em|extra)>)")


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return _TAG.sub("&lt;", value)
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) if isinstance(one, str | dict | list | tuple) else one for one in value]
    return value


def titled(axis: Mapping[str, Any]) -> dict[str, Any]:
    """An axis with its title in the size of all titles."""
    return {
        "automargin": True,
        "zeroline": False,
        "exponentformat": "power",
        **axis,
        "title": {"text": axis["title"], "standoff": 8, "font": {"size": 12.5}},
    }


def legend_room(labels: Iterable[str]) -> int:
    """Pixels that a legend below takes beyond two rows, on the narrowest page that is looked after.

    Labels are shown whole, so that long ones would leave little of the figure's height to the plot.
    """
    length = sum(_LETTER * len(re.sub("<[^>]+>", "", label)) + _KEY for label in labels)
    return _LEGEND_ROW * max(0, math.ceil(length / _LEGEND_WIDTH) - 2)


def _line(line: Line) -> dict[str, Any]:
    if line.is_faint:
        ink = translucent(line.colour, 0.45)
        stroke = {"color": ink, "width": 1, "dash": line.dash}
    else:
        stroke = {"color": line.colour, "width": line.width, "dash": line.dash}
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(line.x) <= _MOST_MARKS else "lines",
        "marker": {"size": 4},
        "line": stroke,
        "name": line.name,
        "legendgroup": line.name,
        **({"showlegend": False} if line.is_faint else {}),
        "x": list(line.x),
        "y": list(line.y),
    }


def _band(line: Line) -> dict[str, Any]:
    """A filled strip around a line."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*line.x, *reversed(line.x)],
        "y": [*line.high, *reversed(line.low)],
        "fill": "toself",
        "fillcolor": translucent(line.colour, 0.22),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": line.band_name or line.name,
        "name": line.band_name,
        "showlegend": bool(line.band_name),
    }


def _marks(marks: Marks) -> dict[str, Any]:
    is_open = marks.symbol.endswith("-open")
    symbol = {} if marks.symbol == "circle" else {"symbol": marks.symbol}
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if marks.is_joined else "markers",
        "name": marks.name,
        **({} if marks.name else {"showlegend": False}),
        "x": list(marks.x),
        "y": list(marks.y),
        **({"line": {"color": marks.colour, "width": 1.5}} if marks.is_joined else {}),
        "marker": {
            **symbol,
            "color": marks.colour,
            "size": marks.size,
            "opacity": 1.0 if marks.size > 5 else 0.85,
            "line": {"width": 2 if is_open else 0},
        },
    }
    if marks.above:
        trace["error_y"] = _bars(marks, marks.below, marks.above)
    if marks.right:
        trace["error_x"] = _bars(marks, marks.left, marks.right)
    return trace


def _bars(marks: Marks, minus: Sequence[float], plus: Sequence[float]) -> dict[str, Any]:
    ends = {"thickness": 1.5, "width": 5} if marks.has_caps else {"thickness": 1, "width": 0}
    sides = {} if plus == minus else {"arrayminus": list(minus)}
    bars = {"type": "data", "symmetric": not sides, "array": list(plus)}
    return {**bars, **sides, **ends, "color": marks.colour}


def _level(level: Level) -> dict[str, Any]:
    line = {"color": level.colour, "width": 1.5, "dash": level.dash}
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": level.value, "y1": level.value}
    return {"type": "line", **ends, "line": line}


def _window(chart: Chart) -> list[dict[str, Any]]:
    """Shade the steps that a verdict was judged on."""
    if chart.window is None:
        return []
    start, stop = chart.window
    words = {"text": "window of the verdict", "textposition": "bottom left", "font": {"size": 11}}
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": start,
            "x1": stop,
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "fillcolor": "rgba(138,143,152,0.10)",
            "layer": "below",
            "label": words,
        }
    ]


def _numbers(values: Iterable[float | str]) -> list[float]:
    return [value for value in values if not isinstance(value, str)]
