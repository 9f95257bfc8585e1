"""Student's t, power and tests beside mpmath and scipy, which compute the same by other ways."""

import itertools
import math
import random

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from ndadam.statistics.inference import (
    detectable_difference,
    fraction_interval,
    holm,
    mean_interval,
    welch,
)
from ndadam.statistics.student_t import t_quantile, t_tail

# Fractional, where the tails are heavy, and beyond what the continued fraction takes.
DEGREES = [0.05, 0.3, 1, 1.5, 2, 5, 20, 57.3, 197, 999, 1001, 5e3, 1e5, 9e5, 1.1e6, 1e7, 1e9]
TAILS = [1e-100, 1e-10, 1e-4, 0.01, 0.025, 0.1, 0.3, 0.4501, 0.49, 0.4989, 0.49999, 0.499999]


def exact_tail(t: float, df: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Of Student's t to 50 digits: P(T > t), and P(0 < T < t)."""
    n, squared = mpmath.mpf(df), mpmath.mpf(t) ** 2
    y = n / (n + squared)
    return (
        mpmath.betainc(n / 2, 0.5, 0, y, regularized=True) / 2,
        mpmath.betainc(0.5, n / 2, 0, squared / (n + squared), regularized=True) / 2,
    )


@pytest.mark.parametrize("df", DEGREES)
def test_quantiles_are_exact_to_a_relative_1e_12(df: float) -> None:
    with mpmath.workdps(50):
        for p in TAILS:
            t = -t_quantile(p, df)
            if math.isinf(t):
                continue
            tail, center = exact_tail(t, df)
            excess = mpmath.mpf(p) - tail if p < 0.4 else center - (0.5 - mpmath.mpf(p))
            n = mpmath.mpf(df)
            density = (1 + mpmath.mpf(t) ** 2 / n) ** (-(n + 1) / 2)
            density /= mpmath.sqrt(n) * mpmath.beta(n / 2, 0.5)
            assert abs(excess / (density * t)) < 1e-12, (p, df, t)


@pytest.mark.parametrize("p", [0.501, 0.6, 0.975, 1 - 1e-9])
@pytest.mark.parametrize("df", [0.7, 3, 197, 1e7])
def test_upper_quantiles_mirror_the_lower_ones(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(-t_quantile(1 - p, df), rel=1e-9)


def test_a_quantile_of_heavy_tails_is_a_number() -> None:
    assert t_quantile(1e-10, 0.05) == pytest.approx(-1.0876044676001384e193, rel=1e-9)
    assert t_quantile(1e-300, 0.05) == -math.inf


@pytest.mark.parametrize("df", DEGREES[:-1])
def test_tails_are_exact_to_a_relative_1e_10(df: float) -> None:
    with mpmath.workdps(40):
        for t in (1e-9, 1e-3, 0.3, 0.49, 0.51, 2.0, 8.0):
            tail, _ = exact_tail(t, df)
            assert abs(t_tail(t, df) / tail - 1) < 1e-10, (t, df)


def exact_power(critical: float, shift: float, df: float) -> float:
    """Of a two-sided t-test, integrated over the spread that it may find."""
    chi = stats.chi(df)
    last = 1 + 14 / math.sqrt(2 * df)

    def above(shift: float) -> float:
        falls = [shift / critical + k / critical for k in (-8, 0, 8)]
        return float(
            integrate.quad(
                lambda u: (
                    chi.pdf(u * math.sqrt(df)) * math.sqrt(df) * stats.norm.sf(critical * u - shift)
                ),
                *(0, last),
                points=[u for u in falls if 0 < u < last] or None,
                epsabs=1e-12,
                epsrel=1e-11,
                limit=400,
            )[0]
        )

    return above(shift) + above(-shift)


def test_two_pairs_see_what_scipy_says_they_see() -> None:
    assert detectable_difference(1.0, 2, paired=True) == pytest.approx(11.54988843, rel=1e-8)


@pytest.mark.parametrize(
    ("n", "paired", "power", "confidence"),
    [
        *itertools.product([2, 3, 10], [False, True], [0.8], [0.95, 0.99]),
        *[
            (2, True, 0.5, 0.9),
            (2, True, 0.99, 0.99),
            (5, False, 0.9, 0.999),
            (200, True, 0.8, 0.95),
        ],
    ],
)
def test_detectable_differences_have_the_power_they_claim(
    n: int, paired: bool, power: float, confidence: float
) -> None:
    df = n - 1 if paired else 2 * n - 2
    critical = stats.t.ppf((1 + confidence) / 2, df)
    high = critical + 1
    while exact_power(critical, high, df) < power:
        high *= 2
    shift = optimize.brentq(lambda s: exact_power(critical, s, df) - power, 0, high, xtol=1e-10)

    found = detectable_difference(1.0, n, paired=paired, power=power, confidence=confidence)

    assert found == pytest.approx(shift * math.sqrt((1 if paired else 2) / n), rel=1e-8)


def test_welch_equals_scipy_in_random_cases() -> None:
    draw = random.Random(3)
    for _ in range(200):
        a = [draw.gauss(0, draw.uniform(0.1, 3)) for _ in range(draw.randint(2, 12))]
        b = [draw.gauss(1, 1) for _ in range(draw.randint(2, 12))]

        mine, theirs = welch(a, b), stats.ttest_ind(a, b, equal_var=False)

        interval = theirs.confidence_interval(0.95)
        assert mine.p_value == pytest.approx(theirs.pvalue, rel=1e-11)
        assert (mine.low, mine.high) == pytest.approx(tuple(interval), rel=1e-11)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("spreads", [(1.0, 1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 2.0)], ids=str)
def test_a_sweep_without_a_difference_seldom_shows_one(n: int, spreads: tuple[float, ...]) -> None:
    generator = np.random.default_rng(n)
    sweeps, false = 400, 0
    for _ in range(sweeps):
        arms = [list(generator.normal(0, spread, n)) for spread in spreads]
        p_values = [welch(a, b).p_value for a, b in itertools.combinations(arms, 2)]
        false += min(holm(p_values)) < 0.05

    # At most 4.0 % in 10,000 such sweeps; 400 find 6.8 % or more in one of a hundred tests at that.
    assert false / sweeps < 0.068


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("relative", [0.1, 0.6, 1.0])
def test_intervals_of_fractions_cover_more_often_than_symmetric_ones(
    n: int, relative: float
) -> None:
    """Errors of seeds around 5 % that spread as a beta distribution by ``relative`` times that."""
    generator, mean, runs = np.random.default_rng(n), 0.05, 4000
    strength = mean * (1 - mean) / (relative * mean) ** 2 - 1
    hits = symmetric_hits = 0
    for row in generator.beta(mean * strength, (1 - mean) * strength, (runs, n)):
        found, symmetric = fraction_interval(list(row)), mean_interval(list(row))
        assert found.low is not None
        assert found.high is not None
        assert symmetric.half_width is not None
        assert 0 <= found.low <= found.mean <= found.high <= 1
        hits += found.low <= mean <= found.high
        symmetric_hits += abs(symmetric.mean - mean) <= symmetric.half_width

    # 3 standard deviations of a share of 4,000. With few seeds and much spread neither is exact:
    # 93.5 % in 200,000 runs at n = 5 and a relative spread of 1, where the symmetric has 88.4 %.
    assert hits / runs > 0.935 - 0.0117
    assert hits >= symmetric_hits - (2 if relative == 0.1 else 0)


def test_intervals_of_fractions_equal_a_logit_regression_with_t() -> None:
    # An intercept on the logit scale by least squares on proportions, with the variance of a mean
    # and t(0.975, 2): the delta method, computed by scipy's functions.
    errors = [0.02, 0.05, 0.11]
    m, se = np.mean(errors), stats.sem(errors)
    reach = stats.t.ppf(0.975, 2) * se / (m * (1 - m))

    found = fraction_interval(errors)

    assert (found.low, found.high) == pytest.approx(
        tuple(special.expit(special.logit(m) + sign * reach) for sign in (-1, 1)), rel=1e-12
    )
