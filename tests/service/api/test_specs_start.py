"""A spec is refused at submission, or every trial of it can start: tried by starting them."""

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Proposal
from sweeps.spec.sweep_spec import SweepSpec
from worker.training.train import train

#: Values that networks, data, optimizers and schedules depend on; about one in four breaks a rule,
#: by itself or beside another.
VALUES: dict[str, list[Any]] = {
    "recipe": ["paper-tf", "paper-wrn"],
    "depth": [10, 16, 12],
    "widen_factor": [1.0, 1.5, 0.5],
    "shortcut": ["pool_pad", "conv"],
    "activation": ["relu", "leaky_relu"],
    "init": ["fan_in_normal", "kaiming_normal"],
    "bn_scale": ["trainable", "fixed"],
    "input_norm": ["per_image", "channel"],
    "crop_pad": [0, 2, 8],
    "crop_fill": ["zero", "edge"],
    "flip": [True, False],
    "batch_size": [1, 7, 16, 30, 61],
    "last_batch": ["drop", "keep"],
    "gamma_c": [None, 2.5, 0.0],
    "lambda_c": [None, 0.001],
    "weight_decay": [0.0, 0.001],
    "decay_on": ["vectors", "scalars", "all"],
    "lr_schedule": ["cosine", "cosine_epoch", "constant", [[0, 1.0], [3, 0.5]]],
    "warmup_steps": [0, 3, 50],
    "validation_fraction": [0.1, 0.5, 0.9, 0.99],
    "precision": ["fp32", "bf16"],
    "optimizer": ["sgd", "adam", "adamw", "ndadam"],
}
FIXED_IN_A_SWEEP = ("validation_fraction",)
#: Ranges, some of them with ends that no trial can use.
RANGES: dict[str, list[dict[str, Any]]] = {
    "lr": [
        {"kind": "float", "low": 1e-300, "high": 0.5, "log": True},
        {"kind": "float", "low": -0.1, "high": 0.5},
    ],
    "alpha_v": [{"kind": "float", "low": 1e-3, "high": 1e30, "log": True}],
    "weight_decay": [{"kind": "float", "low": 0.0, "high": 0.01, "step": 0.005}],
    "batch_size": [{"kind": "int", "low": 1, "high": 64, "log": True}],
    "warmup_steps": [{"kind": "int", "low": 0, "high": 60, "step": 20}],
}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    base: dict[str, Any] = {
        "dataset": "made-up",
        "depth": 10,
        "widen_factor": 1.0,
        "report_every": 1,
        "batch_size": 16,
    }
    base |= {"steps": 4} if draw(st.booleans()) else {"epochs": 1}
    for name in draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4, unique=True)):
        base[name] = draw(st.sampled_from(VALUES[name]))
    varied = sorted(set(VALUES) - set(FIXED_IN_A_SWEEP))
    space = {
        name: {
            "kind": "choice",
            "values": draw(
                st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=3, unique_by=repr)
            ),
        }
        for name in draw(st.lists(st.sampled_from(varied), min_size=1, max_size=2, unique=True))
    }
    how: dict[str, Any] = {"sampler": "grid"}
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(RANGES)))
        space[name] = draw(st.sampled_from(RANGES[name]))
        how = {"sampler": draw(st.sampled_from(["random", "qmc"])), "num_points": 4}
    base = {name: value for name, value in base.items() if name not in space}
    return {"name": "any", "base": base, "space": space, **how}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_spec_is_refused_or_every_trial_of_it_can_start(client, data):
    started: list[str] = []
    refused: list[str] = []

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(raw=specs())
    def check(raw: dict[str, Any]) -> None:
        answer = client.post("/api/v1/sweeps/validate", json=raw)
        event(str(answer.status_code))
        if answer.status_code == 422:
            assert all(field["reason"] for field in answer.json()["fields"])
            refused.append(raw["sampler"])
            return
        assert answer.status_code == 200, answer.text
        proposer = SweepProposer(SweepSpec.model_validate(raw), NoResults())
        while isinstance(proposal := proposer.next(), Proposal):
            run = train(proposal.config, data_home=data)
            assert next(run).step == 1
            run.close()
            started.append(raw["sampler"])

    check()

    assert len(started) >= 20
    assert len(refused) >= 10
    assert set(started) == {"grid", "random", "qmc"}


class NoResults:
    """No trial has been trained."""

    def metrics(self, number: int, names: Any = None, max_points: int = 1000) -> dict[str, Any]:
        return {}

    def series(self, number: int, name: str) -> list[Any]:
        return []
