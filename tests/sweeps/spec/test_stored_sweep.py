"""What is read of a spec once it is stored: typed, with the defaults that a spec has."""

from typing import Any, get_args

import pytest

from sweeps.match.match_spec import MatchSpec
from sweeps.records import Side, Sweep, SweepObjective, TrialResources, sign_of
from sweeps.spec.sweep_spec import Objective, SweepSpec
from tests.sweeps.sweep_cases import BASE, SPACE, stored_sweep, sweep_spec


def stored(**fields: Any) -> Sweep:
    return stored_sweep(sweep_spec(**fields).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("direction", "sign", "order"), [("minimize", 1.0, "mean"), ("maximize", -1.0, "-mean")]
)
def test_an_objective_says_which_of_two_values_is_better(
    direction: str, sign: float, order: str
) -> None:
    asked = {"metric": "train_loss", "direction": direction}
    objective = stored(objective=asked).objective

    assert objective == SweepObjective("train_loss", direction)  # type: ignore[arg-type]
    assert objective.sign == sign_of(direction) == Objective.model_validate(asked).sign == sign
    assert objective.is_maximized == (direction == "maximize")
    assert objective.best_first == order


def test_what_a_spec_says_is_read_as_it_says_it() -> None:
    sweep = stored(
        replicates=4,
        sampler="tpe",
        scheduler={"kind": "median"},
        resources={"cpus": 2, "gpus": 1, "trials_per_gpu": 4},
        comparison={"pairing": True, "margin": 0.01},
    )

    assert {name: sweep.base[name] for name in BASE} == BASE
    assert list(sweep.space) == list(SPACE)
    assert (sweep.replicates, sweep.num_points, sweep.sampler) == (4, 6, "tpe")
    assert sweep.scheduler is not None
    assert sweep.scheduler["kind"] == "median"
    assert sweep.resources == TrialResources(cpus=2.0, gpus=0.25)
    assert sweep.declared_comparison["margin"] == 0.01
    assert sweep.confirms is None


def test_what_a_spec_leaves_out_has_the_spec_s_default() -> None:
    sweep, default = stored_sweep({}), SweepSpec.model_fields

    assert sweep.objective == SweepObjective(**Objective().model_dump())
    assert sweep.replicates == default["replicates"].default
    assert sweep.resources == TrialResources(cpus=1.0, gpus=0.0)
    assert (sweep.base, sweep.space, sweep.declared_comparison) == ({}, {}, {})
    assert (sweep.scheduler, sweep.confirms, sweep.num_points) == (None, None, None)
    assert sweep.tolerance == MatchSpec.model_fields["tolerance"].default


def test_a_match_has_two_settings_and_a_criterion() -> None:
    spec = {"source": {"optimizer": "sgd"}, "criterion": "stationary", "tolerance": 0.1}
    match = stored_sweep(spec, "match")

    assert [match.arm_setting(side) for side in get_args(Side)] == [{"optimizer": "sgd"}, {}]
    assert (match.criterion, match.tolerance) == ("stationary", 0.1)
