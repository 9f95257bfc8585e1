"""What decay leaves of chance in long means: laws against simulated norms, and coverage."""

import math
import random
from functools import cache
from statistics import fmean, variance

import pytest

from ndadam.matching.verdict import Pair, drift, measure
from ndadam.statistics.blocked_means import MeanError, block_error
from ndadam.theory.decay_memory import (
    decay_memory,
    error_under_decay,
    share_in_difference,
    share_in_mean,
    undo_decay,
)
from ndadam.theory.prediction import OptimizerSetting

TAU = 100


def sgd_rates(rng: random.Random, steps: int, rho: float, scatter: float) -> list[float]:
    """Effective learning rates of a norm under decay, relaxation time TAU, noise of AR(1) ``rho``.

    log R grows by (e^2 - 1) / (2 TAU) a step, e^2 = xi / R^2 with mean 1: the balance of decay and
    updates, and the noise is lognormal.
    """
    noise, log_norm = rng.gauss(0, scatter), 0.0
    fresh = scatter * math.sqrt(1 - rho * rho)
    rates = []
    for step in range(-3 * TAU, steps):
        noise = rho * noise + fresh * rng.gauss(0, 1)
        square = math.exp(noise - scatter**2 / 2 - 2 * log_norm)
        log_norm += (square - 1) / (2 * TAU)
        if step >= 0:
            rates.append(math.sqrt(square))
    return rates


@cache
def many_rates() -> tuple[tuple[float, ...], ...]:
    rng = random.Random(5)
    return tuple(tuple(sgd_rates(rng, 400, 0.8, 0.2)) for _ in range(500))


def log_rms(values):
    return math.log(fmean(v * v for v in values)) / 2


def influence_of(values):
    square = fmean(v * v for v in values)
    return [(v * v / square - 1) / 2 for v in values]


def test_the_mean_of_a_rate_under_decay_is_a_quarter_as_uncertain_as_its_steps_say():
    """Without the norm's response: blocks of the undone series, which are right for white noise."""
    rates = many_rates()
    blocks = fmean(
        block_error(undo_decay(influence_of(r), TAU), 30).standard_error ** 2 for r in rates[:100]
    )

    found = variance([log_rms(r) for r in rates]) / blocks

    # Relative standard errors: 6 % of a variance of 500, 5 % of the mean of 100 blocks' variances.
    assert share_in_mean(400, TAU) == pytest.approx(0.245, abs=0.001)
    assert found == pytest.approx(share_in_mean(400, TAU), rel=0.25)


def test_halves_of_a_window_differ_as_much_as_their_share_says():
    rates = many_rates()
    blocks = fmean(
        block_error(undo_decay(influence_of(r), TAU), 30).standard_error ** 2 for r in rates[:100]
    )

    moved = variance([log_rms(r[200:]) - log_rms(r[:200]) for r in rates])

    # Of independent halves, each with twice the variance of the whole.
    assert moved / (4 * blocks) == pytest.approx(share_in_difference(200, TAU), rel=0.25)


def test_shares_end_at_one_and_fall_with_the_window():
    assert share_in_mean(100, math.inf) == share_in_difference(100, math.inf) == 1.0
    assert share_in_mean(1, 1e6) == pytest.approx(1.0, abs=1e-5)
    assert share_in_difference(1, 1e6) == pytest.approx(1.0, abs=1e-5)
    assert share_in_mean(10_000, 100) == pytest.approx(0.01)
    assert share_in_difference(10_000, 100) == pytest.approx(0.015)


def test_undoing_adds_back_what_the_norm_took():
    assert undo_decay([1.0, 0.0, -2.0], 4.0) == [1.0, 0.25, -1.75]


def test_errors_mix_as_variances_and_keep_the_poorer_degrees_of_freedom():
    found = error_under_decay(MeanError(2.0, 9.0), MeanError(1.0, 30.0), 0.25)

    assert (found.standard_error, found.df) == (pytest.approx(math.sqrt(1.75)), 9.0)


@pytest.mark.parametrize(
    ("optimizer", "fields", "every", "memory"),
    [
        ("sgd", {"momentum": 0.9, "weight_decay": 1e-3, "lr": 0.1}, 1, 250.0),
        ("adamw", {"weight_decay": 0.1, "lr": 0.01}, 1, 500.0),
        ("sgd", {"momentum": 0.9, "weight_decay": 1e-3, "lr": 0.1}, 2, math.inf),
        ("sgd", {"momentum": 0.9, "weight_decay": 0.0, "lr": 0.1}, 1, math.inf),
        ("ndadam", {"lr": 0.05}, 1, math.inf),
    ],
)
def test_decay_remembers_for_a_relaxation_time_where_every_step_is_recorded(
    optimizer, fields, every, memory
):
    assert decay_memory(OptimizerSetting(optimizer, **fields), every) == pytest.approx(memory)


# --- Intervals -----------------------------------------------------------------------------------


def pairs_of(rng, rho, scatter, seed_sd, steps=400, seeds=3):
    """A source under decay beside a target whose scatter is half of it and stays."""
    pairs = []
    for _ in range(seeds):
        shift, target = math.exp(rng.gauss(0, seed_sd)), []
        fresh = scatter / 2 * math.sqrt(1 - rho * rho)
        log = rng.gauss(0, scatter / 2)
        for _ in range(steps):
            log = rho * log + fresh * rng.gauss(0, 1)
            target.append(math.exp(log / 2 - scatter**2 / 16))
        pairs.append(Pair([shift * v for v in sgd_rates(rng, steps, rho, scatter)], target))
    return pairs


def test_decay_counts_for_stationary_rates_and_where_seeds_could_contradict_it():
    pairs = pairs_of(random.Random(1), 0.8, 0.2, 0.0, seeds=1) * 3  # seeds that agree

    for found in (measure, drift):
        plain, known = (found("stationary", pairs, 30, memory=m) for m in (math.inf, TAU))
        assert known.value == plain.value
        assert known.half_width < 0.9 * plain.half_width
        for criterion, some in (("least_squares", pairs), ("stationary", pairs[:1])):
            ratio = found(criterion, some, 30, memory=TAU)
            assert ratio == found(criterion, some, 30)


@pytest.mark.parametrize(
    ("rho", "scatter", "seed_sd", "low", "high"),
    [
        # Two standard errors, of a share of 150, below 92 and above 98 %.
        (0.8, 0.2, 0.0, 0.88, 0.997),
        # Real differences between seeds, twice what steps explain.
        (0.8, 0.2, 0.02, 0.88, 1.0),
        # Correlated for half a relaxation time, which blocks see a third of.
        (0.96, 0.2, 0.0, 0.88, 1.0),
        (0.96, 0.2, 0.03, 0.88, 1.0),
    ],
)
def test_intervals_cover_under_decay(rho, scatter, seed_sd, low, high):
    rng = random.Random(f"{rho} {seed_sd}")

    def covered():
        ratio = measure("stationary", pairs_of(rng, rho, scatter, seed_sd), 30, memory=TAU)
        return ratio.low <= 0 <= ratio.high

    assert low <= sum(covered() for _ in range(150)) / 150 <= high
