"""A figure as plain data: curves, marks and axes, the same for every renderer.

Names and titles may contain ``<sup>`` and ``<sub>``. Lengths are in pixels of a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

Dash = Literal["solid", "dash", "dot", "dashdot"]
Symbol = Literal[
    "circle", "circle-open", "square", "diamond", "diamond-open", "x", "star-open", "line-ew-open"
]


@dataclass(frozen=True)
class Line:
    """A curve, with a band from ``low`` to ``high`` around it if they are given."""

    name: str
    colour: str
    x: Sequence[float]
    #: None = a gap.
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: Dash = "solid"
    width: float = 2.0
    #: The band's own entry in the legend; "" = none.
    band_name: str = ""
    #: Context for the other curves: thin, and without an entry in the legend.
    is_faint: bool = False


@dataclass(frozen=True)
class Marks:
    """Separate values, with bars if ``below`` and ``above`` are given."""

    #: "" = no entry in the legend.
    name: str
    colour: str
    #: Numbers, or words of the axis.
    x: Sequence[float | str]
    y: Sequence[float]
    #: Lengths of the bars on either side of each value.
    below: Sequence[float] = ()
    above: Sequence[float] = ()
    #: The same along the x axis.
    left: Sequence[float] = ()
    right: Sequence[float] = ()
    symbol: Symbol = "circle"
    size: float = 8.0
    #: Whether a line leads from mark to mark.
    is_joined: bool = False
    #: Whether the ends of the bars are marked, as those of an interval are.
    has_caps: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis. Without ``ends`` it shows all values."""

    title: str
    is_log: bool = False
    ends: tuple[float, float] | None = None
    #: Where the axis has numbers; () = the renderer chooses.
    ticks: Sequence[float] = ()
    #: Words in their order instead of numbers.
    words: Sequence[str] = ()
    #: Whole numbers from 0, such as steps.
    is_count: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line across the whole figure."""

    value: float
    colour: str
    dash: Dash = "dash"


@dataclass(frozen=True)
class Chart:
    """A whole figure. ``name`` is the stem of its file."""

    name: str
    x: Axis
    y: Axis
    series: Sequence[Line | Marks]
    #: Drawn where no caption stands beside the figure.
    title: str = ""
    levels: Sequence[Level] = ()
    #: First and last step of a shaded part.
    window: tuple[float, float] | None = None

    def values(self) -> list[float]:
        """All values of its curves and marks, without bands, bars and gaps."""
        return [y for one in self.series for y in one.y if y is not None]


STEPS = Axis("step t (optimizer steps)", is_count=True)


class Bars(TypedDict):
    """Lengths on either side of each mark."""

    below: list[float]
    above: list[float]


def bars(
    values: Sequence[float], low: Sequence[float | None], high: Sequence[float | None]
) -> Bars:
    """``below`` and ``above`` of marks with intervals; a bar without an end has no length."""
    return {
        "below": [0.0 if b is None else max(0.0, v - b) for v, b in zip(values, low, strict=True)],
        "above": [0.0 if a is None else max(0.0, a - v) for v, a in zip(values, high, strict=True)],
    }
