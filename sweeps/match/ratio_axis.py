"""The axis of source over target: half to double, further where the curve goes there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Farthest from 1 that the axis reaches at least, and at most.
_LEAST, _MOST = 2.0, 10.0
#: Part of the values that the axis may leave out: a cosine ends in noise over noise.
_LEFT_OUT = 0.05
_TICKS = (0.1, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class RatioAxis:
    """Ends with 1 in their middle, the numbers between them, and what lies beyond in words."""

    low: float
    high: float
    ticks: tuple[float, ...]
    #: For the curve's name: ", 3 of 40 values beyond the axis", or "" where all are seen.
    told: str


def ratio_axis(values: Sequence[float]) -> RatioAxis:
    """The axis for ratios, all above 0, of which there is at least one."""
    distances = sorted(max(value, 1 / value) for value in values)
    farthest = distances[math.ceil((1 - _LEFT_OUT) * len(distances)) - 1]
    reach = _LEAST if farthest <= _LEAST else min(_MOST, 1.1 * farthest)
    beyond = sum(distance > reach for distance in distances)
    return RatioAxis(
        low=1 / reach,
        high=reach,
        ticks=tuple(tick for tick in _TICKS if 1 / reach <= tick <= reach),
        told=f", {beyond} of {len(distances)} values beyond the axis" if beyond else "",
    )
