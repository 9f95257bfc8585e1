"""Measured matches on simulated runs, where the truth is known."""

import math
import random
import re
from statistics import fmean

import pytest

from ndadam.matching.verdict import (
    LogRatio,
    Pair,
    burn_in_steps,
    correct_rate,
    drift,
    fraction_inside,
    influence,
    judge,
    least_block,
    log_ratio,
    measure,
    rms_log_error,
    smooth,
)
from ndadam.statistics.blocked_means import autocorrelation_time, block_error, moving_average

SUMS = ("stationary", "least_squares", "equal_rotation", "equal_mean")


def noise(rng, n, *, rho=0.85, sd=0.04):
    """Logs that decay with rho: integrated autocorrelation time (1 + rho) / (1 - rho)."""
    x, values = rng.gauss(0, sd), []
    for _ in range(n):
        x = rho * x + sd * math.sqrt(1 - rho * rho) * rng.gauss(0, 1)
        values.append(x)
    return values


def runs(rng, *, log=0.0, seeds=3, n=600, seed_sd=0.004, rho=0.85):
    """Source and target per seed; the source is exp(log) times as fast."""
    pairs = []
    for _ in range(seeds):
        a = rng.gauss(log, seed_sd / math.sqrt(2))
        b = rng.gauss(0, seed_sd / math.sqrt(2))
        pairs.append(
            Pair(
                [0.01 * math.exp(a + x) for x in noise(rng, n, rho=rho)],
                [0.01 * math.exp(b + x) for x in noise(rng, n, rho=rho)],
            )
        )
    return pairs


# --- Correlated series ---------------------------------------------------------------------------


def test_autocorrelation_time_of_a_known_process_is_found():
    rng = random.Random(0)

    found = fmean(autocorrelation_time(noise(rng, 4000)) for _ in range(10))

    assert found == pytest.approx(1.85 / 0.15, rel=0.1)
    assert autocorrelation_time([rng.gauss(0, 1) for _ in range(4000)]) < 1.5


def test_a_slow_trend_is_no_correlation():
    rng = random.Random(1)
    series = [0.001 * i + rng.gauss(0, 1) for i in range(4000)]

    assert autocorrelation_time(series) < 1.5


def test_short_and_constant_series_have_a_time_of_one():
    assert autocorrelation_time([]) == 1.0
    assert autocorrelation_time([2.0] * 50) == 1.0


def test_block_errors_equal_a_moving_block_bootstrap():
    """The limit of many resamples, up to what the estimator adds for blocks being finite."""
    rng = random.Random(2)
    series = noise(rng, 3000, rho=0.3)
    length = 40
    means = [
        fmean(
            x
            for _ in range(len(series) // length)
            for start in [rng.randrange(len(series) - length + 1)]
            for x in series[start : start + length]
        )
        for _ in range(300)
    ]
    centre = fmean(means)
    resampled = math.sqrt(fmean((m - centre) ** 2 for m in means))

    assert block_error(series, length).standard_error == pytest.approx(resampled, rel=0.25)


def test_errors_that_take_steps_for_independent_are_several_times_too_small():
    series = noise(random.Random(3), 2000)
    naive = math.sqrt(fmean(x * x for x in series) / len(series))

    assert block_error(series, 30).standard_error > 2.5 * naive


def test_a_trend_does_not_count_as_an_error():
    rng = random.Random(4)
    flat = [rng.gauss(0, 1) for _ in range(2000)]
    rising = [x + 0.001 * i for i, x in enumerate(flat)]

    assert block_error(rising, 30).standard_error == pytest.approx(
        block_error(flat, 30).standard_error, rel=0.05
    )


def test_a_series_of_fewer_than_four_blocks_is_refused():
    with pytest.raises(ValueError, match="series of 100 values is too short for 4 blocks of 30"):
        block_error([0.0] * 100, 30)


def test_moving_averages_shrink_at_the_ends():
    assert moving_average([1.0, 2.0, 3.0, 4.0], 3) == [1.5, 2.0, 3.0, 3.5]


# --- Log ratios ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", SUMS)
def test_a_multiple_is_found_exactly_by_every_criterion(criterion):
    source = [0.01 * (1 + 0.5 * math.sin(i / 7)) for i in range(400)]
    pair = Pair(source, [value / 1.25 for value in source])

    assert log_ratio(criterion, pair) == pytest.approx(math.log(1.25), abs=1e-12)


def test_criteria_differ_where_shapes_differ():
    """A target that falls as cos beside a source that falls as its root, as under a cosine."""
    cos = [0.5 * (1 + math.cos(math.pi * (i + 0.5) / 1000)) for i in range(1000)]
    pair = Pair([math.sqrt(c) for c in cos], cos)

    # Without the lag: 32 / (9 pi), sqrt(4 / 3) and 4 / pi.
    assert math.exp(log_ratio("least_squares", pair)) == pytest.approx(32 / (9 * math.pi), rel=1e-4)
    assert math.exp(log_ratio("equal_rotation", pair)) == pytest.approx(math.sqrt(4 / 3), rel=1e-4)
    assert math.exp(log_ratio("equal_mean", pair)) == pytest.approx(4 / math.pi, rel=1e-4)


@pytest.mark.parametrize("criterion", SUMS)
def test_influence_is_the_derivative_of_the_log_ratio(criterion):
    rng = random.Random(5)
    source = [rng.uniform(0.5, 1.5) for _ in range(50)]
    target = [rng.uniform(0.5, 1.5) for _ in range(50)]
    steps = influence(criterion, Pair(source, target))

    assert fmean(steps) == pytest.approx(0, abs=1e-12)
    # Seeing one step twice moves the log ratio by its share of the influence.
    seen = [*range(50), *range(50)] * 20
    twice = log_ratio(
        criterion, Pair([source[i] for i in [*seen, 7]], [target[i] for i in [*seen, 7]])
    )
    once = log_ratio(criterion, Pair(source, target))
    assert (twice - once) * (len(seen) + 1) == pytest.approx(steps[7], rel=0.01)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([0.1, 0.1], [0.1], "cover the same steps, got 2 and 1 values"),
        ([0.1, math.nan], [0.1, 0.1], "source must hold effective learning rates.*value 1 is nan"),
        ([0.1, 0.1], [0.1, -0.1], "target must hold effective learning rates.*value 1 is -0.1"),
        ([0.0, 0.0], [0.1, 0.1], "source never moved: all of its 2 values are 0"),
    ],
)
def test_series_that_are_no_effective_learning_rates_are_refused(source, target, message):
    with pytest.raises(ValueError, match=message):
        Pair(source, target)


# --- Intervals and verdicts ----------------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "n"), [(1, 1000), (3, 600)])
def test_the_interval_covers_the_truth(seeds, n):
    rng = random.Random(6)
    trials = 200
    found = [
        measure("stationary", runs(rng, seeds=seeds, n=n, seed_sd=0.0), 30) for _ in range(trials)
    ]

    covered = sum(ratio.low <= 0 <= ratio.high for ratio in found) / trials
    # Three standard errors of a share of 200 below 0.95.
    assert covered > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


def test_noise_of_single_steps_does_not_bias_least_squares():
    """Two curves that are equal but for their noise: 20 % a step, as small networks have."""
    rng = random.Random(16)
    curve = [math.cos(1.5 * i / 1500) for i in range(1500)]
    found = []
    for _ in range(60):
        source, target = (
            [e * math.exp(x) for e, x in zip(curve, noise(rng, 1500, rho=0.8, sd=0.2), strict=True)]
            for _ in range(2)
        )
        found.append(measure("least_squares", [Pair(source, target)], 30))

    assert fmean(ratio.value for ratio in found) == pytest.approx(0, abs=0.012)
    assert sum(ratio.low <= 0 <= ratio.high for ratio in found) >= 51


def test_heavy_tails_do_not_pass_for_a_slower_optimizer():
    """Equal mean squares, tails on one side: logs of single steps would say 39 % slower."""
    rng = random.Random(17)
    pairs = []
    for _ in range(3):
        tails = [0.01 * math.exp(0.7 * rng.gauss(0, 1) - 0.7**2) for _ in range(3000)]
        pairs.append(Pair(tails, [0.01] * 3000))
    ratio = measure("stationary", pairs, 30)

    assert ratio.low < 0 < ratio.high
    assert fmean(
        math.log(a / b) for p in pairs for a, b in zip(p.source, p.target, strict=True)
    ) < (-0.4)


def test_seeds_that_differ_by_more_than_their_steps_widen_the_interval():
    ratio = measure("stationary", runs(random.Random(7), seed_sd=0.05), 30)

    assert ratio.interval_from == "seeds"
    assert ratio.half_width > 0.05


def test_matched_is_rarely_said_at_exactly_the_tolerance():
    """The equivalence test's promise: at most 5 % of matches that are 5 % off pass."""
    rng = random.Random(8)
    off = math.log(1.05)
    trials = 200
    passed = 0
    for _ in range(trials):
        pairs = runs(rng, log=off)
        ratio = measure("stationary", pairs, 30)
        finding = judge("stationary", ratio, None, tolerance=0.05, inside=1.0, num_seeds=3)
        passed += finding.state == "matched"

    assert passed / trials <= 0.05


def test_a_good_match_is_usually_recognised():
    rng = random.Random(9)
    trials = 100
    passed = 0
    for _ in range(trials):
        pairs = runs(rng, log=0.0, seeds=4, n=1000)
        ratio = measure("stationary", pairs, 30)
        finding = judge("stationary", ratio, None, tolerance=0.05, inside=1.0, num_seeds=4)
        passed += finding.state == "matched"

    assert passed / trials >= 0.9


def ratio_of(low, high):
    return LogRatio((low + high) / 2, low, high, "seeds", (0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("low", "high", "state", "words"),
    [
        (-0.02, 0.03, "matched", r"Matched \(stationary, ±5 %, inside tolerance for 0.90"),
        # 3 (0.045 / (0.0488 - 0.015))^2 = 5.3 seeds.
        (-0.03, 0.06, "not shown", r"more seeds or steps narrow it \(about 6 seeds would, if"),
        (-0.03, 0.126, "not shown", "more than 64 seeds would"),
        (
            -0.057,
            -0.039,
            "not shown",
            "tolerance; the ratio lies too near its edge: calibrating on",
        ),
        (0.06, 0.09, "not shown", "differ by more than the tolerance"),
        (0.01, 0.11, "not shown", "lies outside the tolerance"),
    ],
)
def test_verdicts_need_the_whole_interval_inside(low, high, state, words):
    finding = judge(
        "stationary", ratio_of(low, high), None, tolerance=0.05, inside=0.9, num_seeds=3
    )

    assert finding.state == state
    assert "over 3 seeds" in finding.sentence
    assert re.search(words, finding.sentence)


def test_a_window_that_drifts_by_more_than_the_tolerance_is_no_match():
    """Both halves average to a perfect ratio, one from above and one from below."""
    rng = random.Random(10)
    pairs = []
    for _ in range(3):
        a, b = noise(rng, 1000, sd=0.01), noise(rng, 1000, sd=0.01)
        shift = [0.05 if i < 500 else -0.05 for i in range(1000)]
        pairs.append(
            Pair(
                [0.01 * math.exp(x + s) for x, s in zip(a, shift, strict=True)],
                [0.01 * math.exp(x) for x in b],
            )
        )
    ratio, moved = measure("stationary", pairs, 30), drift("stationary", pairs, 30)

    finding = judge("stationary", ratio, moved, tolerance=0.05, inside=0.5, num_seeds=3)

    assert moved.value == pytest.approx(-0.1, abs=0.02)
    assert finding.state == "not shown"
    assert "still moves by \N{MINUS SIGN}9" in finding.sentence


def test_curves_that_cross_are_no_match_by_schedule():
    finding = judge(
        "schedule",
        ratio_of(-0.01, 0.01),
        None,
        tolerance=0.05,
        inside=0.1,
        num_seeds=3,
        log_error=0.2,
    )

    assert finding.state == "not shown"
    assert "differ by 20.0 % RMS" in finding.sentence


# --- Correction ----------------------------------------------------------------------------------


def test_two_corrections_find_a_rate_whose_slope_is_not_one():
    """e = c alpha^0.8: the first correction assumes 1, the second knows 0.8."""

    def gap(alpha):
        return math.log(0.01 / (0.3 * alpha**0.8))

    exact = (0.01 / 0.3) ** (1 / 0.8)
    history = [(0.02, gap(0.02))]
    first, slope = correct_rate(history, first_slope=1.0)
    history.append((first, gap(first)))
    second, measured = correct_rate(history, first_slope=1.0)

    assert slope == 1.0
    assert measured == pytest.approx(0.8)
    assert second == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("gaps", "slope"), [((0.5, 0.49), 0.5), ((0.5, -3.0), 1.5)])
def test_slopes_that_only_noise_gives_are_clamped(gaps, slope):
    _, found = correct_rate([(0.02, gaps[0]), (0.03, gaps[1])], first_slope=1.0)

    assert found == slope


def test_the_same_rate_twice_says_nothing_about_the_slope():
    _, slope = correct_rate([(0.02, 0.1), (0.02, 0.08)], first_slope=0.5)

    assert slope == 0.5


# --- Waiting, smoothing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("betas", "steps"), [((0.9, 0.999), 3000), ((0.9, 0.99), 300), ((0.99, 0.99), 500)]
)
def test_burn_in_waits_for_both_moments(betas, steps):
    assert burn_in_steps(betas) == steps


def test_a_block_spans_momentum_however_thin_the_record_is():
    assert (least_block(0.9, 1), least_block(0.9, 4), least_block(0.0, 1)) == (30, 8, 3)


def test_smoothing_keeps_the_power_that_a_criterion_counts():
    assert smooth([3.0, 4.0, 1.0, 1.0, 9.0], 2) == pytest.approx([math.sqrt(12.5), 1.0])
    assert smooth([3.0, 4.0, 1.0, 1.0, 9.0], 2, power=1) == [3.5, 1.0]


def test_fraction_inside_counts_stretches_within_the_tolerance():
    source, target = [1.0, 1.0, 1.0, 0.0], [1.04, 0.97, 1.2, 1.0]

    assert fraction_inside(source, target, 0.05) == 0.5
    assert rms_log_error([1.0, math.e], [1.0, 1.0]) == pytest.approx(math.sqrt(0.5))
