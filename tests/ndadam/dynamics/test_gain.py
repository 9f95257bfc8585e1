"""Random walks reach their closed forms, and the gain of gradients that agree is measured."""

import math

import pytest
import torch
from torch import nn

from ndadam import EffectiveLR, NDAdam, param_groups
from tests.ndadam.dynamics.moving_weights import random_walk, rms


def test_sgd_with_decay_reaches_the_equilibrium_of_the_closed_form():
    """e* = sqrt(2 lr decay / (1 + mu)), relaxation time (1 - mu) / (4 lr decay) = 62.5 steps."""
    lr, decay, mu = 0.1, 4e-3, 0.9
    dynamics = random_walk(1000, lr=lr, decay=decay, mu=mu)

    e = torch.tensor(dynamics.drain().effective_lr)[400:]

    assert rms(e) == pytest.approx(math.sqrt(2 * lr * decay / (1 + mu)), rel=0.01)


def test_the_plateaus_of_fig_1a():
    """-2 mu / (1 + mu) on w, -2 mu / (1 + mu)^2 on the accumulated decay."""
    dynamics = random_walk(1200, decay=4e-3)
    layer = dynamics.drain().layers["linear1"]

    on_w = torch.tensor(layer.projection_ratio_on_w)[400:].mean().item()
    on_p = torch.tensor(layer.projection_ratio)[400:].mean().item()
    assert on_w == pytest.approx(-2 * 0.9 / 1.9, rel=0.02)
    assert on_p == pytest.approx(-2 * 0.9 / 1.9**2, rel=0.04)


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.5])
def test_the_gain_of_autocorrelated_noise(rho):
    """A = (1 + b1 rho) / (1 - b1 rho) for AR(1) gradients."""
    gain = random_walk(1500, rho=rho, betas=(0.9, 0.99)).gain()

    assert gain.overall == pytest.approx((1 + 0.9 * rho) / (1 - 0.9 * rho), rel=0.03)
    assert gain.layers == {"linear1": pytest.approx(gain.overall, rel=1e-12)}
    assert gain.memory == pytest.approx(1, abs=0.02)
    assert gain.steps == 1500 - 50


def test_a_unit_that_dies_does_not_make_the_gain_infinite():
    """Its running average outlives its gradients, so their ratio says nothing of agreement."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.99))
    for step in range(90):
        model.weight.grad = torch.randn(4, 8)
        if step >= 50:  # warm-up is over after 50 steps
            model.weight.grad[0] = 0.0
        optimizer.step()

    gain = dynamics.gain()

    assert 0.3 < gain.overall < 2
    assert 0.3 < gain.layers["linear1"] < 2


def test_shadow_moments_equal_those_of_ndadam():
    """On NDAdam's own run the shadow follows its first and second moments."""
    made = []

    def ndadam(model):
        made.append((NDAdam(param_groups(model), betas=(0.9, 0.99)), model))
        return made[0][0]

    dynamics = random_walk(60, betas=(0.9, 0.99), optimizer=ndadam)
    optimizer, model = made[0]
    state = optimizer.state[model.weight]

    shadow = dynamics._shadow
    torch.testing.assert_close(
        shadow.exp_avg.view(20, 200), state["exp_avg"], rtol=1e-9, atol=1e-14
    )
    torch.testing.assert_close(shadow.exp_avg_sq, state["exp_avg_sq"][:, 0], rtol=1e-9, atol=0)


def test_the_gain_waits_for_its_warm_up():
    assert random_walk(50, betas=(0.9, 0.99)).gain() is None
    assert random_walk(51, betas=(0.9, 0.99)).gain().steps == 1
    assert random_walk(60).gain() is None
