"""Intervals and tests over a handful of independent values (one per seed). Pure Python.

Nothing here needs numpy, scipy or torch, so a process that only shows results can use all of it.
Long correlated series, one value per step, belong to ``ndadam.statistics.blocked_means``.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import Literal

from ndadam.statistics.student_t import t_cdf, t_quantile, t_tail

__all__ = [
    "CONFIDENCE",
    "Difference",
    "Equivalence",
    "MeanInterval",
    "NonInferiority",
    "compare",
    "detectable_difference",
    "equivalence_of_logs",
    "fraction_ends",
    "fraction_interval",
    "holm",
    "mean_interval",
    "non_inferiority",
    "paired",
    "seeds_needed",
    "t_cdf",
    "t_quantile",
    "welch",
]

#: Confidence of every interval unless a caller says otherwise.
CONFIDENCE = 0.95
#: Chance to see a difference of the detectable size.
POWER = 0.8
#: Beyond this many seeds per arm nobody trains them.
MOST_SEEDS = 100_000


# --- One mean ------------------------------------------------------------------------------------


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
    _refuse_bad_confidence(confidence)
    n, mean = len(values), fmean(values)
    if n == 1:
        return MeanInterval(1, mean, None, None, None, confidence)
    sd = stdev(values)
    half = t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    return MeanInterval(n, mean, sd, mean - half, mean + half, confidence)


def fraction_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MeanInterval:
    """Mean of independent fractions, such as errors (one per seed), with the interval of
    ``fraction_ends``: neither end leaves 0..1.

    Raises ValueError for no values and for values outside 0..1.
    """
    found = mean_interval(values, confidence)
    if not all(0 <= value <= 1 for value in values):
        raise ValueError(f"fractions must be within 0 and 1, got {list(values)}")
    if found.sd is None:
        return found
    low, high = fraction_ends(found.mean, found.sd, found.n, confidence)
    return replace(found, low=low, high=high)


def fraction_ends(
    mean: float, sd: float, n: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Ends of the t-interval of a mean fraction on the logit scale, by the delta method.

    With m the mean and s = sd / sqrt(n): logit(m) ± t s / (m (1 - m)), transformed back. R's
    ``survey::svyciprop(method = "logit")`` computes the same. For a small spread it is the
    symmetric interval; for a large one it covers more often than that one and stays within 0..1
    (docs/sweeps.md has both, simulated).

    Args:
        mean: Within 0..1.
        sd: Standard deviation of the values.
        n: Number of values, at least 2.
        confidence: Of the interval.
    """
    half = t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    if half == 0 or not 0 < mean < 1:
        return mean, mean
    middle, reach = math.log(mean / (1 - mean)), half / (mean * (1 - mean))
    return _logistic(middle - reach), _logistic(middle + reach)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


# --- Two arms ------------------------------------------------------------------------------------

Direction = Literal["lower", "higher", "not shown"]


@dataclass(frozen=True)
class Difference:
    """Mean of a minus mean of b, with its interval and the two-sided p-value of "no difference"."""

    difference: float
    low: float
    high: float
    standard_error: float
    df: float
    p_value: float
    confidence: float

    def direction(self, p_value: float | None = None) -> Direction:
        """Whether a is shown to be lower or higher than b.

        ``p_value`` replaces this difference's own, where several are judged together (``holm``).
        """
        if (self.p_value if p_value is None else p_value) > 1 - self.confidence:
            return "not shown"
        return "lower" if self.difference < 0 else "higher"


def welch(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Difference:
    """Difference of the means of two independent arms that may spread differently.

    Welch's t with the Welch-Satterthwaite degrees of freedom. Each arm needs two values.
    """
    _refuse_bad_values("a", a, minimum=2)
    _refuse_bad_values("b", b, minimum=2)
    va, vb = stdev(a) ** 2 / len(a), stdev(b) ** 2 / len(b)
    total = va + vb
    df = math.inf
    if total > 0:
        df = total**2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return _difference(fmean(a) - fmean(b), math.sqrt(total), df, confidence)


def paired(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Difference:
    """Difference of two arms whose values belong together one by one, as a declared pairing."""
    if len(a) != len(b):
        raise ValueError(f"a and b must be equally long to be paired, got {len(a)} and {len(b)}")
    _refuse_bad_values("a", a, minimum=2)
    _refuse_bad_values("b", b, minimum=2)
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    error = stdev(gaps) / math.sqrt(len(gaps))
    return _difference(fmean(gaps), error, len(gaps) - 1, confidence)


def compare(
    a: Sequence[float],
    b: Sequence[float],
    *,
    pairing: bool = False,
    confidence: float = CONFIDENCE,
) -> Difference:
    """``paired`` where a pairing was declared beforehand, else ``welch``."""
    return (paired if pairing else welch)(a, b, confidence)


def _difference(difference: float, error: float, df: float, confidence: float) -> Difference:
    _refuse_bad_confidence(confidence)
    if error == 0:
        p_value = 1.0 if difference == 0 else 0.0
        return Difference(difference, difference, difference, 0.0, df, p_value, confidence)
    half = t_quantile((1 + confidence) / 2, df) * error
    p_value = 2 * t_tail(abs(difference) / error, df)
    return Difference(
        difference, difference - half, difference + half, error, df, p_value, confidence
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: each holds for all of them together."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


# --- Margins -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NonInferiority:
    """Whether a is worse than b by less than a margin declared beforehand."""

    shown: bool
    margin: float
    #: The largest amount by which a may be worse, at the interval's confidence.
    worst_case: float


def non_inferiority(
    difference: Difference, margin: float, *, lower_is_better: bool = True
) -> NonInferiority:
    """Judge a difference against the margin: its interval must end before it."""
    if not margin > 0:
        raise ValueError(f"margin must be > 0, got {margin}")
    worst = difference.high if lower_is_better else -difference.low
    return NonInferiority(worst < margin, margin, worst)


@dataclass(frozen=True)
class Equivalence:
    """Whether the interval of a log ratio lies inside the tolerance on both sides."""

    shown: bool
    #: Ends of the region, as logs.
    bound: float


def equivalence_of_logs(low: float, high: float, tolerance: float) -> Equivalence:
    """Two one-sided tests on a log ratio: its interval inside ±log(1 + tolerance).

    With the 95 % interval each side has level 2.5 %; TOST at 5 % would take the 90 % one.
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance must be > 0, got {tolerance}")
    bound = math.log1p(tolerance)
    return Equivalence(-bound < low and high < bound, bound)


# --- Before anything is run ----------------------------------------------------------------------


def detectable_difference(
    sd: float,
    n: int,
    *,
    paired: bool = False,
    power: float = POWER,
    confidence: float = CONFIDENCE,
) -> float:
    """Difference of means that n seeds per arm show with probability ``power``.

    From noncentral t and a two-sided test, within 1e-8: of two arms that spread equally by ``sd``,
    or, paired, of n pairs whose differences spread by ``sd``.
    """
    if n < 2:
        raise ValueError(f"n must be at least 2 to see any difference, got {n}")
    if not sd >= 0:
        raise ValueError(f"sd must be >= 0, got {sd}")
    df = n - 1 if paired else 2 * n - 2
    critical = t_quantile((1 + confidence) / 2, df)
    # In standard errors of the difference; power rises with it.
    shift = _first_above(lambda shift: _power(critical, shift, df) - power, critical + 1.0)
    return shift * sd * math.sqrt((1 if paired else 2) / n)


def _first_above(function: Callable[[float], float], guess: float) -> float:
    """Where a rising function passes 0 above 0, by false position (Illinois) within a bracket."""
    low, high = 0.0, guess
    at_low, at_high = function(low), function(high)
    if at_low >= 0:
        return 0.0
    while at_high < 0:
        low, high, at_low = high, 2 * high, at_high
        at_high = function(high)
    for _ in range(100):
        x = high - at_high * (high - low) / (at_high - at_low)
        value = function(x)
        if value < 0:
            low, at_low, at_high = x, value, at_high / 2
        else:
            high, at_high, at_low = x, value, at_low / 2
        if high - low <= 1e-10 * high or abs(value) < 1e-13:
            return x
    return high


def _power(critical: float, shift: float, df: float) -> float:
    """Probability that a two-sided test sees a difference of ``shift`` standard errors."""
    return noncentral_t_tail(critical, shift, df) + noncentral_t_tail(critical, -shift, df)


def noncentral_t_tail(t: float, shift: float, df: float) -> float:
    """Probability that (Z + shift) / sqrt(chi^2 / df) exceeds t > 0; within 1e-10, for df >= 1.

    By Gauss-Legendre quadrature over u = sqrt(chi^2 / df).
    """
    # u has mean about 1 and deviation about 1 / sqrt(2 df).
    spread = 1 / math.sqrt(2 * df)
    low, high = max(0.0, 1 - 10 * spread), 1 + 12 * spread
    # The normal probability falls from 1 to 0 around shift / t, over a few times 1 / t.
    edges = [shift / t + k / t for k in (-8, -4, 0, 4, 8)] + [1 - 4 * spread, 1, 1 + 4 * spread]
    inside = sorted({low, high, *(edge for edge in edges if low < edge < high)})
    log_scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    total = 0.0
    for left, right in itertools.pairwise(inside):
        middle, half = (left + right) / 2, (right - left) / 2
        for node, weight in _legendre():
            u = middle + half * node
            density = math.exp(log_scale + (df - 1) * math.log(u) - df * u * u / 2)
            above = 0.5 * math.erfc((t * u - shift) / math.sqrt(2))
            total += half * weight * density * above
    return total


@cache
def _legendre(count: int = 24) -> tuple[tuple[float, float], ...]:
    """Nodes and weights of Gauss-Legendre quadrature over -1 to 1, by Newton's method."""
    found = []
    for i in range(count):
        x = math.cos(math.pi * (i + 0.75) / (count + 0.5))
        for _ in range(100):
            before, value = 1.0, x
            for k in range(2, count + 1):
                before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
            slope = count * (x * value - before) / (x * x - 1)
            x -= value / slope
            if abs(value / slope) < 1e-15:
                break
        found.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(found)


def seeds_needed(
    sd: float,
    difference: float,
    *,
    paired: bool = False,
    power: float = POWER,
    confidence: float = CONFIDENCE,
) -> int:
    """Seeds per arm with which ``difference`` is seen with probability ``power``.

    ``sd`` as for ``detectable_difference``.
    """
    if not difference > 0:
        raise ValueError(f"difference must be > 0, got {difference}")

    def seen(n: int) -> bool:
        at_n = detectable_difference(sd, n, paired=paired, power=power, confidence=confidence)
        return at_n <= difference

    low, high = 1, 2
    while not seen(high):
        low, high = high, high * 2
        if high > MOST_SEEDS:
            raise ValueError(
                f"difference must not be so small beside sd: {difference} with sd = {sd} would "
                f"take more than {MOST_SEEDS} seeds per arm"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _refuse_bad_values(name: str, values: Sequence[float], minimum: int) -> None:
    if len(values) < minimum:
        raise ValueError(f"{name} needs at least {minimum} values, got {len(values)}")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def _refuse_bad_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
