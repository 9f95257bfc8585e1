"""Intervals and tests over a handful of independent values (one per seed). Pure Python.

Nothing here needs numpy, scipy or torch, so a process that only shows results can use all of it.
Long correlated series, one value per step, belong to ``ndadam.bootstrap``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ndadam.student_t import t_quantile

__all__ = ["CONFIDENCE", "MeanInterval", "mean_interval", "t_quantile"]

#: Confidence of every interval unless a caller says otherwise.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanInterval:
    """A mean over independent values with its t-interval."""

    n: int
    mean: float
    #: Standard deviation of the values; None for a single value.
    sd: float | None
    #: Ends of the interval; None for a single value, which has no measured spread.
    low: float | None
    high: float | None
    confidence: float

    @property
    def half_width(self) -> float | None:
        return None if self.high is None else self.high - self.mean


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MeanInterval:
    """Mean of independent values (one per seed) with a t-interval.

    Raises ValueError for no values and for values that are not finite.
    """
    _refuse_bad_values("values", values, minimum=1)
    n, mean = len(values), fmean(values)
    if n == 1:
        return MeanInterval(1, mean, None, None, None, confidence)
    sd = stdev(values)
    half = t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    return MeanInterval(n, mean, sd, mean - half, mean + half, confidence)


def _refuse_bad_values(name: str, values: Sequence[float], minimum: int) -> None:
    if len(values) < minimum:
        raise ValueError(f"{name} needs at least {minimum} values, got {len(values)}")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
