"""What decides the time of a step is stated once, for forecasts and for the end of a batch."""

from typing import Any

import pytest

from sweeps.spec.step_shape import (
    FINE_FIELDS,
    ROUGH_FIELDS,
    exact_shape,
    may_have_shape,
    rough_shape,
)
from worker.config.train_config import TrainConfig

#: Fields that leave the time of a step as it is: rates, seeds, lengths, and what is done to images
#: and weights at a cost that does not show.
UNCOUNTED = {
    *("activation", "init", "bn_eps", "bn_momentum", "bn_scale", "input_norm", "crop_pad"),
    *("crop_fill", "flip", "last_batch", "lr", "momentum", "nesterov", "alpha_v", "alpha_s"),
    *("betas", "eps", "weight_decay", "decay_on", "lambda_c", "steps", "epochs", "lr_schedule"),
    *("warmup_steps", "alpha_s_schedule", "seed", "split_seed", "device"),
}
BASE: dict[str, Any] = {"network": "wrn", "optimizer": "ndadam", "steps": 10}
#: Of each counted field a value that differs from BASE's.
OTHER: dict[str, Any] = {
    "dataset": "cifar100",
    "network": "mlp",
    "depth": 16,
    "widen_factor": 1.0,
    "shortcut": "conv",
    "batch_size": 64,
    "follow": ((0, 0.01),),
    "precision": "bf16",
    "deterministic": True,
    "report_every": 5,
    "test_evaluation": "curve",
    "validation_fraction": 0.2,
    "recipe": "paper-wrn",
    "optimizer": "sgd",
    "gamma_c": 0.5,
}


def stored(**changes: Any) -> dict[str, Any]:
    return TrainConfig.model_validate(BASE | changes).resolved().stored()


def test_every_field_of_a_config_is_counted_or_known_not_to_count() -> None:
    counted = {*ROUGH_FIELDS, *FINE_FIELDS}

    assert counted | UNCOUNTED == set(TrainConfig.model_fields)
    assert not counted & UNCOUNTED


@pytest.mark.parametrize("name", ROUGH_FIELDS)
def test_runs_that_differ_in_what_decides_the_time_are_of_two_shapes(name: str) -> None:
    one, other = stored(), stored(**{name: OTHER[name]})

    assert exact_shape(one) != exact_shape(other)
    assert rough_shape(one) != rough_shape(other)


@pytest.mark.parametrize("name", FINE_FIELDS)
def test_what_changes_the_time_little_counts_for_the_exact_shape_alone(name: str) -> None:
    one = stored(shortcut="conv")
    # Of parts no package is installed here.
    is_part = name in ("augmentation", "loss", "metrics")
    other = one | {name: ["x"]} if is_part else stored(shortcut="conv", **{name: OTHER[name]})

    assert exact_shape(one) != exact_shape(other)
    assert rough_shape(one) == rough_shape(other)


@pytest.mark.parametrize("changes", [{"alpha_v": 0.2}, {"seed": 3}, {"steps": 99}])
def test_rates_seeds_and_lengths_leave_the_shape(changes: dict[str, Any]) -> None:
    assert exact_shape(stored(**changes)) == exact_shape(stored())


def test_of_a_scale_and_a_closed_loop_it_counts_that_they_are_there() -> None:
    one = stored(gamma_c=0.5, follow=((0, 0.01),))

    assert exact_shape(one) == exact_shape(stored(gamma_c=2.0, follow=((0, 0.02), (5, 0.01))))


@pytest.mark.parametrize(
    ("base", "space", "expected"),
    [
        ({}, {}, True),
        ({"depth": 22, "precision": "fp32"}, {}, True),
        ({"depth": 16}, {}, False),
        ({"depth": 16}, {"depth": {"kind": "choice", "values": [16, 22]}}, True),
        ({"follow": [[0, 0.01]]}, {}, False),
        ({"optimizer": "sgd", "gamma_c": 0.5}, {}, True),
    ],
    ids=["unset", "the same", "another", "varied", "a closed loop", "fine fields"],
)
def test_a_spec_alone_tells_what_shapes_it_may_have(
    base: dict[str, Any], space: dict[str, Any], expected: bool
) -> None:
    assert may_have_shape(base, space, stored()) is expected
