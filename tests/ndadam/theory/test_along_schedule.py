"""Predicted curves against the recurrence taken step by step, and schedules that follow them."""

import math

import pytest

from ndadam.theory.along_schedule import trusted_until
from ndadam.theory.prediction import (
    OptimizerSetting,
    grid,
    lag_curve,
    predict,
    stationary_effective_lr,
)
from ndadam.theory.settling import start_up, start_up_steps
from tests.ndadam.theory.paper_runs import NDADAM, RUNS, SGD, SGD_5E4, cosine, recurrence


@pytest.mark.parametrize(
    ("setting", "steps", "ratios"),
    [
        (SGD, 80_000, [0.991, 0.958, 0.884, 0.790, 0.613, 0.334, 0.068]),
        (SGD_5E4, 78_200, [0.981, 0.923, 0.810, 0.691, 0.508, 0.267, 0.054]),
    ],
)
def test_the_lag_behind_the_square_root_equals_the_table(setting, steps, ratios):
    at = [round(share * steps) for share in (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)]
    curve = lag_curve(setting, cosine(steps), sorted({*grid(steps, 500), *at}))
    e = dict(zip(curve.steps, curve.effective_lr, strict=True))

    for step, ratio in zip(at, ratios, strict=True):
        root = stationary_effective_lr(setting) * math.sqrt(cosine(steps)(step))
        assert e[step] / root == pytest.approx(ratio, abs=1.5e-3)


@pytest.mark.parametrize(("setting", "steps"), RUNS)
def test_the_curve_is_distrusted_where_the_norm_freezes(setting, steps):
    curve = lag_curve(setting, cosine(steps), grid(steps, 500))
    rate = setting.lr * setting.weight_decay
    before_the_end = (3 * (1 - setting.momentum) * steps**2 / (math.pi**2 * rate)) ** (1 / 3)

    assert trusted_until(setting, curve) == pytest.approx(steps - before_the_end, rel=0.01)


@pytest.mark.parametrize(("steps", "error"), [(400, 5e-4), (1000, 4e-4), (6000, 2e-4)])
def test_a_short_run_is_as_close_to_the_recurrence_as_its_comment_says(steps, error):
    curve = lag_curve(SGD, cosine(steps), grid(steps, 500))
    exact = recurrence(SGD, steps)

    for step, e in zip(curve.steps, curve.effective_lr, strict=True):
        if step < steps:
            assert e == pytest.approx(exact[step], rel=error)


@pytest.mark.parametrize(("setting", "steps"), RUNS)
def test_a_thinned_curve_equals_the_recurrence(setting, steps):
    curve = lag_curve(setting, cosine(steps), grid(steps, 500))
    exact = recurrence(setting, steps)

    for step, e in zip(curve.steps, curve.effective_lr, strict=True):
        if step < 0.99 * steps:
            assert e == pytest.approx(exact[step], rel=2e-4)


def test_a_heavier_start_slows_sgd_by_its_square_until_it_is_forgotten():
    heavy = lag_curve(SGD, lambda step: 1.0, [0, 1500], initial_norm=3.0)
    e = stationary_effective_lr(SGD)

    # A step is lr times a gradient that falls as 1 / norm, over the norm.
    assert heavy.effective_lr[0] == pytest.approx(e / 9, rel=1e-12)
    # h falls from 81 to 1 with the relaxation time of 250 steps: 1 + 80 e^-6.
    assert heavy.effective_lr[1] == pytest.approx(e / math.sqrt(1 + 80 * 0.996**1500), rel=1e-9)


def test_stronger_gradients_stretch_the_weights_until_the_rate_is_back():
    doubled = lag_curve(
        SGD,
        lambda step: 1.0,
        list(range(0, 4000, 10)),
        gradient_strength=lambda step: 1.0 if step < 1000 else 4.0,
    )
    e = stationary_effective_lr(SGD)

    assert doubled.effective_lr[99] == pytest.approx(e, rel=1e-9)
    assert doubled.effective_lr[100] > 1.9 * e
    assert doubled.effective_lr[-1] == pytest.approx(e, rel=1e-3)


def test_the_schedule_answer_reproduces_the_source():
    steps = 8_000
    answer = predict(SGD, NDADAM, num_steps=steps, factor=cosine(steps)).criteria["schedule"]
    exact = recurrence(SGD, steps)

    settled = [point for point in answer.points[:-5] if point[0] > start_up_steps(NDADAM)]
    assert len(settled) > 100
    for step, factor in settled:
        target = NDADAM.with_lr(answer.rate * factor)
        assert stationary_effective_lr(target) == pytest.approx(exact[step], rel=1e-3)
    assert max(factor for _, factor in answer.points) == pytest.approx(1.0, rel=1e-3)
    assert len(answer.points) <= 600


def test_the_first_steps_of_a_schedule_undo_the_correction_of_the_first_moment():
    answer = predict(SGD, NDADAM, num_steps=8_000).criteria["schedule"]

    first = [(step, factor) for step, factor in answer.points if step <= 30]
    assert len(first) > 10
    for step, factor in first:
        assert factor == pytest.approx(1 - 0.9 ** (step + 1), rel=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "ndadam"])
def test_first_steps_are_as_long_as_sums_of_independent_gradients(optimizer):
    setting = OptimizerSetting(optimizer, momentum=0.9)
    weights = [0.9**k for k in range(5)]  # of the gradients in step 4
    corrected = 1 - 0.9**5 if optimizer == "ndadam" else 1.0
    square = sum((w / corrected) ** 2 for w in weights)
    settled = 1 / (1 - 0.9**2)

    assert start_up(setting, 4) == pytest.approx(math.sqrt(square / settled), rel=1e-12)
    assert start_up(setting, start_up_steps(setting)) == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize(
    "target",
    [
        OptimizerSetting("adamw", weight_decay=1.0),
        OptimizerSetting("sgd", weight_decay=2e-3, momentum=0.9),
        OptimizerSetting("sgdw", weight_decay=0.01, momentum=0.9),
    ],
)
def test_a_schedule_for_a_target_whose_norm_lags_gives_the_source_back(target):
    steps = 8_000
    answer = predict(SGD, target, num_steps=steps, factor=cosine(steps)).criteria["schedule"]
    at, factors = zip(*answer.points, strict=True)
    curve = lag_curve(target.with_lr(answer.rate), dict(answer.points).__getitem__, at)
    exact = recurrence(SGD, steps)

    assert factors[0] == pytest.approx(1.0, abs=0.02)
    for step, e in zip(at, curve.effective_lr, strict=True):
        if step < 0.95 * steps:
            assert e == pytest.approx(exact[step], rel=2e-2)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "setting",
    [
        OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3),
        OptimizerSetting("sgdw", lr=0.1, momentum=0.9, weight_decay=1e-2),
        OptimizerSetting("adamw", lr=1e-3, weight_decay=1.0),
    ],
)
def test_the_schedule_that_matches_a_setting_to_itself_is_its_own_warm_up_included(setting, first):
    def factor(step):
        return min(1.0, (step + first) / 100) * cosine(4_000)(step)

    answer = predict(setting, setting, num_steps=4_000, factor=factor).criteria["schedule"]

    for step, own in answer.points:
        # First-order laws of AdamW and SGDW agree with the exact ones to a few thousandths.
        assert own * answer.rate / setting.lr == pytest.approx(factor(step), abs=3e-3)


@pytest.mark.parametrize("start", [0.0, 0.01])
def test_ndadam_follows_a_warm_up_from_its_first_step(start):
    def factor(step):
        return max(start, min(1.0, step / 100))

    answer = predict(SGD, NDADAM, num_steps=4_000, factor=factor).criteria["schedule"]

    # The norm shrinks a little while the rate is low, and momentum builds up from nothing.
    assert answer.points[0][1] == pytest.approx(0.1 * start, rel=0.05)
