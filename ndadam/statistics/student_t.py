"""Student's t distribution in pure Python, from the regularised incomplete beta function.

The quantile is accurate to a relative 1e-9 or better for every ``df`` and ``p``;
``tests/ndadam/statistics/test_student_t.py`` compares it with 50-digit numbers and with scipy.
Nothing here needs scipy, so a process that only shows results can use it.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

#: Beyond this many degrees of freedom the continued fraction needs thousands of terms.
_MANY = 1e6


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


def _log_beta_half(a: float) -> float:
    """log B(a, 1/2) without the cancellation of log-gammas of large arguments."""
    if a < 30:
        return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    # log(gamma(a + 1/2) / gamma(a)), asymptotic (Tricomi and Erdelyi 1951); 1e-17 from a = 30 on.
    s = 1 / (a * a)
    series = 1 / 8 - s * (1 / 192 - s * (1 / 640 - s * (17 / 14336 - s * 31 / 18432)))
    return 0.5 * math.log(math.pi) - (0.5 * math.log(a) - series / a)


def t_cdf(t: float, df: float) -> float:
    """Probability that Student's t with ``df`` > 0 degrees of freedom is below ``t``."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = t_tail(abs(t), df)
    return 1.0 - tail if t > 0 else tail


def t_tail(t: float, df: float) -> float:
    """Probability that Student's t is above ``t`` >= 0; keeps its digits far out."""
    if df > _MANY:
        return _normal_tail(t, df)
    if t * t < df and t < 0.5:
        return 0.5 - _center(t, df)
    # log(df / (df + t^2)), also where t^2 is beyond the largest float.
    log_y = -math.log1p(t / df * t) if t < 1e100 else math.log(df) - 2 * math.log(t)
    return _tail_at(log_y, df)


def _center(t: float, df: float) -> float:
    """Probability of 0 < T < t, for small t: keeps its digits near 0."""
    ratio = t / df * t
    x = ratio / (1 + ratio)
    if x == 0:
        return t * math.exp(-_log_beta_half(df / 2)) / math.sqrt(df)
    log_front = 0.5 * math.log(x) - df / 2 * math.log1p(ratio) - _log_beta_half(df / 2)
    return math.exp(log_front) * _beta_fraction(0.5, df / 2, x)


def _tail_at(log_y: float, df: float) -> float:
    """Probability of T > t where log(df / (df + t^2)) is ``log_y``."""
    a, y = df / 2, math.exp(log_y)
    rest = -math.expm1(log_y)  # 1 - y
    if rest <= 0:
        return 0.5
    log_front = a * log_y + 0.5 * math.log(rest) - _log_beta_half(a)
    if y < (a + 1) / (a + 2.5):
        return 0.5 * math.exp(log_front) * _beta_fraction(a, 0.5, y) / a
    return 0.5 - math.exp(log_front) * _beta_fraction(0.5, a, rest)


def _normal_tail(t: float, df: float) -> float:
    """The tail for many degrees of freedom: Student's t taken to a normal quantile (Hill 1970)."""
    if math.isinf(df):
        return 0.5 * math.erfc(t / math.sqrt(2))
    # z^2 = (df - 1/2) log(1 + t^2 / df), with the next term of 1 / df.
    squared = (df - 0.5) * math.log1p(t / df * t)
    z = math.sqrt(squared)
    z += (z**3 + 3 * z) / (48 * (df - 0.5) ** 2)
    return 0.5 * math.erfc(z / math.sqrt(2))


def t_quantile(p: float, df: float) -> float:
    """Value that Student's t with ``df`` degrees of freedom stays below with probability ``p``.

    ``df`` may be fractional (Welch) or infinite (the normal distribution). A value beyond the
    largest float is infinite.
    """
    if not 0 < p < 1:
        raise ValueError(f"p must be above 0 and below 1, got {p}")
    if not df > 0:
        raise ValueError(f"df must be above 0, got {df}")
    if p == 0.5:
        return 0.0
    if math.isinf(df):
        return NormalDist().inv_cdf(p)
    # Both are exact, and one of them has all digits of p.
    upper = _quantile(min(p, 1 - p), abs(p - 0.5), df)
    return -upper if p < 0.5 else upper


def t_quantile_upper(tail: float, df: float) -> float:
    """Value that Student's t exceeds with probability ``tail`` < 1/2."""
    return _quantile(tail, 0.5 - tail, df)


def _quantile(tail: float, center: float, df: float) -> float:
    z = -NormalDist().inv_cdf(tail) if center > 1e-3 else center * math.sqrt(2 * math.pi)
    if df > 1000 and z * z < 1e-3 * df:
        return _expanded(center, tail, df)
    if center < 0.05:
        # The density at 0 is the largest, so the value is at least that of a flat density.
        flat = center * math.sqrt(df) * math.exp(_log_beta_half(df / 2))
        return _solve(lambda t: _center(t, df), lambda t: _density(t, df), center, flat, 2 * flat)
    # In the logarithm of y = df / (df + t^2), in which the tail goes as a power of y.
    log_tail = math.log(tail)
    low = (log_tail + math.log(df) + _log_beta_half(df / 2)) / (df / 2) - 1
    log_beta = _log_beta_half(df / 2)

    def slope(log_y: float) -> float:
        log_rest = math.log(-math.expm1(log_y))
        front = df / 2 * log_y - 0.5 * log_rest - log_beta
        return 0.5 * math.exp(front) / max(_tail_at(log_y, df), 1e-320)

    def height(log_y: float) -> float:
        return math.log(max(_tail_at(log_y, df), 1e-320))

    log_y = _solve(height, slope, log_tail, low, -1e-16)
    half = 0.5 * (math.log(df) + math.log(-math.expm1(log_y)) - log_y)
    return math.exp(half) if half < 709 else math.inf


def _density(t: float, df: float) -> float:
    log_front = -_log_beta_half(df / 2) - 0.5 * math.log(df)
    return math.exp(log_front - (df + 1) / 2 * math.log1p(t / df * t))


def _expanded(center: float, tail: float, df: float) -> float:
    """The quantile from the normal one, in powers of 1 / df (Abramowitz and Stegun 26.7.5)."""
    if center < 1e-3:
        # z of a small center, by series: inv_cdf of a number beside 1/2 has lost digits.
        c = center * math.sqrt(2 * math.pi)
        z = c * (1 + c * c / 6 * (1 + 7 * c * c / 20))
    else:
        z = -NormalDist().inv_cdf(tail)
    s = z * z
    terms = (
        (s + 1) / 4,
        ((5 * s + 16) * s + 3) / 96,
        (((3 * s + 19) * s + 17) * s - 15) / 384,
        ((((79 * s + 776) * s + 1482) * s - 1920) * s - 945) / 92160,
    )
    return z * (1 + sum(term / df**k for k, term in enumerate(terms, start=1)))


def _solve(
    function: Callable[[float], float],
    slope: Callable[[float], float],
    value: float,
    low: float,
    high: float,
) -> float:
    """Where a rising function has a value, by Newton's method kept inside a bracket."""
    x = (low + high) / 2
    for _ in range(300):
        excess = function(x) - value
        low, high = (x, high) if excess < 0 else (low, x)
        rise = slope(x)
        following = x - excess / rise if rise > 0 else math.nan
        if not low <= following <= high:
            following = (low + high) / 2
        if abs(following - x) <= 4e-16 * abs(x):
            return following
        x = following
    return x
