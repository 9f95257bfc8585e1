"""A prediction says where it is not to be believed, and why."""

import math

import pytest
import torch

from ndadam.theory.caveats import beta2_in_words, decay_shortfall, gain_in_words
from ndadam.theory.prediction import (
    NoStationaryRate,
    OptimizerSetting,
    predict,
    stationary_effective_lr,
)
from tests.ndadam.theory.paper_runs import NDADAM, SGD, cosine

DEFAULT_ADAMW = OptimizerSetting("adamw", lr=1e-3, weight_decay=0.01)


def warnings_of(source, target, num_steps=80_000, **how):
    return " ".join(predict(source, target, num_steps=num_steps, **how).warnings)


@pytest.mark.parametrize(
    ("beta2", "words"),
    [(0.0, "0.0000"), (0.996, "0.9960"), (0.9992, "0.99920"), (1 - 4e-5, "0.999960")],
)
def test_a_beta2_is_never_rounded_to_1(beta2, words):
    assert beta2_in_words(beta2) == words
    assert 1 - float(words) == pytest.approx(1 - beta2, rel=0.05)


def test_a_beta2_is_advised_only_where_it_forgets_sooner():
    slow = OptimizerSetting("sgd", lr=0.01, momentum=0.9, weight_decay=1e-4)

    assert "beta2 = 0.9960 forgets as fast" in warnings_of(SGD, NDADAM, 8_000)
    found = warnings_of(slow, NDADAM, 8_000)
    assert "A run of 20000 steps, or a smaller beta2, would be free of them" in found
    assert "forgets as fast" not in found


def test_a_target_that_does_not_settle_is_named_beside_a_source_that_does():
    target = OptimizerSetting("adamw", weight_decay=0.5)

    found = warnings_of(SGD, target, 1_500)

    assert "before the target's norms have settled, which takes about 2019 steps" in found
    assert "source's norms" not in found


def test_a_target_whose_norms_freeze_before_the_sources_curve_ends_is_named():
    source = OptimizerSetting("ndadam", lr=0.05)

    found = warnings_of(source, SGD, factor=cosine(80_000))

    assert "the target's norms have frozen" in found


def test_a_rate_that_drops_at_once_is_trusted_again_when_the_norms_have_followed():
    def steps(step):
        return 1.0 if step < 40_000 else 0.1

    def late(step):
        return 1.0 if step < 79_000 else 0.1

    assert predict(SGD, NDADAM, num_steps=80_000, factor=steps).trust_until_step == 80_000
    late_drop = predict(SGD, NDADAM, num_steps=80_000, factor=late).trust_until_step
    assert late_drop == pytest.approx(79_000, abs=160)


def test_rates_beyond_what_ndadams_law_was_checked_for_are_said_to_be():
    fast = OptimizerSetting("sgd", lr=1.0, momentum=0.9, weight_decay=5e-3)

    # e = sqrt(2 * 0.005 / 1.9) = 0.0725 of steps of e (1 + e^2 / 0.02): 1 - 1 / 1.263.
    assert "At 0.0725 per step normalisation undoes 21 % of the target's" in warnings_of(
        fast, NDADAM
    )
    assert "normalisation undoes" not in warnings_of(SGD, NDADAM)


def test_normalisation_never_undoes_more_than_all_of_a_step():
    absurd = OptimizerSetting("adamw", lr=1.0, weight_decay=0.6)

    assert "normalisation undoes 97 % of the target's steps" in warnings_of(absurd, NDADAM)


def test_norms_that_would_settle_within_a_step_are_said_to():
    found = warnings_of(OptimizerSetting("ndadam", lr=2.0), SGD)

    assert "the target's norms would settle within a step, which no training survives" in found


def test_a_source_whose_norms_settle_within_a_step_is_refused_before_any_caution():
    source = OptimizerSetting("sgd", lr=10.0, weight_decay=0.1, momentum=0.9)

    with pytest.raises(NoStationaryRate, match="settle within a step, which no training survives"):
        predict(source, NDADAM, num_steps=6_000)


@pytest.mark.parametrize("shrink", [0.005, 0.02])
def test_decay_shortens_the_steps_of_sgdw_by_what_is_said(shrink):
    """Random gradients on a scale-invariant loss, beside the law of the update alone."""
    setting = OptimizerSetting("sgdw", lr=0.1, weight_decay=shrink / 0.1, momentum=0.9)
    random = torch.Generator().manual_seed(0)
    w = torch.nn.functional.normalize(
        torch.randn(200, 100, generator=random, dtype=torch.float64), dim=1
    )
    buffer, squares = torch.zeros_like(w), []
    for step in range(round(20 / shrink / 4)):
        norm = w.norm(dim=1, keepdim=True)
        g = torch.randn(w.shape, generator=random, dtype=torch.float64) / 10
        g = (g - (g * w).sum(1, keepdim=True) * w / norm**2) / norm
        buffer = 0.9 * buffer + g
        moved = -0.1 * buffer - shrink * w
        if step > 10 / shrink / 4:
            squares.append(((moved**2).sum(1) / (w**2).sum(1)).mean().item())
        w = w + moved
    measured = math.sqrt(sum(squares) / len(squares))

    said = stationary_effective_lr(setting) * (1 - decay_shortfall(setting))
    assert measured == pytest.approx(said, rel=5e-3)
    assert measured < 0.985 * stationary_effective_lr(setting)


def test_only_decay_that_shortens_steps_noticeably_is_warned_about():
    strong = OptimizerSetting("adamw", lr=1e-3, weight_decay=10.0)

    assert "At lr = 0.001 and weight_decay = 10 the source turns about 4 % less" in warnings_of(
        strong, NDADAM
    )
    assert "less per step" not in warnings_of(DEFAULT_ADAMW, NDADAM)


def test_a_target_that_forgets_as_fast_already_is_not_told_to():
    target = OptimizerSetting("ndadam", betas=(0.9, 0.996))

    found = warnings_of(SGD, target, 2_400)

    assert "remembers 250 steps" in found
    assert "forgets as fast" not in found


@pytest.mark.parametrize(("gain", "words"), [(0.5, "oppose each other"), (1.6, "agree strongly")])
def test_an_unusual_gain_is_put_into_words(gain, words):
    (sentence,) = gain_in_words(gain)

    assert f"The gain A is {gain:.2f}" in sentence
    assert words in sentence
    assert gain_in_words(1.0) == []
