"""Static figures for reports, drawn by matplotlib: SVG for pages, PDF for papers."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

#: One column of a paper is 3.4 inches wide; this is a comfortable figure of a page.
_SIZE = (6.4, 3.6)
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
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    # Text stays text, and the same figure is the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "ndsweep",
}
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


@dataclass(frozen=True)
class Drawing:
    """A figure as files. ``name`` is their stem."""

    name: str
    svg: str
    figure: Figure

    @property
    def pdf(self) -> bytes:
        """Drawn when it is asked for: half of a report's time, and most reports are pages."""
        pdf = io.BytesIO()
        with mpl.rc_context(_STYLE):
            self.figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        return pdf.getvalue()


@dataclass(frozen=True)
class Line:
    """One curve. ``low`` and ``high`` draw a band around it."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: str = "solid"
    #: Drawn thin and without a name in the legend: context for the others.
    is_faint: bool = False


@dataclass(frozen=True)
class Cloud:
    """Points of one colour with their spreads, as half-lengths of bars."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float]


@dataclass(frozen=True)
class Mark:
    """A value with its interval, one row of a chart of intervals."""

    label: str
    colour: str
    value: float
    low: float | None = None
    high: float | None = None


def line_chart(
    name: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    y_range: tuple[float | None, float | None] = (None, None),
    levels: Sequence[float] = (),
) -> Drawing:
    """Curves over one axis. ``levels`` are drawn as thin horizontal lines."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes: Axes = figure.subplots()
        for level in levels:
            axes.axhline(level, color="#8A8F98", linewidth=0.8, linestyle=(0, (4, 3)))
        for line in lines:
            _draw(axes, line)
        if log_y:
            axes.set_yscale("log")
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylim(bottom=y_range[0], top=y_range[1])
        if any(not line.is_faint for line in lines):
            axes.legend()
        return _saved(name, figure)


def cloud_chart(
    name: str,
    clouds: Sequence[Cloud],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Drawing:
    """Points over an axis of numbers, a colour for each cloud."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes: Axes = figure.subplots()
        for cloud in clouds:
            axes.errorbar(
                cloud.x,
                cloud.y,
                cloud.spread,
                fmt="o",
                color=cloud.colour,
                markersize=3.5,
                elinewidth=0.8,
                alpha=0.8,
                label=cloud.label,
            )
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log", nonpositive="clip")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set(xlabel=x_label, ylabel=y_label)
        if any(cloud.label for cloud in clouds):
            axes.legend()
        return _saved(name, figure)


def interval_chart(
    name: str, marks: Sequence[Mark], *, x_label: str, log_x: bool = False
) -> Drawing:
    """Values with intervals, one under the other, the first at the top."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_SIZE[0], 0.9 + 0.32 * len(marks)), layout="constrained")
        axes: Axes = figure.subplots()
        for row, mark in enumerate(marks):
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [row, row], color=mark.colour, linewidth=2.2)
            axes.plot([mark.value], [row], "o", color=mark.colour, markersize=5)
        axes.set_yticks(range(len(marks)), [mark.label for mark in marks])
        axes.invert_yaxis()
        if log_x:
            axes.set_xscale("log")
        axes.set(xlabel=x_label)
        return _saved(name, figure)


def _draw(axes: Axes, line: Line) -> None:
    if line.is_faint:
        axes.plot(line.x, line.y, color=line.colour, linewidth=0.6, alpha=0.45)
        return
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.2, linewidth=0)
    axes.plot(line.x, line.y, color=line.colour, linestyle=_DASHES[line.dash], label=line.label)


def _saved(name: str, figure: Figure) -> Drawing:
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    text = svg.getvalue().decode()
    # The heading of a file is no part of a page, and ids must differ between figures of one.
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", text[text.index("<svg") :])
    return Drawing(name, text, figure)
