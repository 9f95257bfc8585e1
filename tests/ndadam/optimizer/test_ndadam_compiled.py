"""The step under torch.compile: the same numbers, and no compilation per value or per shape."""

import os
import shutil
import warnings

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from ndadam import NDAdam, param_groups
from tests.ndadam.small_model import small_model, weights

# Dynamo says that the profiler's names are not part of a graph.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*record_function.*"),
    pytest.mark.filterwarnings("ignore:a compiled NDAdam.step does not use the fused kernel"),
]


def random_gradients(model, other, step):
    generator = torch.Generator().manual_seed(step)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.grad, q.grad = grad.to(p.dtype), grad.to(p.dtype)


class Pair:
    """A model whose step is compiled beside its copy whose step is not."""

    def __init__(self, dtype=torch.float64, backend=None, **settings):
        torch._dynamo.reset()
        self.counter = CompileCounter()
        self.models = small_model(dtype), small_model(dtype)
        self.optimizers = [
            NDAdam(param_groups(m, weight_decay=0.01), **settings) for m in self.models
        ]
        self._step = None
        self._backend = backend or self.counter

    def step(self, seed):
        if self._step is None:  # after the schedules, which watch whether ``step`` is called
            self._step = torch.compile(self.optimizers[0].step, backend=self._backend)
        random_gradients(*self.models, seed)
        self._step()
        self.optimizers[1].step()

    def assert_equal(self, **tolerance):
        for p, q in zip(*map(weights, self.models), strict=True):
            torch.testing.assert_close(p, q, **tolerance)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "maximize"),
    [
        (torch.float64, 1e-12, False),
        (torch.float64, 1e-12, True),
        (torch.float32, 1e-6, False),
        (torch.bfloat16, 1e-2, False),
    ],
)
def test_a_compiled_step_equals_the_others(dtype, tolerance, maximize):
    pair = Pair(dtype, maximize=maximize)

    for step in range(10):
        pair.step(step)

    pair.assert_equal(rtol=0, atol=tolerance)
    states = [o.state_dict()["state"] for o in pair.optimizers]
    assert [s["step"] for s in states[0].values()] == [s["step"] for s in states[1].values()]


def test_a_schedule_of_rates_and_betas_compiles_nothing_new():
    """One graph before the numbers of the step are made, one for all parameters of all shapes."""
    pair = Pair()
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(o, max_lr=[0.1, 0.1, 0.01], total_steps=30)
        for o in pair.optimizers
    ]
    pair.step(0)
    compiled = pair.counter.frame_count

    for step in range(1, 20):
        for schedule in schedules:
            schedule.step()
        pair.step(step)

    assert 1 <= compiled <= 2
    assert pair.counter.op_count > 100  # it is the step that was compiled
    assert pair.counter.frame_count == compiled
    pair.assert_equal(rtol=0, atol=1e-12)


def test_a_number_assigned_over_a_tensor_compiles_nothing_new():
    pair = Pair()
    for optimizer in pair.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(0.03, dtype=torch.float64)
    pair.step(0)
    compiled = pair.counter.frame_count

    for step, lr in enumerate([0.02, torch.tensor(0.01, dtype=torch.float64), 0.005], start=1):
        for optimizer in pair.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
        pair.step(step)

    assert pair.counter.frame_count == compiled
    pair.assert_equal(rtol=0, atol=1e-12)


def test_a_plateau_schedule_compiles_nothing_new():
    pair = Pair()
    schedules = [torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0) for o in pair.optimizers]
    pair.step(0)
    compiled = pair.counter.frame_count

    for step in range(1, 6):
        for schedule in schedules:
            schedule.step(1.0)
        pair.step(step)

    assert pair.optimizers[0].param_groups[0]["lr"] < 0.05 / 100
    assert pair.counter.frame_count == compiled
    pair.assert_equal(rtol=0, atol=1e-12)


def test_a_broken_gradient_is_left_alone_and_counted():
    pair = Pair()
    pair.step(0)
    before = weights(pair.models[0])
    random_gradients(*pair.models, 1)
    for model in pair.models:
        model[0].weight.grad[1, 0, 0, 0] = float("nan")
        model[2].weight.grad[:, 2].fill_(float("inf"))

    pair._step()
    pair.optimizers[1].step()

    after = weights(pair.models[0])
    assert torch.equal(after[0][1], before[0][1])
    assert torch.equal(after[4][:, 2], before[4][:, 2])
    pair.assert_equal(rtol=0, atol=1e-12)
    skipped = [optimizer.skipped_vectors() for optimizer in pair.optimizers]
    assert skipped[0] == skipped[1]
    assert list(skipped[0].values()) == [1, 1]


def test_a_parameter_that_joins_late_compiles_once_more_and_counts_its_own_steps():
    pair = Pair()
    for model in pair.models:
        model[0].weight.requires_grad_(False)
    for step in range(6):
        random_gradients(*pair.models, step)
        for model in pair.models:
            if step < 3:
                model[0].weight.grad = None
        if pair._step is None:
            pair._step = torch.compile(pair.optimizers[0].step, backend=pair.counter)
        pair._step()
        pair.optimizers[1].step()
        if step == 2:
            compiled = pair.counter.frame_count

    assert pair.counter.frame_count == compiled + 1
    assert pair.optimizers[0].state[pair.models[0][0].weight]["step"].item() == 3
    pair.assert_equal(rtol=0, atol=1e-12)


def test_a_whole_compiled_training_step_trains_like_an_eager_one():
    torch._dynamo.reset()
    models = [nn.Linear(5, 4), nn.Linear(5, 4)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [NDAdam(param_groups(m)) for m in models]
    x = torch.randn(8, 5)

    def train(model, optimizer):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    compiled = torch.compile(train, backend="eager")
    for _ in range(5):
        compiled(models[0], optimizers[0])
        train(models[1], optimizers[1])

    for p, q in zip(*map(weights, models), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


def test_what_a_compiled_step_leaves_behind_goes_on_without_it():
    pair = Pair()
    pair.step(0)
    saved = pair.optimizers[0].state_dict()
    pair.optimizers[1].load_state_dict(saved)
    random_gradients(*pair.models, 1)
    for optimizer in pair.optimizers:
        optimizer.step()

    pair.assert_equal(rtol=0, atol=1e-12)


@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler"
)
def test_the_default_compiler_gives_the_same_step():
    """Fused multiply-adds of generated code round differently in the last bits."""
    pair = Pair(torch.float32, backend="inductor")
    pair.models = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
    pair.models[1].load_state_dict(pair.models[0].state_dict())
    pair.optimizers = [NDAdam(param_groups(m)) for m in pair.models]

    for step in range(3):
        pair.step(step)

    pair.assert_equal(rtol=0, atol=1e-6)


def test_a_compiled_step_in_place_of_a_fused_one_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(NDAdam, "_would_be_fused", lambda self, pairs, group: True)
    pair = Pair(torch.float32)

    with pytest.warns(UserWarning, match="leave optimizer.step out of torch.compile"):
        pair.step(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a compiled NDAdam.step")
        pair.step(1)
