"""Specs: every refusal names its field, and what is accepted has no point that cannot train."""

import itertools
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from sweeps.cluster.capacity import ClusterShape, NodeShape
from sweeps.spec.sweep_spec import SweepSpec, explain
from tests.sweeps.spec.spec_cases import BASE, choice, fields, real, whole
from worker.config.train_config import TrainConfig


def refusals(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as error:
        SweepSpec.model_validate(fields(**changes))
    return [(item["path"], item["reason"]) for item in explain(error.value)]


@dataclass
class Work:
    """What something took, in units that are the same on every machine."""

    calls: int = 0
    peak_bytes: int = 0


def work_of(do: Callable[[], Any]) -> tuple[Any, Work]:
    """What it returns, and what it took the second time: imports and caches are nobody's grid."""
    do()
    work = Work()

    def count(_frame: Any, event: str, _argument: Any) -> None:
        work.calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        found = do()
    finally:
        sys.setprofile(None)
        work.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found, work


#: space -> the path and part of the reason it is refused with.
UNUSABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"alpha_v": real(0.0, 0.1, log=True)}, "space.alpha_v.low", "above 0, got low = 0.0"),
    ({"alpha_v": real(0.1, 0.001, log=True)}, "space.alpha_v.low", "below high, got low = 0.1"),
    ({"alpha_v": real(0.1, 0.1)}, "space.alpha_v.low", "got low = 0.1 and high = 0.1"),
    ({"alpha_v": real(1e-4, 1e-1, log=True, step=5e-4)}, "space.alpha_v.step", "with log"),
    ({"alpha_v": real(float("nan"), 1.0)}, "space.alpha_v.low", "finite number, got nan"),
    ({"alpha_v": real(0.1, float("inf"))}, "space.alpha_v.high", "finite number, got inf"),
    ({"alpha_v": real("0.1", 1.0)}, "space.alpha_v.low", "valid number, got '0.1'"),
    ({"alpha_v": real(-1.0, 1.0)}, "space.alpha_v", "greater than or equal to 0, got -1.0"),
    ({"alpha_v": real(0.1, 1e308)}, "space.alpha_v", "less than or equal to 1"),
    ({"alpha_v": real(0.1, 1e38)}, "space.alpha_v", "schedule / (1 - beta1) must be at most 1e+38"),
    ({"alpha_v": real(0.0, 1.0, step=0.3)}, "space.alpha_v.step", "last value is 0.9, not 1.0"),
    ({"alpha_v": real(0.0, 1.0, step=2.0)}, "space.alpha_v.step", "at most high - low = 1.0"),
    ({"alpha_v": real(0.0, 1.0, step=0.0)}, "space.alpha_v.step", "greater than 0, got 0.0"),
    ({"alpha_v": real(0.0, 1e308, step=1e-300)}, "space.alpha_v.step", "large enough"),
    ({"alpha_v": {"kind": "float", "low": 0.1}}, "space.alpha_v.high", "missing"),
    ({"alpha_v": {"kind": "normal"}}, "space.alpha_v.kind", "'float', 'int', 'choice'"),
    ({"alpha_v": {"low": 1}}, "space.alpha_v.kind", "missing"),
    ({"alpha_v": real(0.1, 0.2, q=1)}, "space.alpha_v.q", "not a field"),
    ({"alpha_v": choice()}, "space.alpha_v.values", "at least 1 item"),
    ({"alpha_v": choice(1, 1.0)}, "space.alpha_v.values.1", "differ, got 1.0 twice"),
    ({"alpha_v": choice("high")}, "space.alpha_v", "valid number, got 'high'"),
    ({"batch_size": whole(1, 10, step=4)}, "space.batch_size.step", "last value is 9, not 10"),
    ({"batch_size": whole(0, 10, log=True)}, "space.batch_size.low", "at least 1, got low = 0"),
    ({"batch_size": whole(1.5, 10)}, "space.batch_size.low", "valid integer"),
    ({"batch_size": whole(0, 10)}, "space.batch_size", "greater than or equal to 1, got 0"),
    ({"batch_size": whole(1, 10**30)}, "space.batch_size.high", "less than or equal to"),
    ({"optimizer": choice("sgd", "lion")}, "space.optimizer", "'sgd', 'adam', 'adamw' or 'ndadam'"),
    ({"betas": choice([0.9, 1.0])}, "space.betas", "less than 1, got 1.0"),
    ({"lr": real(0.1, 0.2)}, "space.lr", "lr is not used by optimizer 'ndadam'"),
    ({"depth": whole(10, 40)}, "space.depth", "6n + 4 and at least 10, got 11"),
    ({"widen_factor": real(1.0, 2.0)}, "space.widen_factor", "whole, got 1.6180"),
    ({"steps": whole(1, 9)}, "space.steps", "steps or epochs, not both"),
    ({"learning_rate": real(0.1, 0.2)}, "space.learning_rate", "not a field of a training config"),
    ({"seed": whole(0, 3)}, "space.seed", "replicates vary it"),
    ({"split_seed": whole(0, 3)}, "space.split_seed", "the same images"),
    ({}, "space", "at least 1 item"),
    (
        {"gamma_c": real(1.0, 2.0, when={"optimizer": ["sgd"]})},
        "space.gamma_c.when",
        "'optimizer' is not one",
    ),
    (
        {"gamma_c": real(1.0, 2.0, when={"flip": ["x"]}), "flip": choice(True, False)},
        "space.gamma_c.when.flip",
        "got 'x'",
    ),
    (
        {
            "flip": choice(True, False, when={"bn_scale": ["fixed"]}),
            "bn_scale": choice("fixed", "trainable", when={"flip": [True]}),
        },
        "space.bn_scale.when",
        "circle",
    ),
    (
        {
            "flip": choice(True, False),
            "bn_scale": choice("fixed", when={"flip": [True]}),
            "gamma_c": real(1.0, 2.0, when={"flip": [False], "bn_scale": ["fixed"]}),
        },
        "space.gamma_c.when",
        "never hold together",
    ),
]


@pytest.mark.parametrize(("space", "path", "reason"), UNUSABLE)
def test_a_space_that_cannot_be_sampled_or_trained_is_refused(
    space: dict[str, Any], path: str, reason: str
) -> None:
    (refusal,) = refusals(space=space)

    assert refusal[0] == path
    assert reason in refusal[1]


#: changes of a good spec -> the path and part of the reason it is refused with.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"num_points": None}, "num_points", "must be set for sampler 'random'"),
    ({"num_points": 10_000_001}, "num_points", "10000000, got 10000001"),
    ({"num_points": 0}, "num_points", "greater than or equal to 1"),
    ({"num_points": 5_000_000, "replicates": 3}, "num_points", "5,000,000 points x 3 replicates"),
    ({"sampler": "grid"}, "space.alpha_v", "needs a step or a choice"),
    (
        {"sampler": "annealing"},
        "sampler",
        "'grid', 'random', 'qmc', 'tpe', 'gp', 'nsga2' or 'list'",
    ),
    ({"objective": {"metric": "test_error"}}, "objective.metric", "steer"),
    ({"objective": {"metric": "accuracy"}}, "objective.metric", "validation_error"),
    ({"base": BASE | {"depth": 10**9}}, "base.depth", "less than or equal to 1000"),
    ({"base": BASE | {"widen_factor": 1e9}}, "base.widen_factor", "less than or equal to 64"),
    (
        {"base": BASE | {"validation_fraction": 0.0}},
        "base.validation_fraction",
        "above 0",
    ),
    ({"base": BASE | {"lr": "0.1"}}, "base.lr", "valid number, got '0.1'"),
    ({"base": BASE | {"lr": 0.1}}, "base.lr", "not used by optimizer 'ndadam'"),
    ({"base": BASE | {"momentun": 0.9}}, "base.momentun", "not a field"),
    ({"base": BASE | {"seed": 10**5000}}, "base.seed", "more than 60 digits"),
    ({"base": BASE | {"seed": 2**31 - 1}, "replicates": 2}, "base.seed", "below 2^31"),
    ({"resources": {"gpus": 2}}, "resources.gpus", "at most 1, one trial trains on one GPU, got 2"),
    ({"resources": {"cpus": 0}}, "resources.cpus", "greater than or equal to 0.0001"),
    ({"resources": {"trials_per_gpu": 4}}, "resources.gpus", "1 with trials_per_gpu = 4"),
    ({"resources": {"gpus": 0.5, "trials_per_gpu": 4}}, "resources.gpus", "got 0.5"),
    ({"resources": {"gpus": 1, "trials_per_gpu": 9}}, "resources.trials_per_gpu", "equal to 8"),
    ({"resources": {"gpus": 1, "trials_per_gpu": 0}}, "resources.trials_per_gpu", "equal to 1"),
    ({"resources": {"gpus": 1, "trials_per_gpu": 2.0}}, "resources.trials_per_gpu", "integer"),
    ({"scheduler": {"kind": "asha"}}, "scheduler.min_steps", "missing"),
    ({"scheduler": {"kind": "hyperband"}}, "scheduler.kind", "'asha', 'median'"),
    ({"budget": {"gpu_hours": -1.0}}, "budget.gpu_hours", "greater than 0, got -1.0"),
    ({"name": ""}, "name", "at least 1 character"),
    ({"name": "a\x00b"}, "name", "printable"),
    ({"name": "  "}, "name", "more than spaces"),
    ({"tags": ["a", 3]}, "tags.1", "valid string"),
    ({"owner": "me"}, "owner", "not a field"),
    ({"initial_points": [{"alpha_v": 0.5}]}, "initial_points.0.alpha_v", "got 0.5"),
    ({"initial_points": [{"alpha_s": 0.5}]}, "initial_points.0", "exactly the fields"),
]


@pytest.mark.parametrize(("changes", "path", "reason"), WRONG)
def test_a_spec_that_breaks_a_rule_is_refused_by_its_field(
    changes: dict[str, Any], path: str, reason: str
) -> None:
    (refusal,) = refusals(**changes)

    assert refusal[0] == path
    assert reason in refusal[1]


def test_several_wrong_fields_are_named_at_once() -> None:
    found = refusals(num_points="5", sampler_seed=-1, base=BASE | {"eps": -1.0})

    assert [path for path, _ in found] == ["base.eps", "num_points", "sampler_seed"]


@pytest.mark.parametrize(
    "space",
    [
        {name: choice(0, 1) for name in list(TrainConfig.model_fields)[:30]},
        {"batch_size": whole(1, 101), "warmup_steps": whole(0, 100)}
        | {name: choice(*range(20)) for name in ("crop_pad", "alpha_v", "alpha_s", "eps")},
        {"batch_size": whole(1, 10_000_001)},
    ],
)
def test_a_huge_grid_is_refused_with_its_count_in_milliseconds(space: dict[str, Any]) -> None:
    ((path, reason),), work = work_of(
        lambda: refusals(space=space, sampler="grid", num_points=None)
    )

    assert work.calls < 20_000
    assert work.peak_bytes < 1_000_000
    assert path == "space"
    size = 1
    for domain in space.values():
        size *= len(domain["values"]) if "values" in domain else domain["high"] - domain["low"] + 1
    assert f"{size:,}" in reason
    assert "a sweep may have 10,000,000 trials" in reason


def test_a_grid_of_a_million_points_is_validated_at_once_and_in_constant_memory() -> None:
    space = {name: whole(1, 100) for name in ("batch_size", "warmup_steps", "report_every")}
    raw = fields(space=space, sampler="grid", num_points=None, base={"steps": 200})

    def validate() -> tuple[SweepSpec, list[dict[str, Any]]]:
        spec = SweepSpec.model_validate(raw)
        return spec, list(itertools.islice(spec.grid_points(), 3))

    (spec, first), work = work_of(validate)

    assert spec.space_size() == 1_000_000
    assert spec.num_trials() == 1_000_000
    assert first[2] == {"batch_size": 1, "warmup_steps": 1, "report_every": 3}
    assert work.calls < 20_000
    assert work.peak_bytes < 1_000_000


def test_conditions_that_multiply_without_end_are_refused() -> None:
    names = [name for name in TrainConfig.model_fields if name not in ("seed", "split_seed")][:20]
    space = {name: choice(0, 1, 2) for name in names}
    space["alpha_v"] = choice(0.1, when={name: [0] for name in names})

    ((path, reason),) = refusals(space=space)

    assert path == "space"
    assert f"{3**20:,}" in reason


def test_a_conditional_grid_counts_and_lists_only_what_is_active() -> None:
    spec = SweepSpec.model_validate(
        fields(
            sampler="grid",
            num_points=None,
            replicates=3,
            space={
                "optimizer": choice("sgd", "ndadam"),
                "lr": choice(0.1, 0.2, 0.3, when={"optimizer": ["sgd"]}),
                "alpha_v": real(0.01, 0.03, step=0.01, when={"optimizer": ["ndadam"]}),
                "gamma_c": choice(None, 2.5),
            },
        )
    )

    points = list(spec.grid_points())

    assert spec.num_trials() == 3 * len(points) == 36
    assert len({repr(sorted(p.items(), key=str)) for p in points}) == 12
    assert {"optimizer": "ndadam", "alpha_v": 0.03, "gamma_c": None} in points
    assert all(("lr" in p) == (p["optimizer"] == "sgd") for p in points)


def test_a_budget_bounds_the_trials_and_a_small_space_the_points() -> None:
    space = {"gamma_c": choice(1.0, 2.0)}

    assert SweepSpec.model_validate(fields(space=space, replicates=2)).num_trials() == 4
    assert SweepSpec.model_validate(fields(budget={"trials": 3})).num_trials() == 3


def test_a_spec_survives_json() -> None:
    spec = SweepSpec.model_validate(
        fields(
            scheduler={"kind": "asha", "min_steps": 10},
            initial_points=[{"alpha_v": 0.05}],
            space={"alpha_v": real(0.001, 0.1, log=True)},
            tags=["α"],
        )
    )

    assert SweepSpec.model_validate_json(spec.model_dump_json()) == spec
    assert SweepSpec.model_validate(spec.model_dump(mode="json", exclude_unset=True)) == spec


STEPS = {"dataset": "digits", "depth": 10, "widen_factor": 1.0, "steps": 1000}


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_a_scheduler_whose_first_rung_no_trial_reaches_is_refused(kind):
    ((path, reason),) = refusals(base=STEPS, scheduler={"kind": kind, "min_steps": 1000})

    assert path == "scheduler.min_steps"
    assert "below base.steps = 1,000" in reason
    SweepSpec.model_validate(fields(base=STEPS, scheduler={"kind": kind, "min_steps": 999}))


def test_a_gpu_that_trials_insist_on_must_be_asked_for():
    base = BASE | {"device": "cuda"}

    assert refusals(base=base) == [
        ("resources.gpus", "resources.gpus must be above 0 for base.device 'cuda', got 0")
    ]
    SweepSpec.model_validate(fields(base=base, resources={"gpus": 0.5}))


@pytest.mark.parametrize("count", range(2, 9))
def test_trials_that_share_a_card_take_a_share_of_it_each(count):
    spec = SweepSpec.model_validate(fields(resources={"gpus": 1, "trials_per_gpu": count}))
    share = spec.resources.gpus
    card = ClusterShape((NodeShape(16, 1),))

    assert 1 - 1e-3 < count * share <= 1
    assert card.fits(1, share) == count
    assert SweepSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_a_run_without_end_is_refused():
    ((path, reason),) = refusals(base=STEPS | {"steps": 10**18})

    assert path == "base.steps"
    assert "less than or equal to 1000000000" in reason
