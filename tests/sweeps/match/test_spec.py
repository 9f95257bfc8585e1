"""What a match spec refuses, with the field's path, the rule and the value; and what it derives."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from ndadam.matching.arguments import checked_plan
from sweeps.match.match_spec import MatchSpec, setting_of
from sweeps.spec.validation_messages import explain
from tests.sweeps.match.match_simulation import match_spec

SGD = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001}


def refusals(**changes):
    with pytest.raises(ValidationError) as caught:
        match_spec(**changes)
    return {item["path"]: item["reason"] for item in explain(caught.value)}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"base": {"lr": 0.1}}, "base.lr", "belongs to source or target, not to base; got 0.1"),
        ({"base": {"steps": None}}, "base.steps", "needs its length in steps"),
        ({"base": {"steps": None, "epochs": 3}}, "base.steps", "got epochs = 3"),
        ({"base": {"depth": 11}}, "base.depth", "depth must be 6n + 4 and at least 10, got 11"),
        ({"base": {"seed": 2**31 - 2}}, "base.seed", "base.seed is too large"),
        (
            {"base": {"lr_schedule": None}},
            "base.lr_schedule",
            "must be constant, cosine or points in a match, got 'cosine_epoch'",
        ),
        ({"source": {"depth": 10}}, "source.depth", "depth is not a field here"),
        ({"source": {"betas": [0.9, 0.99]}}, "source.betas", "not used by optimizer 'sgd'"),
        ({"source": {"momentum": 1.0}}, "source.momentum", "less than 1, got 1.0"),
        ({"target": {"alpha_v": 0.05}}, "target.alpha_v", "is what the match finds; remove it"),
        ({"target": {"momentum": 0.9}}, "target.momentum", "not used by optimizer 'ndadam'"),
        ({"source": {"weight_decay": 0.0}}, "source.optimizer", "sgd without weight decay"),
        ({"source": {"decay_on": "scalars"}}, "source.optimizer", "sgd without weight decay"),
        (
            {"base": {"lr_schedule": "cosine"}, "criterion": "stationary"},
            "criterion",
            "stationary needs a constant lr_schedule",
        ),
        ({"criterion": "fastest"}, "criterion", "got 'fastest'"),
        (
            {"target": {"betas": [0.8, 0.99]}},
            "level",
            r"(momentum or beta1 0.9 and 0.8): choose step",
        ),
        ({"tolerance": 0.0}, "tolerance", "greater than 0, got 0.0"),
        (
            {"limits": {"steps": 2399}},
            "limits.steps",
            "at least base.steps = 2,400, which every verdict takes; got 2,399",
        ),
        ({"limits": {"wall_seconds": 0}}, "limits.wall_seconds", "greater than 0, got 0"),
        ({"replicates": 0}, "replicates", "got 0"),
        ({"window": [2000, 3000]}, "window", "got (2000, 3000) with steps = 2400"),
        ({"window": [2300, 2400]}, "window", "must span at least 240 steps"),
        (
            {"window": [500, 2400]},
            "window",
            "the source is stationary only after about 1000 steps, and the window starts at 500",
        ),
        (
            {"base": {"steps": 1500}},
            "base.steps",
            "the window starts at 875; base.steps = 1800 would do",
        ),
        (
            {"target": {"betas": [0.9, 0.999]}},
            "base.steps",
            "base.steps = 5200 would do with the default window, or a beta2 of the target of at "
            "most 0.9978 instead of 0.999; got 2400",
        ),
        ({"max_corrections": 4}, "max_corrections", "got 4"),
        ({"calibration_steps": 350}, "calibration_steps", "from 420"),
        ({"calibration_steps": 2500}, "calibration_steps", "to base.steps = 2400, got 2500"),
        (
            {"base": {"lr_schedule": "cosine"}, "calibration_steps": 1000},
            "calibration_steps",
            "must be unset unless the criterion is stationary",
        ),
        (
            {
                "base": {"lr_schedule": "cosine", "warmup_steps": 100},
                "criterion": "schedule",
            },
            "base.warmup_steps",
            "must be part of lr_schedule's points",
        ),
        ({"name": ""}, "name", "at least 1 character"),
        ({"speed": 3}, "speed", "is not a field here"),
    ],
)
def test_a_refused_spec_names_field_rule_and_value(changes, path, words):
    found = refusals(**changes)

    assert list(found) == [path]
    assert words in found[path]


@pytest.mark.parametrize("side", ["source", "target"])
def test_adam_without_decay_is_refused_with_what_it_has_instead(side):
    arm = {"optimizer": "adam", "momentum": None, "lr": None if side == "target" else 0.001}
    changes = {side: {**arm, "weight_decay": None, "alpha_s": None, "betas": None}}

    found = refusals(**changes)

    assert "adam_without_decay" in found[f"{side}.optimizer"]


def test_the_schedule_criterion_is_for_targets_whose_norms_do_not_lag():
    target = {"optimizer": "adamw", "weight_decay": 1.0, "alpha_s": None, "betas": None}

    found = refusals(base={"lr_schedule": "cosine"}, target=target, criterion="schedule")

    assert "schedule is measured for ndadam as target" in found["criterion"]


def test_a_source_without_decay_can_be_matched_where_nothing_must_be_stationary():
    spec = match_spec(
        base={"lr_schedule": "cosine"}, source={"weight_decay": 0.0}, criterion="least_squares"
    )

    assert spec.chosen_criterion() == "least_squares"


# --- What follows --------------------------------------------------------------------------------


def test_the_criterion_follows_the_schedule():
    assert match_spec().chosen_criterion() == "stationary"
    assert match_spec(base={"lr_schedule": "cosine"}).chosen_criterion() == "least_squares"
    warm = match_spec(base={"warmup_steps": 50})
    assert warm.chosen_criterion() == "least_squares"


def test_the_window_is_known_before_anything_runs():
    assert match_spec().chosen_window() == (1400, 2400)
    assert match_spec(base={"steps": 6000}).chosen_window() == (3500, 6000)
    assert match_spec(base={"lr_schedule": "cosine"}).chosen_window() == (120, 2280)
    assert match_spec(window=[1200, 2000]).chosen_window() == (1200, 2000)


@pytest.mark.parametrize("steps", [2400, 2401, 2405, 2411, 7001])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_match_in_a_loop_of_ones_own_looks_at_the_same_window(steps, schedule):
    spec = match_spec(base={"steps": steps, "lr_schedule": schedule})
    plan = spec.plan
    own = checked_plan(
        plan.source, plan.target, steps, spec.factor(), None, None, 0.05, plan.seeds, None, 3
    )

    assert own.criterion == plan.criterion == spec.chosen_criterion()
    assert own.window == plan.window == spec.chosen_window()


def test_long_runs_are_recorded_every_few_steps():
    spec = match_spec(base={"steps": 80_000})

    assert spec.record_every == 4
    assert spec.plan.least_block * spec.record_every >= 30


def test_both_sides_train_one_network():
    spec = match_spec(base={"bn_scale": None})

    assert spec.source_config.bn_scale == "trainable"
    assert spec.target_config(0.05).bn_scale == "trainable"
    assert match_spec(base={"bn_scale": "fixed"}).target_config(0.05).bn_scale == "fixed"


def test_a_schedule_of_the_vectors_leaves_alpha_s_alone():
    spec = match_spec(base={"lr_schedule": "cosine"}, criterion="schedule")
    config = spec.target_config(0.05, ((0, 1.0), (100, 0.5)))

    assert config.lr_schedule == ((0, 1.0), (100, 0.5))
    assert config.alpha_s_schedule == "cosine"


def test_decay_that_misses_the_vectors_is_no_decay():
    spec = match_spec()

    assert setting_of(spec.source_config).weight_decay == 0.001
    scalars = spec.source_config.model_copy(update={"decay_on": "scalars"})
    assert setting_of(scalars).weight_decay == 0.0


def test_a_spec_survives_json():
    spec = match_spec(window=[1200, 2400], tags=["a"], notes="why")

    assert MatchSpec.model_validate_json(spec.model_dump_json()) == spec
    assert MatchSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_matching_loads_neither_torch_nor_ray():
    code = (
        "import sys, sweeps.match.match_spec, sweeps.match.proposer; "
        "sys.exit(bool({'torch', 'ray', 'optuna', 'mlflow', 'scipy'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
