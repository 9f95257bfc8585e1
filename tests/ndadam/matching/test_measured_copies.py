"""Copies of a loop with what measures and steers it: they go on, each on its own."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from ndadam import EffectiveLR, NDAdam, param_groups, setting_of_optimizer
from ndadam.matching.closed_loop import FollowCurve


def falling(step):
    return 0.01 / (1 + step)


class Loop:
    """A model with a step, and all that hangs on its optimizer."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(6, 4)
        self.optimizer = NDAdam(param_groups(self.model), betas=(0.5, 0.9))
        self.dynamics = EffectiveLR(self.model, self.optimizer, shadow_betas=(0.5, 0.9))
        self.follow = FollowCurve(self.model, self.optimizer, falling)

    def run(self, steps):
        for _ in range(steps):
            draw = torch.Generator().manual_seed(self.follow.step)
            self.follow.set_rate()
            for p in self.model.parameters():
                p.grad = torch.randn(p.shape, generator=draw)
            self.optimizer.step()
        return self


def saved(loop):
    file = io.BytesIO()
    torch.save(loop, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda loop: pickle.loads(pickle.dumps(loop)), saved]
)
def test_a_copy_of_the_whole_loop_goes_on_as_the_original_does(copied):
    loop = Loop().run(13)
    other = copied(loop)
    loop.run(12)
    record = loop.dynamics.drain()

    assert other.follow.step == 13
    other.run(12)
    assert torch.equal(other.model.weight, loop.model.weight)
    assert other.follow.state_dict() == loop.follow.state_dict()
    assert other.dynamics.gain() == loop.dynamics.gain()
    assert other.dynamics.drain().series() == record.series()
    assert len(record.steps) == 25
    assert loop.dynamics.drain().steps == []  # the original has not seen the copy's steps


def test_a_copy_of_what_was_detached_stays_detached():
    loop = Loop().run(2)
    loop.follow.detach()
    loop.dynamics.detach()

    other = copy.deepcopy(loop)
    for p in other.model.parameters():
        p.grad = torch.ones_like(p)
    other.optimizer.step()

    assert other.follow.step == 2
    assert len(other.dynamics.drain().steps) == 2
    other.dynamics.detach()


@pytest.mark.parametrize(
    "attached",
    [
        EffectiveLR,
        lambda model, optimizer: FollowCurve(model, optimizer, lambda step: math.pi),
        lambda model, optimizer: setting_of_optimizer(optimizer, model),
    ],
)
def test_a_model_without_weight_vectors_is_named_as_such(attached):
    """Its optimizer is the right one, which the message used to doubt."""
    model = weight_norm(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(
        ValueError, match=r"model must hold weight vectors .*describe_groups\(model\)"
    ):
        attached(model, optimizer)
