"""Closed-loop control of ND-Adam's rate: stable, exact after a restart, close to its curve."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import EffectiveLR, NDAdam, param_groups
from ndadam.matching.closed_loop import FollowCurve

BETAS = (0.9, 0.99)


class Noise:
    """ND-Adam on 24 vectors whose gradients are white noise of a size that changes."""

    def __init__(self, curve, *, size=lambda step: 1.0, agreement=0.0, seed=0, betas=BETAS):
        torch.manual_seed(seed)
        self.model = nn.Linear(16, 24, bias=False)
        groups = param_groups(self.model, alpha_v=0.0, alpha_s=0.0)
        self.optimizer = NDAdam(groups, betas=betas)
        self.follow = FollowCurve(self.model, self.optimizer, curve)
        self.dynamics = EffectiveLR(self.model, self.optimizer)
        self.size, self.agreement = size, agreement
        self.draw = torch.Generator().manual_seed(seed + 1)
        self.kept = torch.zeros(24, 16)

    def run(self, steps):
        for _ in range(steps):
            noise = torch.randn(24, 16, generator=self.draw)
            self.kept = self.agreement * self.kept + noise
            self.follow.set_rate()
            self.model.weight.grad = self.size(self.follow.step) * self.kept
            self.optimizer.step()
        return self

    def over(self, curve, start, stop):
        """Measured over wanted, root mean squares."""
        e = self.dynamics.drain().effective_lr[start:stop]
        wanted = [curve(step) for step in range(start, stop)]
        return math.sqrt(sum(v * v for v in e) / sum(v * v for v in wanted))


def flat(step):
    return 0.01


def test_the_measured_rate_follows_a_constant():
    assert Noise(flat).run(1200).over(flat, 200, 1200) == pytest.approx(1.0, abs=0.01)


def test_it_starts_right_where_gradients_are_independent():
    """The law and the start of the first moment are known before anything is measured."""
    assert Noise(flat).run(40).over(flat, 0, 40) == pytest.approx(1.0, abs=0.06)


def test_gradients_that_agree_need_not_be_known_beforehand():
    noise = Noise(flat, agreement=0.5).run(1200)

    assert noise.over(flat, 300, 1200) == pytest.approx(1.0, abs=0.015)
    # A = (1 + 0.45) / (1 - 0.45): the rate is lower by its root.
    assert math.exp(noise.follow.correction) == pytest.approx((0.55 / 1.45) ** 0.5, rel=0.08)


def test_a_curve_that_changes_is_followed_while_the_second_moment_forgets():
    """Gradients shrink to half in the first 300 steps, which beta2 = 0.999 remembers for long."""

    def cosine(step):
        return 0.005 * (1.2 + math.cos(math.pi * step / 3000))

    def shrinking(step):
        return 2 ** -min(1.0, step / 300)

    noise = Noise(cosine, size=shrinking, betas=(0.9, 0.999)).run(3000)
    e = noise.dynamics.drain().effective_lr

    gaps = []
    for start in range(150, 2850, 60):
        wanted = sum(cosine(s) ** 2 for s in range(start, start + 60))
        found = sum(v * v for v in e[start : start + 60])
        gaps.append(0.5 * math.log(found / wanted))
    assert math.sqrt(sum(gap * gap for gap in gaps) / len(gaps)) < 0.02


def test_noise_does_not_shake_the_rate():
    noise = Noise(flat).run(600)
    rates = []
    for _ in range(60):
        noise.run(10)
        rates.append(noise.follow.rate())

    mean = sum(rates) / len(rates)
    assert max(abs(rate / mean - 1) for rate in rates) < 0.05


def test_vectors_that_stop_moving_do_not_fling_the_rate_away():
    noise = Noise(flat, size=lambda step: 0.0 if 300 <= step < 400 else 1.0).run(400)

    # A few full corrections while the first moment fades, then a tenth of each.
    assert noise.follow.rate() < 0.0436 * 2.5
    noise.run(400)
    noise.dynamics.drain()
    noise.run(300)
    e = noise.dynamics.drain().effective_lr
    assert math.sqrt(sum(v * v for v in e) / 300) == pytest.approx(0.01, rel=0.03)


def test_a_step_at_which_nothing_should_move_moves_nothing():
    noise = Noise(lambda step: 0.0 if step < 5 else 0.01)
    before = noise.model.weight.clone()
    noise.run(5)

    torch.testing.assert_close(noise.model.weight, before, rtol=1e-6, atol=0)
    assert noise.run(5).follow.rate() > 0


def test_a_restart_goes_on_bit_for_bit():
    whole, first = Noise(flat).run(137), Noise(flat).run(73)
    second = Noise(flat)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.follow.load_state_dict(first.follow.state_dict())
    second.draw, second.kept = first.draw, first.kept
    second.run(64)

    assert torch.equal(second.model.weight, whole.model.weight)
    assert second.follow.state_dict().keys() == whole.follow.state_dict().keys()
    assert second.follow.rate() == whole.follow.rate()


def test_only_vectors_whose_size_the_loss_ignores_are_measured():
    from ndadam import probe

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 3))
    batch = (torch.randn(32, 8), torch.randint(3, (32,)))
    found = probe(model, batch, lambda m, b: functional.cross_entropy(m(b[0]), b[1]))
    optimizer = NDAdam(param_groups(model, alpha_v=0.05, alpha_s=0.01), betas=BETAS)
    follow = FollowCurve(model, optimizer, flat, probe=found)
    model[2].weight.grad = torch.randn(3, 6)  # the head alone moves

    follow.set_rate()
    optimizer.step()

    assert float(follow.state_dict()["moved"]) == 0.0


def scaled_run(fused, overflows, steps):
    """Rates that were set on the way; losses at ``overflows`` give no finite gradient.

    By torch's Adam, whose fused step unscales and skips by itself on a CPU too, as NDAdam's does on
    a CUDA device.
    """
    torch.manual_seed(0)
    model = nn.Linear(16, 24, bias=False)
    group = {"params": [model.weight], "vector_dim": 0}
    optimizer = torch.optim.Adam([group], betas=BETAS, fused=fused)
    follow = FollowCurve(model, optimizer, lambda step: 0.01 / (1 + step))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    draw, rates = torch.Generator().manual_seed(1), []
    for step in range(steps):
        follow.set_rate()
        rates.append(follow.last_rate)
        optimizer.zero_grad()
        bad = step in overflows
        noise = torch.full((24, 16), math.inf) if bad else torch.randn(24, 16, generator=draw)
        scaler.scale((model.weight * noise).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return rates, follow, model.weight.detach()


@pytest.mark.parametrize("overflows", [(0, 1), (3, 7, 8), (9,)])
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_is_none_whoever_skips_it(fused, overflows):
    kept, plain, weight = scaled_run(fused, (), 20 - len(overflows))
    rates, follow, found = scaled_run(fused, overflows, 20)

    assert follow.step == 20 - len(overflows)
    assert [rate for step, rate in enumerate(rates) if step not in overflows] == kept
    assert follow.state_dict() == plain.state_dict()
    assert torch.equal(found, weight)


def test_an_optimizer_without_weight_vectors_is_refused():
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="must be NDAdam with weight vectors"):
        FollowCurve(model, torch.optim.SGD(model.parameters()), flat)


@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, "0.01"])
def test_a_curve_that_is_no_rate_is_refused_before_it_reaches_a_weight(value):
    model = nn.Linear(3, 2)
    optimizer = NDAdam(param_groups(model))
    with pytest.raises(ValueError, match=r"curve must be a function of the step .* got 0.01"):
        FollowCurve(model, optimizer, 0.01)

    follow = FollowCurve(model, optimizer, lambda step: value)

    with pytest.raises(ValueError, match=r"curve must be finite and >= 0, got .* at step 0"):
        follow.set_rate()


def test_a_curve_may_give_numbers_of_numpy():
    model = nn.Linear(3, 2)
    rates = []
    for number in (float, np.float32):
        follow = FollowCurve(model, NDAdam(param_groups(model)), lambda step, of=number: of(0.125))
        rates.append(follow.rate())

    assert rates[0] == pytest.approx(rates[1], rel=1e-6)
    assert rates[0] > 0


def test_it_lets_go_when_told():
    noise = Noise(flat).run(3)
    noise.follow.detach()
    noise.run(2)

    assert noise.follow.step == 3
