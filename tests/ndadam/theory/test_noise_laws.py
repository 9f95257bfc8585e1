"""ND-Adam on random gradients: each factor of its law, and what bends it, seen by itself."""

import math

import pytest
import torch
from torch import nn

from ndadam import EffectiveLR, NDAdam
from ndadam.theory.prediction import stationary_effective_lr, step_ratio
from tests.ndadam.theory.paper_runs import NDADAM

VECTORS, ELEMENTS = 400, 16


class NoiseWalk:
    """ND-Adam's vectors under noise on the unit sphere; ``strength`` is G of a step, per vector."""

    def __init__(self, alpha=0.05, betas=(0.9, 0.99), strength=None):
        self.random = torch.Generator().manual_seed(0)
        self.model = nn.Linear(ELEMENTS, VECTORS, bias=False).double()
        self.w = self.model.weight
        group = {"params": [self.w], "vector_dim": 0}
        self.optimizer = NDAdam([group], lr=alpha, betas=betas)
        self.strength = strength or (lambda step: 1.0)
        self.step_number = 0

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def step(self):
        """One step; the mean square over vectors of how far they moved."""
        before = self.w.detach().clone()
        noise = self.normal(VECTORS, ELEMENTS)
        noise -= (noise * before).sum(1, keepdim=True) * before
        size = self.strength(self.step_number)
        self.w.grad = noise * (torch.as_tensor(size, dtype=torch.float64) / (ELEMENTS - 1)) ** 0.5
        self.optimizer.step()
        self.step_number += 1
        return (self.w.detach() - before).square().sum(1).mean().item()

    def rms(self, start, steps):
        squares = [self.step() for _ in range(steps)][start:]
        return math.sqrt(sum(squares) / len(squares))


def test_momentum_points_along_the_weights_by_as_much_as_they_turned_since():
    """cos(update, w) = -b1 / (1 - b1) e: the part of a step that normalisation takes back."""
    walk = NoiseWalk()
    e = walk.rms(300, 700)
    cosines = []
    for _ in range(100):
        before = walk.w.detach().clone()
        walk.step()
        m = walk.optimizer.state[walk.w]["exp_avg"]
        cosines.append(((m * before).sum(1) / m.norm(dim=1)).mean().item())

    assert e == pytest.approx(stationary_effective_lr(NDADAM.with_lr(0.05)), rel=4e-3)
    assert sum(cosines) / 100 == pytest.approx(-9 * e, rel=0.05)


def test_heavy_tails_of_the_gradients_slow_it_down_a_little():
    """C = CV of ||g||^2: e^2 changes by C^2 [(1-b2)/(1+b2) - (1-b1^2)(1-b2)/(1-b1^2 b2)]."""
    sigma = 1.2  # of the log; CV^2 = e^(sigma^2) - 1
    sizes = torch.Generator().manual_seed(1)

    def strength(step):
        draw = torch.randn(VECTORS, 1, generator=sizes, dtype=torch.float64)
        return (sigma * draw - sigma**2 / 2).exp()

    # Both see the same directions, so their noise cancels in the ratio.
    tails, usual = NoiseWalk(alpha=0.01, strength=strength), NoiseWalk(alpha=0.01)
    ratio = (tails.rms(400, 1500) / usual.rms(400, 1500)) ** 2

    b1, b2 = 0.9, 0.99
    bend = (1 - b2) / (1 + b2) - (1 - b1**2) * (1 - b2) / (1 - b1**2 * b2)
    # Sign and order of size: the formula is an upper estimate.
    assert 0.5 < (ratio - 1) / (math.expm1(sigma**2) * bend) < 1.3


@pytest.mark.parametrize("fade", [0.003, -0.003])
def test_gradients_that_fade_leave_a_second_moment_that_remembers_and_growing_ones_the_reverse(
    fade,
):
    """Under G = exp(-fade t) memory holds 1 / (1 - fade / (1 - b2)) times the current strength."""
    walk = NoiseWalk(alpha=0.01, strength=lambda step: math.exp(-fade * step))
    e = walk.rms(600, 1100)

    remembered = math.sqrt(1 - fade / (1 - 0.99))
    assert e / (0.01 * step_ratio(0.9)) == pytest.approx(remembered, rel=0.03)


@pytest.mark.parametrize(("fade", "low", "high"), [(0.003, 0.6, 0.8), (-0.003, 1.2, 1.4)])
def test_shadow_moments_report_that_memory_apart_from_the_gain(fade, low, high):
    """So a short run of SGD with shrinking gradients does not pass for agreement among them."""
    torch.manual_seed(0)
    model = nn.Linear(ELEMENTS, VECTORS, bias=False).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.99))
    for step in range(900):
        noise = torch.randn(VECTORS, ELEMENTS, dtype=torch.float64)
        model.weight.grad = noise * math.exp(-fade * step / 2)
        optimizer.step()

    gain = dynamics.gain()
    assert low < gain.memory < high
    assert gain.overall == pytest.approx(1, rel=0.05)
