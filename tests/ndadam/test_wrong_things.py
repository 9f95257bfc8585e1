"""Arguments of the wrong kind: named where they are given, not by what Python meets later."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import (
    BatchNormSoftmax,
    EffectiveLR,
    LogitMagnitude,
    NDAdam,
    Scaled,
    equivalents,
    match_alpha_v,
    param_groups,
    probe,
    setting_of_optimizer,
)
from ndadam.matching.closed_loop import FollowCurve
from ndadam.theory.laws import OptimizerSetting

SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}
BATCH = (torch.ones(4, 6), torch.tensor([0, 1, 2, 0]))


def small():
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 3))
    return model, NDAdam(param_groups(model))


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def matched(**wrong):
    arguments = {"sgd": SGD, "num_steps": 2400, "betas": (0.9, 0.99)} | wrong
    function, batches = arguments.pop("loss", loss), arguments.pop("batches", [BATCH])
    return match_alpha_v(small()[0], function, batches, **arguments)


def on_small(call):
    return lambda: call(*small())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (on_small(lambda m, o: EffectiveLR(m, None)), "optimizer must be a torch.* got NoneType$"),
        (on_small(lambda m, o: EffectiveLR(m, o, every="2")), "every must be >= 1, got '2'$"),
        (on_small(lambda m, o: EffectiveLR(m, o, every=math.nan)), "every must be >= 1, got nan$"),
        (
            on_small(lambda m, o: EffectiveLR(m, o, first_step=1.5)),
            "first_step must be a whole number, got 1.5$",
        ),
        (on_small(lambda m, o: EffectiveLR(m, o, probe="yes")), "probe must be what .* got str$"),
        (
            on_small(lambda m, o: FollowCurve(m, "adam", lambda step: 0.01)),
            "optimizer must be a torch.optim.Optimizer, got str$",
        ),
        (
            on_small(lambda m, o: FollowCurve(m, o, lambda step: 0.01, first_step=None)),
            "first_step must be a whole number, got None$",
        ),
        (
            on_small(lambda m, o: LogitMagnitude(m, every=1.5)),
            "every must be a whole number of at least 1, got 1.5$",
        ),
        (lambda: LogitMagnitude(BATCH[0]), "head must be an nn.Module, got Tensor$"),
        (
            on_small(lambda m, o: setting_of_optimizer("sgd", m)),
            "optimizer must be a torch.*got str",
        ),
        (on_small(lambda m, o: probe(m, BATCH, None)), "loss must be a function .*, got None$"),
        (
            on_small(lambda m, o: equivalents(o, m, num_steps=100, betas=())),
            r"betas must be two numbers, got \(\)$",
        ),
        (lambda: Scaled("relu"), "layer must be an nn.Module, got str$"),
        (lambda: Scaled(nn.Linear(3, 2), "relu"), "activation must be a function .* got 'relu'$"),
        (
            lambda: BatchNormSoftmax(0, 2.5),
            "num_classes must be a whole number of at least 1, got 0",
        ),
        (lambda: BatchNormSoftmax(10, None), "gamma_c must be > 0, got None$"),
        (lambda: matched(tolerance="5 %"), "tolerance must be above 0 .*, got '5 %'$"),
        (
            lambda: matched(max_corrections=1.5),
            "max_corrections must be a whole number of at least 0, got 1.5$",
        ),
        (lambda: matched(alpha_s="1e-3"), "alpha_s must be a number >= 0 .*, got '1e-3'$"),
        (lambda: matched(loss="cross_entropy"), "loss must be a function .* got 'cross_entropy'$"),
        (lambda: matched(batches=None), "batches must be a list, a DataLoader .* got NoneType$"),
    ],
)
def test_the_argument_is_named_with_its_rule(call, message):
    with pytest.raises((ValueError, TypeError), match=rf"^{message}"):
        call()


def test_an_adam_with_another_momentum_is_not_taken_for_adamw():
    model, _ = small()
    decoupled = {"weight_decay": 0.1, "decoupled_weight_decay": True}

    adam = torch.optim.Adam(model.parameters(), lr=0.5, **decoupled)

    assert setting_of_optimizer(adam, model) == OptimizerSetting("adamw", lr=0.5, weight_decay=0.1)
    with pytest.raises(ValueError, match=r"optimizer must be torch's SGD, .* got NAdam"):
        setting_of_optimizer(torch.optim.NAdam(model.parameters(), **decoupled), model)
