"""How a reader wants curves shown: over what, on which scale, smoothed. The plot states it."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sweeps.figures.chart import Axis, Chart, Line
from sweeps.figures.quantities import markup

X = Literal["step", "log-step", "epoch", "images", "time"]
Y = Literal["auto", "linear", "log"]
Smooth = Literal["0", "0.6", "0.9", "0.97"]

#: Value and words of every choice, the default first.
X_CHOICES = (
    ("step", "steps"),
    ("log-step", "steps, log"),
    ("epoch", "epochs"),
    ("images", "images"),
    ("time", "time"),
)
Y_CHOICES = (("auto", "as it fits"), ("linear", "linear"), ("log", "log"))
SMOOTH_CHOICES = (("0", "none"), ("0.6", "0.6"), ("0.9", "0.9"), ("0.97", "0.97"))

#: Name, label and choices of each part of a view.
CURVE_VIEWS = (
    ("x", "over", X_CHOICES),
    ("y", "y axis", Y_CHOICES),
    ("smooth", "smoothing", SMOOTH_CHOICES),
)

#: Unit of a time axis, its seconds, and the length in seconds from which it is used.
TIME_UNITS = (("h", 3600.0, 7200.0), ("min", 60.0, 180.0), ("s", 1.0, 0.0))


#: Letters of a line below a plot as wide as a phone.
_PHONE = 42


def noted(figure: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """The figure with notes below its x axis, where they are part of every saved image."""
    lines = [line for note in notes for line in textwrap.wrap(note, _PHONE)]
    title = figure["layout"]["xaxis"]["title"]
    title["text"] = "<br>".join([title["text"], *map(markup, lines)])
    figure["layout"]["height"] += 16 * len(lines)
    return figure


class View(NamedTuple):
    """The choices of one reader."""

    x: X = "step"
    y: Y = "auto"
    smooth: Smooth = "0"


@dataclass(frozen=True)
class Places:
    """Where curves lie on an x axis that does not count steps."""

    title: str
    #: For each curve, step -> place; None leaves the curve out.
    place: Sequence[Callable[[int], float | None]]


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit that suits a length of time, and its seconds."""
    return next((name, size) for name, size, least in TIME_UNITS if seconds >= least)


def exponential_mean(values: Sequence[float | None], weight: float) -> list[float | None]:
    """The running mean with exponential weights, without the bias of its start (as TensorBoard).

    Args:
        values: None = a gap, which stays one.
        weight: Of the past, 0..1; 0 changes nothing.
    """
    found: list[float | None] = []
    total = norm = 0.0
    for value in values:
        if value is None:
            found.append(None)
            continue
        total = weight * total + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        found.append(total / norm)
    return found


def viewed(
    chart: Chart,
    hover: Sequence[Mapping[str, Any]],
    view: View,
    places: Places | None = None,
) -> tuple[Chart, list[Mapping[str, Any]]]:
    """A chart of lines as the reader wants it, and its hover texts."""
    words: list[Mapping[str, Any]] = list(hover)
    lines = [one for one in chart.series if isinstance(one, Line)]
    if places is not None:
        lines = [_moved(line, place) for line, place in zip(lines, places.place, strict=True)]
        words = [dict(one, hovertemplate=_without_step(one, places.title)) for one in words]
        chart = replace(chart, x=Axis(places.title, is_count=places.title == "images"))
    elif view.x == "log-step":
        chart = replace(chart, x=replace(chart.x, is_log=True, is_count=False))
    if view.y != "auto":
        chart = replace(chart, y=replace(chart.y, is_log=view.y == "log"))
    weight = float(view.smooth)
    if weight:
        faint = [replace(line, low=(), high=(), is_faint=True) for line in lines]
        lines = [replace(line, y=exponential_mean(line.y, weight)) for line in lines]
        quiet = {"hoverinfo": "skip"}
        words = [*(quiet for _ in faint), *words]
        lines = [*faint, *lines]
        # Below the axis, where it hides nothing and is part of every saved image.
        title = f"{chart.x.title}<br>smoothed, weight {view.smooth}; faint: as reported"
        chart = replace(chart, x=replace(chart.x, title=title))
    return replace(chart, series=lines), words


def _moved(line: Line, place: Callable[[int], float | None]) -> Line:
    """The line at other places; values without a place are left out."""
    at = [place(int(step)) for step in line.x]
    known = [index for index, x in enumerate(at) if x is not None]
    return replace(
        line,
        x=[x for x in at if x is not None],
        y=[line.y[index] for index in known],
        low=[line.low[index] for index in known] if line.low else (),
        high=[line.high[index] for index in known] if line.high else (),
    )


def _without_step(hover: Mapping[str, Any], title: str) -> str:
    return str(hover.get("hovertemplate", "")).replace("step %{x:,}", f"%{{x:.4g}} {title}")
