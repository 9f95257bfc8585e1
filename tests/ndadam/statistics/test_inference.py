"""Student's t against published tables; intervals, tests and margins against worked examples."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndadam.statistics.inference import (
    compare,
    detectable_difference,
    equivalence_of_logs,
    fraction_interval,
    holm,
    mean_interval,
    non_inferiority,
    paired,
    seeds_needed,
    t_cdf,
    t_quantile,
    welch,
)

#: NIST/SEMATECH e-Handbook 1.3.6.7.2 gives three digits; these come from the closed forms of one,
#: two and four degrees of freedom, and from 30-digit arithmetic (mpmath) for the rest.
PUBLISHED = [
    (0.975, 1, 12.706204736174707),
    (0.975, 2, 4.302652729749464),
    (0.95, 4, 2.131846786326649),
    (0.975, 9, 2.2621571627982053),
    (0.9995, 3, 12.923978636687485),
    (0.975, 30, 2.0422724563012383),
    (0.9, 120, 1.2886462347664637),
    (0.975, math.inf, 1.9599639845400542),
]


@pytest.mark.parametrize(("p", "df", "value"), PUBLISHED)
def test_quantiles_equal_published_values(p, df, value):
    assert t_quantile(p, df) == pytest.approx(value, abs=1e-8)
    assert t_quantile(1 - p, df) == pytest.approx(-value, abs=1e-8)


def test_one_and_two_degrees_of_freedom_have_closed_forms():
    for p in (0.6, 0.9, 0.99, 0.9999):
        cauchy = math.tan(math.pi * (p - 0.5))
        two = (2 * p - 1) / math.sqrt(2 * p * (1 - p))

        assert t_quantile(p, 1) == pytest.approx(cauchy, rel=1e-10)
        assert t_quantile(p, 2) == pytest.approx(two, rel=1e-10)


@settings(deadline=None)
@given(p=st.floats(0.001, 0.999), df=st.floats(0.5, 1e5))
def test_quantile_inverts_the_distribution(p, df):
    assert t_cdf(t_quantile(p, df), df) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "df", "message"),
    [
        (0.0, 3, "p must be above 0 and below 1, got 0.0"),
        (1.0, 3, "p must be above 0 and below 1, got 1.0"),
        (0.5, 0, "df must be above 0, got 0"),
        (0.5, math.nan, "df must be above 0, got nan"),
    ],
)
def test_quantile_refuses_what_has_none(p, df, message):
    with pytest.raises(ValueError, match=message):
        t_quantile(p, df)


# --- Means ---------------------------------------------------------------------------------------


def test_three_seeds_give_the_textbook_interval():
    found = mean_interval([1.0, 2.0, 3.0])

    assert (found.n, found.mean, found.sd) == (3, 2.0, 1.0)
    # 4.302653 / sqrt(3)
    assert found.half_width == pytest.approx(2.4841377, abs=1e-6)


def test_one_seed_has_no_interval():
    found = mean_interval([0.5])

    assert (found.sd, found.low, found.high, found.half_width) == (None, None, None, None)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_means_refuse_nothing_and_what_is_not_finite(values):
    with pytest.raises(ValueError, match="values"):
        mean_interval(values)


def test_interval_covers_the_mean_as_often_as_it_says():
    rng = random.Random(1)
    hits = 0
    for _ in range(4000):
        found = mean_interval([rng.gauss(0, 1) for _ in range(4)])
        hits += found.low <= 0 <= found.high

    # 3 standard deviations of a share of 4,000 around 0.95
    assert hits / 4000 == pytest.approx(0.95, abs=0.0103)


def test_a_fraction_has_no_interval_beyond_0_and_1():
    # 5.38 ± 11.03 % of two seeds. logit(0.0538) = -2.8672, and t s / (m (1 - m)) = 2.1666.
    values = [0.0538 - 0.00868, 0.0538 + 0.00868]
    found = fraction_interval(values)

    assert found.mean == pytest.approx(0.0538)
    assert (found.low, found.high) == pytest.approx((0.00647, 0.3317), rel=1e-3)
    assert mean_interval(values).low == pytest.approx(-0.0565, abs=1e-4)


def test_fractions_that_all_are_the_same_have_an_interval_of_no_length():
    assert fraction_interval([0.0, 0.0]).high == 0.0
    assert fraction_interval([1.0, 1.0]).low == 1.0
    assert (fraction_interval([0.3, 0.3]).low, fraction_interval([0.3, 0.3]).high) == (0.3, 0.3)


def test_a_small_spread_makes_the_two_intervals_one():
    values = [0.0500, 0.0501, 0.0502]
    found, symmetric = fraction_interval(values), mean_interval(values)

    assert (found.low, found.high) == pytest.approx((symmetric.low, symmetric.high), rel=2e-5)


def test_a_single_fraction_has_no_interval():
    assert fraction_interval([0.05]).low is None


@pytest.mark.parametrize("value", [-0.01, 1.01])
def test_fractions_are_within_0_and_1(value):
    with pytest.raises(ValueError, match="fractions must be within 0 and 1"):
        fraction_interval([0.5, value])


# --- Two arms ------------------------------------------------------------------------------------


def test_welch_equals_its_worked_example():
    """Welch 1947's setting with unequal variances; values computed by hand below."""
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5]
    found = welch(a, b)

    va = sum((x - fmean(a)) ** 2 for x in a) / 5 / 6
    vb = sum((x - fmean(b)) ** 2 for x in b) / 5 / 6
    df = (va + vb) ** 2 / (va**2 / 5 + vb**2 / 5)
    assert found.difference == pytest.approx(21.0 - 140.2 / 6)
    assert found.standard_error == pytest.approx(math.sqrt(va + vb))
    assert found.df == pytest.approx(df)
    assert found.direction() == "not shown"


def test_equal_spread_and_size_make_welch_the_pooled_t_test():
    found = welch([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])

    assert found.df == pytest.approx(4)
    assert found.direction() == "lower"
    # t = 10 / sqrt(2/3) = 12.247 with 4 degrees of freedom
    assert found.p_value == pytest.approx(2.55e-4, rel=0.01)


def test_pairing_removes_what_seeds_share():
    a, b = [10.0, 20.0, 30.0, 40.0], [10.1, 20.12, 30.08, 40.1]

    assert compare(a, b).direction() == "not shown"
    assert compare(a, b, pairing=True).direction() == "lower"
    assert paired(a, b).df == 3


def test_arms_without_spread_differ_for_certain_or_not_at_all():
    assert welch([1.0, 1.0], [1.0, 1.0]).direction() == "not shown"
    assert welch([2.0, 2.0], [1.0, 1.0]).direction() == "higher"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0], [1.0, 2.0], "a needs at least 2 values, got 1"),
        ([1.0, 2.0], [math.nan, 1.0], "b must be finite, got nan"),
    ],
)
def test_welch_refuses_arms_without_a_spread(a, b, message):
    with pytest.raises(ValueError, match=message):
        welch(a, b)


def test_holm_equals_its_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_holm_never_turns_a_verdict_around_on_its_own():
    found = welch([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])

    assert found.direction(p_value=0.06) == "not shown"


# --- Margins -------------------------------------------------------------------------------------


def test_non_inferiority_needs_the_whole_interval_below_the_margin():
    found = welch([5.0, 5.1, 5.2], [5.0, 5.1, 5.2])

    assert non_inferiority(found, margin=0.3).shown
    assert not non_inferiority(found, margin=0.2).shown
    assert non_inferiority(found, 0.3).worst_case == pytest.approx(found.high)


def test_non_inferiority_turns_round_where_higher_is_better():
    better = welch([9.0, 9.1, 9.2], [5.0, 5.1, 5.2])

    assert non_inferiority(better, 0.1, lower_is_better=False).shown
    assert not non_inferiority(better, 0.1).shown


def test_equivalence_is_no_lack_of_significance():
    bound = math.log(1.05)

    assert equivalence_of_logs(-0.04, 0.04, 0.05).shown
    assert not equivalence_of_logs(-0.2, 0.2, 0.05).shown  # not significantly different from 0
    assert not equivalence_of_logs(0.0, bound, 0.05).shown


# --- Beforehand ----------------------------------------------------------------------------------


def test_three_seeds_per_arm_see_three_deviations():
    """3.07 deviations: the tabulated effect size of a two-sided t test with n = 3 and power 0.8."""
    assert detectable_difference(1.0, 3) == pytest.approx(3.07, abs=0.01)
    assert detectable_difference(0.12, 3) == pytest.approx(0.368, abs=0.002)


def test_pairs_need_the_tabulated_numbers():
    """Of a paired t test with power 0.8: 34 pairs for 0.5 deviations of the differences."""
    assert seeds_needed(1.0, 0.5, paired=True) == 34
    assert detectable_difference(1.0, 10, paired=True) == pytest.approx(0.996, abs=0.005)


def test_a_detectable_difference_is_seen_as_often_as_it_says():
    rng = random.Random(2)
    n, trials = 6, 3000
    shift = detectable_difference(1.0, n)
    seen = sum(
        welch(
            [rng.gauss(shift, 1) for _ in range(n)], [rng.gauss(0, 1) for _ in range(n)]
        ).direction()
        == "higher"
        for _ in range(trials)
    )

    assert seen / trials == pytest.approx(0.8, abs=0.03)


@settings(deadline=None, max_examples=25)
@given(sd=st.floats(0.1, 3), difference=st.floats(0.3, 10))
def test_seeds_needed_is_the_smallest_number_that_sees_it(sd, difference):
    n = seeds_needed(sd, difference)

    assert detectable_difference(sd, n) <= difference
    assert n == 2 or detectable_difference(sd, n - 1) > difference
