import pytest
import torch

from ndadam import NDAdam
from worker import TrainConfig
from worker.data.run_length import Length
from worker.networks.build import build_network
from worker.steps.optimizers import LearningRates, build_optimizer

LENGTH = Length(num_steps=100, steps_per_epoch=10, batch_size=8, num_train=80)


def build(**fields):
    config = TrainConfig(depth=10, widen_factor=1.0, **fields).resolved()
    model = build_network(config, 10, 3, torch.device("cpu"))
    return config, model, build_optimizer(config, model)


def decays(optimizer):
    return {group["name"]: group["weight_decay"] for group in optimizer.param_groups}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"optimizer": "sgd"}, {"vectors": 1e-3, "scalars": 0}),
        ({"optimizer": "sgd", "recipe": "paper-wrn"}, {"vectors": 5e-4, "scalars": 5e-4}),
        ({"optimizer": "sgd", "decay_on": "scalars"}, {"vectors": 0, "scalars": 1e-3}),
        ({"optimizer": "adam"}, {"vectors": 0, "scalars": 0}),
        ({"optimizer": "adamw"}, {"vectors": 0.01, "scalars": 0}),
        ({"optimizer": "ndadam"}, {"vectors": 0, "scalars": 0}),
        ({"optimizer": "ndadam", "recipe": "paper-wrn"}, {"vectors": 0, "scalars": 5e-6}),
    ],
)
def test_decay_acts_on_the_parameters_of_the_recipe(fields, expected):
    _, _, optimizer = build(**fields)

    assert decays(optimizer) == expected


def test_vectors_are_the_convolutions_and_scalars_are_the_rest():
    _, model, optimizer = build(optimizer="sgd")
    groups = {group["name"]: group["params"] for group in optimizer.param_groups}

    assert all(p.dim() == 4 for p in groups["vectors"])
    assert all(p.dim() == 1 for p in groups["scalars"])
    assert len(groups["vectors"]) + len(groups["scalars"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        ({"optimizer": "sgd", "nesterov": True}, torch.optim.SGD, {"nesterov": True}),
        ({"optimizer": "sgd", "momentum": 0.8}, torch.optim.SGD, {"momentum": 0.8}),
        ({"optimizer": "adam", "eps": 1e-4}, torch.optim.Adam, {"eps": 1e-4}),
        ({"optimizer": "adamw", "betas": (0.8, 0.9)}, torch.optim.AdamW, {"betas": (0.8, 0.9)}),
        ({"optimizer": "ndadam", "betas": (0.8, 0.9)}, NDAdam, {"betas": (0.8, 0.9)}),
        ({"optimizer": "ndadam", "recipe": "paper-wrn"}, NDAdam, {"betas": (0.9, 0.99)}),
    ],
)
def test_settings_reach_the_optimizer(fields, kind, expected):
    _, _, optimizer = build(**fields)

    assert type(optimizer) is kind
    for group in optimizer.param_groups:
        assert {name: group[name] for name in expected} == expected


def rates(optimizer):
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


def test_the_schedule_moves_both_rates():
    config, _, optimizer = build(optimizer="ndadam", alpha_v=0.04, alpha_s=0.002)
    LearningRates(config, optimizer, LENGTH).set(50)

    assert rates(optimizer) == pytest.approx({"vectors": 0.02, "scalars": 0.001})


def test_alpha_s_can_have_a_schedule_of_its_own():
    config, _, optimizer = build(
        optimizer="ndadam",
        alpha_v=0.04,
        alpha_s=0.002,
        alpha_s_schedule="constant",
        lr_schedule=((0, 1.0), (100, 0.0)),
        warmup_steps=0,
    )
    LearningRates(config, optimizer, LENGTH).set(75)

    assert rates(optimizer) == pytest.approx({"vectors": 0.01, "scalars": 0.002})


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_other_optimizers_have_one_rate(optimizer):
    config, _, built = build(optimizer=optimizer, lr=0.5, lr_schedule="cosine_epoch")
    LearningRates(config, built, LENGTH).set(59)

    assert rates(built) == pytest.approx(dict.fromkeys(("vectors", "scalars"), 0.25))
