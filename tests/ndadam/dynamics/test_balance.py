"""Growth and decay balance on any run, and say how far gradients are from tangential."""

import math

import pytest
import torch

from ndadam import EffectiveLR
from tests.ndadam.dynamics.moving_weights import batches, sgd, small_net, train

SCHEDULES = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t / 50)),
    "warm-up from zero": lambda t: min(1.0, t / 5),
    "zero in between": lambda t: float(t != 20),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_balance_law_holds_on_any_run(schedule):
    """Out of equilibrium, with a schedule, invariant or not: 1 % allowed, rounding errors seen."""
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer)
    data = batches(40)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, SCHEDULES[schedule])
    for batch in data:
        train(model, optimizer, [batch])
        rates.step()

    balance = dynamics.balance()

    assert balance.steps == 39
    assert abs(balance.residual) < 1e-10
    # conv1 is read by batch norm: its gradient is orthogonal. The last layer's is not.
    assert abs(balance.layers["conv1"]) < 1e-6
    assert abs(balance.layers["linear1"]) > 1e-3


def test_kappa_is_the_mean_radial_gradient_over_decay():
    model = small_net()
    optimizer = sgd(model, weight_decay=1e-2)
    dynamics = EffectiveLR(model, optimizer)
    weights, grads = train(model, optimizer, batches(6))

    kappa = dynamics.balance().layers["linear1"]

    # The first step only starts the recursion.
    gw = sum((grads[t][2] * weights[t][2]).sum() for t in range(1, 6))
    ww = sum(weights[t][2].square().sum() for t in range(1, 6))
    assert kappa == pytest.approx((gw / (1e-2 * ww)).item(), rel=1e-10)


def test_the_balance_survives_a_pause():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(5))
    dynamics.recording = False
    train(model, optimizer, batches(3))
    dynamics.recording = True
    train(model, optimizer, batches(5))

    balance = dynamics.balance()
    assert balance.steps == 8
    assert abs(balance.residual) < 1e-10


def test_several_groups_with_their_own_rates_and_decay_balance():
    model = small_net()
    optimizer = torch.optim.SGD(
        [
            {"params": model[0].parameters(), "lr": 0.2, "weight_decay": 0.02},
            {"params": model[3].parameters(), "lr": 0.05, "momentum": 0.5},
            {"params": model[5].parameters()},
        ],
        lr=0.1,
        momentum=0.9,
        weight_decay=0.01,
    )
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(20))

    assert abs(dynamics.balance().residual) < 1e-10


def test_a_state_without_a_step_before_is_gone_on_from_as_such():
    """Also one whose step before is zeros and not NaN, as states used to have it."""
    model = small_net()
    optimizer = sgd(model)
    data = batches(5)
    dynamics, resumed = EffectiveLR(model, optimizer), EffectiveLR(model, optimizer)
    state = dynamics.state_dict()
    state["balance"]["previous"].zero_()
    resumed.load_state_dict(state)

    train(model, optimizer, data)

    assert resumed.balance() == dynamics.balance()
