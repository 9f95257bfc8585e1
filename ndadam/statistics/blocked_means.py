"""Errors of means over long correlated series, one value per step. Pure Python.

Neighbouring steps share data, momentum and norms, so the error of a mean comes from blocks that
are longer than the correlation (moving-block bootstrap; Künsch 1989). Taking single steps as
independent gives errors that are three to four times too small here.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean

from ndadam.statistics.student_t import t_quantile

#: A block spans this many integrated autocorrelation times.
TIMES_PER_BLOCK = 4
#: Of the variance of a long mean, neighbouring blocks of L values miss this times T / L, where
#: correlation decays exponentially with integrated time T: a third of it because blocks are cut
#: off, two thirds because neighbours are alike. No more than half is ever added back.
_HIDDEN = 0.75
_MOST_HIDDEN = 0.5
#: Fewer blocks than this say nothing about their spread.
FEWEST_BLOCKS = 4


def rms(values: Sequence[float]) -> float:
    """Root mean square."""
    return math.sqrt(fmean(v * v for v in values))


def rms_over(runs: Sequence[Sequence[float]]) -> list[float]:
    """Root mean square over runs of equal length, step by step."""
    return list(map(rms, zip(*runs, strict=True)))


def smooth(values: Sequence[float], width: int, *, power: int = 2) -> list[float]:
    """Means over consecutive stretches of ``width`` values; a short rest is dropped.

    ``power`` 2 gives root mean squares, 1 plain means.
    """
    stretches = range(0, len(values) - width + 1, width)
    return [fmean(v**power for v in values[i : i + width]) ** (1 / power) for i in stretches]


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Centred average over ``width`` values, over fewer at both ends."""
    n, half = len(values), width // 2
    total = [0.0, *itertools.accumulate(values)]
    averages = []
    for i in range(n):
        low, high = max(0, i - half), min(n, i + half + 1)
        averages.append((total[high] - total[low]) / (high - low))
    return averages


def autocorrelation_time(values: Sequence[float]) -> float:
    """Integrated autocorrelation time 1 + 2 Σ rho_k, in values; 1 for white noise.

    The sum ends at the first lag beyond five times the result so far (Sokal's window). A trend
    slower than a quarter of the series is removed first: it is no correlation of the noise.
    """
    n = len(values)
    if n < 2:
        return 1.0
    trend = moving_average(values, max(1, n // 4))
    gaps = [v - t for v, t in zip(values, trend, strict=True)]
    variance = sum(map(mul, gaps, gaps))
    if variance <= 0:
        return 1.0
    time = 1.0
    for lag in range(1, n // 4):
        time += 2 * sum(map(mul, gaps, gaps[lag:])) / variance
        if lag >= 5 * time:
            break
    return max(1.0, time)


@dataclass(frozen=True)
class MeanError:
    """Standard error of a mean, and the degrees of freedom that it was estimated with."""

    standard_error: float
    df: float

    def half_width(self, confidence: float) -> float:
        """Of the interval around the mean; few degrees of freedom make it wider."""
        return t_quantile((1 + confidence) / 2, self.df) * self.standard_error


def block_error(values: Sequence[float], least: int) -> MeanError:
    """Standard error of the mean of ``values``, from moving blocks of at least ``least`` values.

    This is what a moving-block bootstrap converges to with ever more resamples, so none is drawn.
    The spread of blocks is taken between neighbours, as half their mean squared difference: the
    noise is the same, and a slow trend, which is no error of the mean, does not count. What
    correlation across the ends of finite blocks hides is added back. K blocks give K - 1 degrees of
    freedom.
    Raises ValueError where the series holds fewer than four blocks.
    """
    n = len(values)
    if least < 1 or n < FEWEST_BLOCKS * least:
        raise ValueError(
            f"a series of {n} values is too short for {FEWEST_BLOCKS} blocks of {least}; "
            f"{FEWEST_BLOCKS * least} are needed"
        )
    time = autocorrelation_time(values)
    # Longer blocks than an eighth of the series would leave too few to see their spread.
    length = max(least, min(math.ceil(TIMES_PER_BLOCK * time), n // 8))
    total = [0.0, *itertools.accumulate(values)]
    sums = [total[i + length] - total[i] for i in range(n - length + 1)]
    squares = [(a - b) ** 2 for a, b in zip(sums, sums[length:], strict=False)]
    seen = 1 - min(_HIDDEN * time / length, _MOST_HIDDEN)
    block_variance = fmean(squares) / 2 / length**2 / seen
    return MeanError(math.sqrt(block_variance * length / n), n // length - 1)
