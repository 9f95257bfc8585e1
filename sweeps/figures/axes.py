"""Scales and ends of axes: which part of the values is shown, and where numbers stand."""

import math
from collections.abc import Iterable, Sequence

from sweeps.figures.chart import Axis

#: Farthest from 1 that the axis of a ratio reaches at least, and at most.
_LEAST, _MOST = 2.0, 10.0
#: Part of the ratios that their axis may leave out: a cosine ends in noise over noise.
_LEFT_OUT = 0.05
_RATIO_TICKS = (0.1, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 5.0, 10.0)


def spans_decade(values: Sequence[float]) -> bool:
    """Whether values are positive and span a decade or more, so that a log axis suits them."""
    return bool(values) and min(values) > 0 and max(values) >= 10 * min(values)


def log_ticks(values: Iterable[float]) -> list[float]:
    """Numbers on a log axis over ``values``, which can be read off without counting.

    Few decades get more numbers each (1, 2, 5, then 1, 3, then 1), many skip decades, so that at
    most six stand within the values: as many as fit side by side on a phone. For a part of a decade
    there are none, and the renderer chooses. They reach a decade beyond the values, for readers who
    zoom out.
    """
    positive = [value for value in values if value > 0]
    if not positive:
        return []
    low, high = math.log10(min(positive)), math.log10(max(positive))
    decades = high - low
    # Round numbers of a decade are too few for a part of one.
    if 0 < decades < 0.8:
        return []
    digits = (1, 2, 5) if decades <= 1.6 else (1, 3) if decades <= 2.4 else (1,)
    step = max(1, round(decades / 6))
    exponents = range(math.floor(low) - 1, math.ceil(high) + 2, step)
    return [digit * 10.0**exponent for exponent in exponents for digit in digits]


def tick_text(value: float) -> str:
    """A number of a log axis: ``0.05``, ``3·10<sup>-5</sup>``."""
    if 1e-3 <= value < 1e4:
        return f"{value:.10g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**exponent)
    return f"{digit}·10<sup>{exponent}</sup>" if digit != 1 else f"10<sup>{exponent}</sup>"


def readable_ends(values: Sequence[float], least: float = 2e-3) -> tuple[float, float]:
    """Ends of a log axis that opens on the larger ``values``.

    A cosine ends at zero, and its last steps would fill the plot. ``least`` is the part of the
    largest value below which nothing is shown at first.
    """
    peak, lowest = max(values), min(values)
    lowest = max(lowest, least * peak) if lowest > 0 else least * peak
    return lowest / 1.2, 1.3 * peak


def ratio_axis(values: Sequence[float], title: str) -> tuple[Axis, str]:
    """The axis of ratios around 1: from half to double, wider if the ratios go beyond.

    Args:
        values: At least one, all above 0.
        title: Of the axis.

    Returns:
        The axis, and what it leaves out, for the curve's name: ``, 3 of 40 values beyond the
        axis``, or "" if it shows all values.
    """
    distances = sorted(max(value, 1 / value) for value in values)
    farthest = distances[math.ceil((1 - _LEFT_OUT) * len(distances)) - 1]
    reach = _LEAST if farthest <= _LEAST else min(_MOST, 1.1 * farthest)
    beyond = sum(distance > reach for distance in distances)
    ticks = tuple(tick for tick in _RATIO_TICKS if 1 / reach <= tick <= reach)
    axis = Axis(title, is_log=True, ends=(1 / reach, reach), ticks=ticks)
    return axis, f", {beyond} of {len(distances)} values beyond the axis" if beyond else ""
