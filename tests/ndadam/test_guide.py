"""What the guide to ND-Adam says is what the library does."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import ndadam
from ndadam import NDAdam, describe_groups, param_groups
from ndadam.theory.prediction import OptimizerSetting, predict

TEXT = (Path(__file__).parents[2] / "docs" / "ndadam.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


@pytest.mark.parametrize("block", BLOCKS)
def test_its_code_makes_an_optimizer_that_steps(block):
    model = network()
    names = {"torch": torch, "model": model, "optimizer": NDAdam(param_groups(model))}
    exec(block, names)
    before = [p.detach().clone() for p in names["model"].parameters()]

    # No image of one colour: batch normalisation leaves a convolution no gradient on it.
    names["model"](torch.randn(2, 3, 10, 10)).square().mean().backward()
    names["optimizer"].step()
    if "dynamics" in names:
        assert names["dynamics"].drain().layers["conv1"].effective_lr[0] > 0

    now = names["model"].parameters()
    assert any(not torch.equal(a, b) for a, b in zip(now, before, strict=True))


def test_its_table_is_the_one_that_is_printed():
    assert describe_groups(network()) in TEXT


def test_its_rates_are_the_defaults_of_the_groups():
    vectors, scalars = param_groups(network())

    assert f"alpha_v={vectors['lr']}" in TEXT
    assert scalars["lr"] == 1e-3
    assert "alpha_s=1e-3" in TEXT


def test_its_example_of_sgd_is_the_closed_form():
    sgd = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=0.001)
    answer = predict(sgd, OptimizerSetting("ndadam"), num_steps=6000)

    assert round(answer.criteria["stationary"].rate, 3) == 0.045
    assert round((2 * 0.001 * 0.1 / 1.9) ** 0.5, 4) == 0.0103
    assert "0.0103 for lr 0.1" in TEXT
    assert "α^v = 0.045" in TEXT


def test_the_names_it_mentions_exist():
    mentioned = re.findall(r"`([A-Za-z_]+)\(", TEXT)
    methods = {*dir(ndadam.EffectiveLR), *dir(ndadam.NDAdam), *dir(ndadam.Scaled)}
    known = {*ndadam.__all__, *methods, "print"}

    assert {"Scaled", "fold_batch_norm", "BatchNormSoftmax", "EffectiveLR"} <= set(mentioned)
    assert set(mentioned) <= known
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert all((Path(__file__).parents[2] / "docs" / link).exists() for link in links)
