"""Intervals of means over seeds, with errors that each seed knows of itself."""

import math
import random
from statistics import fmean

import pytest

from ndadam.matching.verdict import Pair, measure
from ndadam.statistics.blocked_means import MeanError
from ndadam.statistics.seed_interval import difference_error, pooled_error, seed_interval
from ndadam.statistics.student_t import t_quantile

T2, T60 = t_quantile(0.975, 2), t_quantile(0.975, 60)


def test_seeds_that_agree_pool_their_degrees_of_freedom():
    found = seed_interval([0.99, 1.0, 1.01], [MeanError(0.02, 20.0)] * 3, 0.95)

    assert found.rests_on == "steps"
    assert found.half_width == pytest.approx(T60 * 0.02 / math.sqrt(3))


def test_seeds_that_differ_by_more_than_their_steps_have_two_degrees_of_freedom():
    found = seed_interval([0.9, 1.0, 1.1], [MeanError(0.02, 20.0)] * 3, 0.95)

    assert found.rests_on == "seeds"
    assert found.half_width == pytest.approx(T2 * 0.1 / math.sqrt(3))


@pytest.mark.parametrize(("apart", "rests_on"), [(0.019, "steps"), (0.021, "seeds")])
def test_three_seeds_count_from_the_spread_that_their_steps_explain(apart, rests_on):
    found = seed_interval([1 - apart, 1.0, 1 + apart], [MeanError(0.02, 20.0)] * 3, 0.95)

    assert found.rests_on == rests_on


@pytest.mark.parametrize(("apart", "rests_on"), [(0.0135, "steps"), (0.0145, "seeds")])
def test_two_seeds_count_from_half_of_it(apart, rests_on):
    """Their variance is apart^2 / 2, and a quarter of 0.02^2 is enough."""
    found = seed_interval([1.0, 1 + apart], [MeanError(0.02, 20.0)] * 2, 0.95)

    assert found.rests_on == rests_on


def test_a_single_seed_has_its_steps_alone():
    found = seed_interval([1.0], [MeanError(0.02, 60.0)], 0.95)

    assert (found.half_width, found.rests_on) == (pytest.approx(T60 * 0.02), "steps")


def test_an_uncertain_seed_brings_the_degrees_of_freedom_down():
    """Satterthwaite: an error that dwarfs the others leaves its own degrees of freedom."""
    assert pooled_error([MeanError(1.0, 5.0), MeanError(1e-6, 50.0)]).df == pytest.approx(5.0)
    assert pooled_error([MeanError(0.0, 5.0)] * 2) == MeanError(0.0, 10.0)
    equal = pooled_error([MeanError(3.0, 8.0), MeanError(3.0, 8.0)])
    assert (equal.standard_error, equal.df) == pytest.approx((3 / math.sqrt(2), 16.0))


def test_the_error_of_a_difference_is_that_of_both():
    found = difference_error(MeanError(3.0, 10.0), MeanError(4.0, 10.0))

    assert found.standard_error == pytest.approx(5.0)
    assert found.df == pytest.approx(25**2 / (9**2 / 10 + 16**2 / 10))


def test_every_seed_must_bring_its_error():
    with pytest.raises(ValueError, match="one per seed, at least one, got 2 and 1"):
        seed_interval([1.0, 2.0], [MeanError(0.1, 9.0)], 0.95)
    with pytest.raises(ValueError, match="at least one, got 0 and 0"):
        seed_interval([], [], 0.95)


# --- Coverage ------------------------------------------------------------------------------------


def share_covered(trials, once):
    return sum(once() for _ in range(trials)) / trials


@pytest.mark.parametrize(
    ("seeds", "between"), [(2, 0.0), (2, 3.0), (3, 0.0), (3, 1.0), (3, 3.0), (3, 30.0), (5, 0.0)]
)
def test_intervals_cover_however_much_seeds_differ(seeds, between):
    """``between`` is in variances of a seed's own error; a standard error here is 0.8 %."""
    rng, df = random.Random(f"{seeds} {between}"), 20

    def once():
        values = [rng.gauss(0, math.sqrt(1 + between)) for _ in range(seeds)]
        errors = [
            MeanError(math.sqrt(rng.gammavariate(df / 2, 2 / df)), float(df)) for _ in range(seeds)
        ]
        return abs(fmean(values)) <= seed_interval(values, errors, 0.95).half_width

    assert 0.915 <= share_covered(800, once) <= 0.99


@pytest.mark.parametrize(
    ("rho", "steps", "seed_sd"), [(0.98, 1200, 0.0), (0.9, 600, 0.014), (0.9, 600, 0.08)]
)
def test_measured_ratios_cover_under_strong_correlation_and_between_seeds(rho, steps, seed_sd):
    """Of three seeds, whose steps scatter by 8 %: an error of 2.3, 1.4 and 1.4 % in one of them."""
    rng = random.Random(f"{rho} {seed_sd}")

    def once():
        pairs = []
        for _ in range(3):
            x, shift, source = rng.gauss(0, 0.08), rng.gauss(0, seed_sd), []
            for _ in range(steps):
                x = rho * x + 0.08 * math.sqrt(1 - rho * rho) * rng.gauss(0, 1)
                source.append(0.01 * math.exp(shift + x))
            # The root mean square of a lognormal.
            pairs.append(Pair(source, [0.01 * math.exp(0.08**2)] * steps))
        ratio = measure("stationary", pairs, 30)
        return ratio.low <= 0 <= ratio.high

    # Two standard errors of a share of 80 below 92 %.
    assert share_covered(80, once) >= 0.86
