"""Student's t distribution in pure Python, from the regularised incomplete beta function.

The quantile is accurate to 1e-9 or better; ``tests/ndadam/statistics/test_inference.py`` compares
it with published tables. Nothing here needs scipy, so a process that only shows results can use it.
"""

import math
from statistics import NormalDist


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function (Lentz; Numerical Recipes 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return fraction


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), 0 <= x <= 1."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1 - x) / b


def t_cdf(t: float, df: float) -> float:
    """Probability that Student's t with ``df`` > 0 degrees of freedom is below ``t``."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = t_tail(abs(t), df)
    return 1.0 - tail if t > 0 else tail


def t_tail(t: float, df: float) -> float:
    """Probability that Student's t is above ``t`` >= 0; keeps its digits far out."""
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))


def t_quantile(p: float, df: float) -> float:
    """Value that Student's t with ``df`` degrees of freedom stays below with probability ``p``.

    ``df`` may be fractional (Welch) or infinite (the normal distribution).
    """
    if not 0 < p < 1:
        raise ValueError(f"p must be above 0 and below 1, got {p}")
    if not df > 0:
        raise ValueError(f"df must be above 0, got {df}")
    if p == 0.5:
        return 0.0
    if math.isinf(df):
        return NormalDist().inv_cdf(p)
    if p < 0.5:
        return -t_quantile_upper(p, df)
    return t_quantile_upper(1 - p, df)


def t_quantile_upper(tail: float, df: float) -> float:
    """Value that Student's t exceeds with probability ``tail`` < 1/2, by bisection and Newton."""
    high = 1.0
    while t_tail(high, df) > tail:
        high *= 2
    low = high / 2 if high > 1 else 0.0
    log_density = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    x = (low + high) / 2
    for _ in range(200):
        excess = t_tail(x, df) - tail
        low, high = (x, high) if excess > 0 else (low, x)
        step = excess / math.exp(log_density - (df + 1) / 2 * math.log1p(x * x / df))
        following = x + step
        if not low <= following <= high:
            following = (low + high) / 2
        if abs(following - x) <= 1e-14 * max(1.0, x):
            return following
        x = following
    return x
