"""A plot: a plotly figure as plain values, and the table that its CSV link hands out.

The figure carries no colour of text, paper or grid: the page's script sets those for light and
dark. Marks use the colours of Okabe and Ito (2008), which stay apart for colour-blind readers.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: Okabe & Ito without black and yellow, which vanish on dark and on white paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: One colour per optimizer, the same on every page.
OPTIMIZER_COLOURS = {"ndadam": "#0072B2", "sgd": "#D55E00", "adam": "#009E73", "adamw": "#CC79A7"}
DASHES = ("solid", "dash", "dot", "dashdot")

#: Pixels of a legend's letter, of what stands before a label, of its rows, and of its width.
_LETTER, _KEY, _LEGEND_ROW, _LEGEND_WIDTH = 7, 45, 24, 860

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Plot:
    """What one plot shows, as a figure and as a table."""

    figure: dict[str, Any]
    columns: tuple[str, ...]
    rows: Sequence[Row]

    def csv(self) -> str:
        """The table as CSV, numbers in full precision and errors as fractions."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()


def figure(
    traces: list[dict[str, Any]],
    *,
    x: dict[str, Any],
    y: dict[str, Any],
    name: str,
    height: int = 320,
    **layout: Any,
) -> dict[str, Any]:
    """Assemble a figure. ``name`` becomes the file name of a downloaded image."""
    return {
        "data": traces,
        "layout": {
            "xaxis": _axis(x),
            "yaxis": _axis(y),
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


def _axis(settings: dict[str, Any]) -> dict[str, Any]:
    # Steps are counted: 20,000, not 2 times a power of ten.
    counted = {"tickformat": ","} if settings["title"].startswith("step t") else {}
    return {
        "automargin": True,
        "zeroline": False,
        "exponentformat": "power",
        **counted,
        **settings,
        "title": {"text": settings["title"], "standoff": 8, "font": {"size": 12.5}},
    }


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """Settings of a log axis over ``values``: labels that can be read off without counting.

    Few decades get more labels each (1, 2, 5, then 1, 3, then 1), many skip decades; a part of a
    decade has plotly's own. The labels reach a decade beyond the values, for whoever zooms out.
    """
    positive = [value for value in values if value > 0]
    if not positive:
        return {"type": "log"}
    low, high = math.log10(min(positive)), math.log10(max(positive))
    decades = high - low
    # Round numbers of a decade are too few marks for a part of one; plotly's own are evenly spaced.
    if 0 < decades < 0.8:
        return {"type": "log"}
    digits = (1, 2, 5) if decades <= 1.6 else (1, 3) if decades <= 3 else (1,)
    step = max(1, round(decades / 6))
    exponents = range(math.floor(low) - 1, math.ceil(high) + 2, step)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
    axis = {"type": "log", "tickvals": ticks, "ticktext": [_tick(value) for value in ticks]}
    # Around a single value plotly would choose a range that starts at zero.
    return axis if decades > 0 else axis | {"range": [low - 0.5, low + 0.5]}


def readable_axis(values: Iterable[float], least: float = 2e-3) -> dict[str, Any]:
    """Settings of a log axis that opens on the larger ``values``, with labels for that part.

    A cosine ends at zero, and its last steps would fill the plot. ``least`` is the part of the
    largest value below which nothing is shown at first.
    """
    found = list(values)
    peak, lowest = max(found), min(found)
    lowest = max(lowest, least * peak) if lowest > 0 else least * peak
    ends = (lowest / 1.2, 1.3 * peak)
    return {**log_axis(ends), "range": [math.log10(end) for end in ends]}


def _tick(value: float) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:.10g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**exponent)
    return f"{digit}·10<sup>{exponent}</sup>" if digit != 1 else f"10<sup>{exponent}</sup>"


def wide_axis(values: Sequence[float]) -> dict[str, Any]:
    """A log axis for values that span a decade or more, else a linear one."""
    if values and min(values) > 0 and max(values) >= 10 * min(values):
        return log_axis(values)
    return {}


def colour(index: int) -> str:
    """Colour of the ``index``-th of several equal things."""
    return PALETTE[index % len(PALETTE)]


def inks(optimizers: Sequence[str]) -> list[str]:
    """The colour of each of several curves: its optimizer's, where each has one of its own.

    "" stands for an optimizer that is not known.
    """
    if "" in optimizers or len(set(optimizers)) < len(optimizers):
        return [colour(index) for index in range(len(optimizers))]
    return [OPTIMIZER_COLOURS.get(name, colour(at)) for at, name in enumerate(optimizers)]


def dash(index: int) -> str:
    """Line style that keeps things apart once the colours repeat."""
    return DASHES[index // len(PALETTE) % len(DASHES)]


def translucent(hex_colour: str, alpha: float) -> str:
    """The colour of a band around a line of ``hex_colour``."""
    red, green, blue = (int(hex_colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def depth_colour(index: int, count: int) -> str:
    """Colour of layer ``index`` of ``count``: from orange at the stem to blue at the end.

    Between two Okabe-Ito colours lightness and hue both change, so order can be read.
    """
    share = index / max(count - 1, 1)
    ends = ((0xE6, 0x9F, 0x00), (0x00, 0x72, 0xB2))
    mixed = (round(a + share * (b - a)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def band(
    x: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    hex_colour: str,
    *,
    group: str,
    name: str = "",
    legend: bool = False,
) -> dict[str, Any]:
    """A filled strip between two curves over the same ``x``."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *reversed(x)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "fillcolor": translucent(hex_colour, 0.22),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": group,
        "name": name,
        "showlegend": legend,
    }


#: In one row under the axis title, at the bottom of the figure whatever its height.
LEGEND_BELOW: dict[str, Any] = {
    "showlegend": True,
    "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
}


def legend_room(labels: Iterable[str]) -> int:
    """Pixels that a legend below takes beyond two rows, on the narrowest page that is looked after.

    Labels are shown whole, so that long ones would leave little of the figure's height to the plot.
    """
    length = sum(_LETTER * len(re.sub("<[^>]+>", "", label)) + _KEY for label in labels)
    return _LEGEND_ROW * max(0, math.ceil(length / _LEGEND_WIDTH) - 2)
