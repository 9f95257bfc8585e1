"""Draws a chart with matplotlib: SVG for pages, PDF for papers, PNG for MLflow."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator, StrMethodFormatter

from sweeps.figures.axes import log_ticks, tick_text
from sweeps.figures.chart import Axis, Chart, Line, Marks
from sweeps.figures.colours import GREY
from sweeps.figures.quantities import plain as without_markup

#: One column of a paper is 3.4 inches wide; this is a comfortable figure of a page.
_SIZE = (6.4, 3.6)
#: Inches of a figure of rows: without rows, and for each of them.
_HEAD, _ROW = 0.9, 0.32
#: Points per pixel of a page, for lines and for marks.
_LINE, _MARK = 0.8, 0.5
#: Words below an axis beyond which they are turned, so that they do not overlap.
_MOST_LEVEL_WORDS = 10
# Any: matplotlib's stubs name every one of its settings.
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E3E6EA",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 10,
    "pdf.fonttype": 42,
    # Text stays text, and the same figure is the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "ndsweep",
}
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_SYMBOLS = {"circle": "o", "square": "s", "diamond": "D", "x": "x", "star": "*", "line-ew": "_"}


@dataclass(frozen=True)
class Drawing:
    """A figure as files. ``name`` is their stem. Each form is drawn when it is asked for."""

    name: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """An ``<svg>`` element, whose ids differ from those of figures of other names."""
        text = self._saved("svg", metadata={"Date": None, "Creator": None}).decode()
        # The heading of a file is no part of a page.
        text = text[text.index("<svg") :]
        return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{self.name}-", text)

    @property
    def pdf(self) -> bytes:
        return self._saved("pdf", metadata={"CreationDate": None})

    @property
    def png(self) -> bytes:
        """About 1,080 pixels wide."""
        return self._saved("png", dpi=170)

    def _saved(self, form: str, **how: Any) -> bytes:
        out = io.BytesIO()
        with mpl.rc_context(_STYLE):
            self.figure.savefig(out, format=form, **how)
        return out.getvalue()


def drawing(chart: Chart) -> Drawing:
    """Draw a chart."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes: Axes = figure.subplots()
        for level in chart.levels:
            dashed = (0, (4, 3))
            axes.axhline(level.value, color=level.colour, linewidth=0.8, linestyle=dashed)
        if chart.window is not None:
            axes.axvspan(*chart.window, color=GREY, alpha=0.1, linewidth=0)
        for one in chart.series:
            if isinstance(one, Line):
                _draw_line(axes, one)
            else:
                _draw_marks(axes, one, [_place(x, chart.x) for x in one.x])
        _set_axis(axes, "x", chart.x, [x for one in chart.series for x in one.x])
        _set_axis(axes, "y", chart.y, chart.values())
        axes.set_title(plain(chart.title))
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
    return Drawing(chart.name, figure)


def rows_drawing(chart: Chart) -> Drawing:
    """Draw the marks of a chart sideways: one row for each word of its x axis, the first on top."""
    count = len(chart.x.words)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_SIZE[0], _HEAD + _ROW * count), layout="constrained")
        axes: Axes = figure.subplots()
        for one in chart.series:
            if isinstance(one, Marks):
                _draw_marks(axes, one, [_place(x, chart.x) for x in one.x], is_sideways=True)
        axes.set_yticks(range(count), [plain(word) for word in chart.x.words])
        axes.invert_yaxis()
        _set_axis(axes, "x", chart.y, chart.values())
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend()
    return Drawing(chart.name, figure)


def _draw_line(axes: Axes, line: Line) -> None:
    y = [math.nan if value is None else value for value in line.y]
    if line.is_faint:
        axes.plot(line.x, y, color=line.colour, linewidth=0.6, alpha=0.45)
        return
    if line.low:
        band = axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.2)
        band.set(linewidth=0, label=plain(line.band_name) or None)
    [drawn] = axes.plot(line.x, y, _DASHES[line.dash], color=line.colour)
    drawn.set(linewidth=_LINE * line.width, label=plain(line.name))


def _draw_marks(
    axes: Axes, marks: Marks, places: Sequence[float], *, is_sideways: bool = False
) -> None:
    symbol = marks.symbol.removesuffix("-open")
    bars = (marks.below, marks.above) if marks.above else None
    x, y = (marks.y, places) if is_sideways else (places, marks.y)
    axes.errorbar(
        x,
        y,
        xerr=bars if is_sideways else (marks.left, marks.right) if marks.right else None,
        yerr=None if is_sideways else bars,
        fmt=_SYMBOLS[symbol],
        linestyle="-" if marks.is_joined else "none",
        color=marks.colour,
        markerfacecolor="none" if marks.symbol.endswith("-open") else marks.colour,
        markersize=_MARK * marks.size,
        elinewidth=1.6 if marks.has_caps else 0.8,
        alpha=1.0 if marks.has_caps else 0.8,
        label=plain(marks.name) or None,
    )


def _place(x: float | str, axis: Axis) -> float:
    return axis.words.index(x) if isinstance(x, str) else x


def _set_axis(axes: Axes, which: str, axis: Axis, values: Sequence[Any]) -> None:
    drawn: DrawnAxis = getattr(axes, f"{which}axis")
    drawn.set_label_text(plain(axis.title))
    if axis.words:
        axes.set_xticks(range(len(axis.words)), [plain(word) for word in axis.words])
        if len(axis.words) > _MOST_LEVEL_WORDS:
            axes.tick_params("x", labelrotation=45)
        return
    if axis.is_log:
        clipped = {"nonpositive": "clip"}
        axes.set_xscale("log", **clipped) if which == "x" else axes.set_yscale("log", **clipped)
        if not axis.ticks:
            _number(drawn, log_ticks(axis.ends or values), _tick)
    if axis.ticks:
        _number(drawn, axis.ticks, "{:g}".format)
    if axis.is_count:
        drawn.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if axis.ends is not None:
        axes.set_xlim(axis.ends) if which == "x" else axes.set_ylim(axis.ends)


def plain(text: str) -> str:
    """A text of a chart without markup, in which dollars begin no mathematics."""
    return without_markup(text).replace("$", r"\$")


def _tick(value: float) -> str:
    """A number of a log axis, exponents in matplotlib's notation for mathematics."""
    return tick_text(value).replace("<sup>", "$^{").replace("</sup>", "}$")


def _number(drawn: DrawnAxis, ticks: Sequence[float], words: Callable[[float], str]) -> None:
    """Put numbers at ``ticks`` and nowhere else; if there are none, matplotlib chooses."""
    if ticks:
        drawn.set_major_locator(FixedLocator(list(ticks)))
        drawn.set_major_formatter(FixedFormatter([words(tick) for tick in ticks]))
        drawn.set_minor_locator(NullLocator())
