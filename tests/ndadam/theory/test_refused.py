"""What the laws are asked with wrong arguments: the name, the rule and the value, at once."""

import math

import pytest

from ndadam.theory.prediction import (
    Curve,
    OptimizerSetting,
    adam_without_decay,
    beta2_equivalent,
    burn_in_steps,
    fit_rate,
    gain_autoregressive,
    gain_without_replacement,
    grid,
    lag_curve,
    level_factor,
    lr_of_effective_lr,
    predict,
    rate_of_curve,
    relaxation_steps,
    resolve_level,
    schedule_answer,
    settling_steps,
    stationary_effective_lr,
    step_ratio,
    tangential_factor,
)
from tests.ndadam.theory.paper_runs import NDADAM, SGD

ADAMW = OptimizerSetting("adamw", weight_decay=0.1)
AT_A_RATE = NDADAM.with_lr(0.05)
CURVE = Curve((0, 1), (1.0, 1.0), (0.01, 0.01))


@pytest.mark.parametrize("value", ["sgd", None, {"optimizer": "sgd"}])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("source", lambda value: predict(value, NDADAM, num_steps=100)),
        ("target", lambda value: predict(SGD, value, num_steps=100)),
        ("setting", stationary_effective_lr),
        ("setting", lambda value: lr_of_effective_lr(value, 0.01)),
        ("setting", relaxation_steps),
        ("setting", beta2_equivalent),
        ("source", lambda value: level_factor(value, NDADAM, "step")),
        ("target", lambda value: resolve_level(SGD, value, None)),
        ("setting", lambda value: settling_steps(value, NDADAM)),
        ("setting", lambda value: lag_curve(value, lambda step: 1.0, [0, 1])),
        ("target", lambda value: rate_of_curve("equal_mean", value, CURVE, 1.0)),
        ("target", lambda value: schedule_answer(value, CURVE, 1.0)),
    ],
)
def test_what_is_no_setting_is_refused_by_its_name(name, call, value):
    with pytest.raises(ValueError, match=rf"^{name} must be an OptimizerSetting, got ") as refused:
        call(value)

    assert str(refused.value).endswith(repr(value))


@pytest.mark.parametrize("num_steps", [0, -3, 100.0, 2.5, "100", None, True, math.nan])
def test_a_length_is_a_whole_number_of_steps(num_steps):
    message = f"^num_steps must be a whole number of at least 1, got {num_steps!r}$"
    with pytest.raises(ValueError, match=message):
        predict(SGD, NDADAM, num_steps=num_steps)
    with pytest.raises(ValueError, match=message):
        grid(num_steps, 10)


@pytest.mark.parametrize(("source", "target"), [(SGD, NDADAM), (SGD, ADAMW), (AT_A_RATE, SGD)])
class TestFactors:
    """Whatever the sides are: only some of them compute with the value that is wrong."""

    @pytest.mark.parametrize("factor", [0.5, None, "cosine"])
    def test_a_factor_is_a_function(self, source, target, factor):
        message = f"^factor must be a function of the step that returns a number, got {factor!r}$"
        with pytest.raises(ValueError, match=message):
            predict(source, target, num_steps=100, factor=factor)

    @pytest.mark.parametrize("value", [math.nan, -0.5, None, "1", math.inf, 1e300, 1j])
    def test_it_gives_numbers_at_every_step(self, source, target, value):
        with pytest.raises(
            ValueError, match=r"^factor must give numbers from 0 to 1e.50, got .*"
        ) as (refused):
            predict(source, target, num_steps=10, factor=lambda step: value if step == 9 else 1.0)

        assert str(refused.value).endswith(f"got {value!r} at step 9")

    def test_it_lets_weights_move_at_some_step(self, source, target):
        with pytest.raises(
            ValueError, match=r"^factor must be above 0 at some of the steps, got 0"
        ):
            predict(source, target, num_steps=100, factor=lambda step: 0)


@pytest.mark.parametrize("gain", [0, math.nan, -1.0, math.inf, "1", None, 1e300, 1j])
@pytest.mark.parametrize(
    "call",
    [
        lambda gain: predict(SGD, NDADAM, num_steps=100, gain=gain),
        # Here it does not enter, and is wrong all the same.
        lambda gain: predict(SGD, ADAMW, num_steps=100, gain=gain),
        lambda gain: stationary_effective_lr(SGD, gain),
        lambda gain: stationary_effective_lr(AT_A_RATE, gain),
        lambda gain: lr_of_effective_lr(SGD, 0.01, gain),
        lambda gain: lr_of_effective_lr(NDADAM, 0.01, gain),
        lambda gain: step_ratio(0.9, gain),
    ],
)
def test_a_gain_is_a_number_above_0(call, gain):
    with pytest.raises(ValueError, match=r"^gain must be a number > 0, .*, got ") as refused:
        call(gain)

    assert str(refused.value).endswith(f"got {gain!r}")


@pytest.mark.parametrize("setting", [SGD, AT_A_RATE, ADAMW])
@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf, "0.1", 1e300])
def test_rates_are_numbers_that_a_law_can_hold(setting, value):
    with pytest.raises(ValueError, match=r"^effective_lr must be a number > 0 and at most"):
        lr_of_effective_lr(setting, value)
    with pytest.raises(ValueError, match=r"^lr must be a number >= 0 and at most 1e.50, got"):
        stationary_effective_lr(setting, lr=value)


def test_a_rate_of_0_moves_nothing_and_has_no_inverse():
    assert stationary_effective_lr(SGD, lr=0) == 0
    with pytest.raises(ValueError, match=r"^effective_lr must be a number > 0 .* got 0$"):
        lr_of_effective_lr(SGD, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step_ratio("0.9"), r"^beta1 must be in \[0, 1\), got '0.9'$"),
        (lambda: step_ratio(-1), r"^beta1 must be in \[0, 1\), got -1$"),
        (lambda: tangential_factor(0.01, 1.0), r"^beta1 must be in \[0, 1\), got 1.0$"),
        (lambda: tangential_factor(None, 0.9), "^effective_lr must be a number >= 0 .* got None$"),
        (lambda: gain_autoregressive(math.inf, 0.5), r"^beta1 must be in \[0, 1\), got inf$"),
        (lambda: gain_autoregressive(0.9, "0"), "^rho must be a number above -1 .* got '0'$"),
        (
            lambda: gain_without_replacement(2.5, 0.9),
            "^num_batches must be a whole number of at least 2, got 2.5$",
        ),
        (lambda: gain_without_replacement(5, math.nan), r"^beta1 must be in \[0, 1\), got nan$"),
        (lambda: burn_in_steps(0.9), "^betas must be two numbers, got 0.9$"),
        (lambda: burn_in_steps((0.9, 1.0)), r"^betas\[1\] must be in \[0, 1\), got 1.0$"),
        (lambda: adam_without_decay("1", (0.9, 0.99), 5, 1.0, 1), "^lr must be a number > 0"),
        (lambda: adam_without_decay(0.1, 0.9, 5, 1.0, 1), "^betas must be two numbers, got 0.9$"),
        (
            lambda: adam_without_decay(0.1, (0.9, 0.99), 0, 1.0, 1),
            "^elements must be a whole number of at least 1, got 0$",
        ),
        (lambda: adam_without_decay(0.1, (0.9, 0.99), 5, math.nan, 1), "^norm must be a number"),
        (
            lambda: adam_without_decay(0.1, (0.9, 0.99), 5, 1.0, -1),
            "^step must be a whole number of at least 0, got -1$",
        ),
        (lambda: level_factor(SGD, NDADAM, "far"), "^level must be step or long_range, got 'far'$"),
        (lambda: grid(5, 0), "^segments must be a whole number of at least 1, got 0$"),
        (lambda: lag_curve(SGD, lambda s: 1, []), "^steps must be whole numbers that increase"),
        (lambda: lag_curve(SGD, lambda s: 1, [1, 1]), r"increase, at least one, got \[1, 1\]$"),
        (lambda: lag_curve(SGD, lambda s: 1, 3), "^steps must be whole numbers .* got 3$"),
        (
            lambda: lag_curve(SGD, lambda s: 1, [0], initial_norm=0),
            "^initial_norm must be a number > 0, from 1e-50 .* got 0$",
        ),
        (
            lambda: lag_curve(SGD, lambda s: 1, [0], gradient_strength=lambda s: -1),
            "^gradient_strength must give numbers from 0 .* got -1 at step 0$",
        ),
        (lambda: rate_of_curve("equal_mean", NDADAM, [0.1], 1.0), "^wanted must be a Curve, got"),
        (
            lambda: rate_of_curve("schedule", NDADAM, CURVE, 1.0),
            "^criterion must be a sum over steps, one of .*equal_mean, got 'schedule'$",
        ),
        (
            lambda: fit_rate("equal_mean", [1.0], [0.1, 0.1], [0.1]),
            "^weights, effective_lr and unit must be equally long, got 1, 2 and 1 values$",
        ),
        (
            lambda: fit_rate("least_squares", [1.0], [0.1], [0.0]),
            r"^unit must be above 0 at a step that counts, got 0 at each of them \(of 1\)$",
        ),
    ],
)
def test_each_law_says_what_it_takes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
