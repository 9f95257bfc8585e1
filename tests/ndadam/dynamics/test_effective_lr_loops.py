"""Dynamics measured in loops of which torch does a part: loss scaling, compilation."""

import copy

import pytest
import torch
from torch import nn

from ndadam import EffectiveLR, LogitMagnitude, NDAdam, param_groups
from ndadam.matching.closed_loop import FollowCurve
from tests.ndadam.dynamics.moving_weights import batches, loss, small_net, train

# Two that unscale gradients and skip steps by themselves, as every fused one does on a card.
FUSED = {
    "sgd": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2, fused=True
    ),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
}


def fresh_counter():
    """Counts what torch's compiler compiles from now on; its import takes seconds."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    return CompileCounter()


@pytest.mark.parametrize("name", FUSED)
def test_what_a_gradient_scaler_does_inside_a_fused_step_is_not_measured(name):
    """Gradients are those of the loss, and a step that the scaler skips enters no average."""
    model, other = small_net(), small_net()
    scaled, plain = FUSED[name](model), FUSED[name](other)
    dynamics = EffectiveLR(model, scaled, shadow_betas=(0.5, 0.9))
    expected = EffectiveLR(other, plain, shadow_betas=(0.5, 0.9))
    data = batches(16)
    train(other, plain, data)

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    steps = [*data[:13], data[0], *data[13:]]
    for step, batch in enumerate(steps):
        scaled.zero_grad()
        scaler.scale(loss(model, batch) * (float("inf") if step == 13 else 1)).backward()
        scaler.step(scaled)
        scaler.update()

    record, wanted = dynamics.drain().series(), expected.drain().series()
    assert set(record) == set(wanted)
    for quantity, values in record.items():
        skipped = values.pop(13)
        assert values == pytest.approx(wanted[quantity], rel=1e-9, abs=1e-12), quantity
        if quantity.startswith(("effective_lr", "radial_gradient", "shadow_step")):
            assert skipped == 0
    gain, wanted_gain = dynamics.gain(), expected.gain()
    assert gain.steps == wanted_gain.steps
    assert gain.overall == pytest.approx(wanted_gain.overall, rel=1e-9)
    if name == "sgd":
        assert dynamics.balance().kappa == pytest.approx(expected.balance().kappa, rel=1e-9)
        assert dynamics.balance().residual == pytest.approx(0, abs=1e-9)


def test_gradients_that_the_user_has_unscaled_are_not_unscaled_again():
    model, other = small_net(), small_net()
    scaled, plain = FUSED["adamw"](model), FUSED["adamw"](other)
    dynamics, expected = EffectiveLR(model, scaled), EffectiveLR(other, plain)
    train(other, plain, batches(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss(model, batches(1)[0])).backward()
    scaler.unscale_(scaled)
    scaler.step(scaled)

    assert dynamics.drain().series() == {
        key: pytest.approx(values, rel=1e-9, abs=1e-12)
        for key, values in expected.drain().series().items()
    }


def test_a_vector_that_sits_a_step_out_leaves_the_shadow_moments_alone():
    """The shadow of ND-Adam on its own gradients is its own first moment."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3, bias=False)
    optimizer = NDAdam(param_groups(model), betas=(0.5, 0.9))
    dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.5, 0.9))
    for step in range(16):
        model.weight.grad = torch.randn(3, 6)
        if step == 12:
            model.weight.grad[1, 2] = float("nan")
        optimizer.step()

    own = optimizer.state[model.weight]["exp_avg"]
    shadow = dynamics.state_dict()["shadow"]["exp_avg"].view(3, 6)
    torch.testing.assert_close(shadow, own, rtol=1e-4, atol=1e-5)
    assert all(0.3 < step < 2 for step in dynamics.drain().shadow_step[8:])
    assert 0.2 < dynamics.gain().overall < 3


# Dynamo says that the profiler's names are not part of a graph.
@pytest.mark.filterwarnings("ignore:.*record_function.*")
def test_a_compiled_step_that_is_measured_and_steered_compiles_nothing_new():
    counter = fresh_counter()
    models = [nn.Linear(5, 4) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [NDAdam(param_groups(m)) for m in models]
    records = [
        EffectiveLR(m, o, shadow_betas=(0.5, 0.9)) for m, o in zip(models, optimizers, strict=True)
    ]
    loops = [FollowCurve(m, o, lambda _: 0.01) for m, o in zip(models, optimizers, strict=True)]
    x = torch.randn(8, 5)

    def train_step(model, optimizer):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    compiled = torch.compile(train_step, backend=counter)
    for step in range(12):
        for loop in loops:
            loop.set_rate()
        compiled(models[0], optimizers[0])
        train_step(models[1], optimizers[1])
        if step == 2:
            graphs = counter.frame_count

    assert counter.frame_count == graphs
    measured, expected = (r.drain().effective_lr for r in records)
    assert measured == pytest.approx(expected, rel=1e-4)


def test_logits_of_a_compiled_model_are_recorded_without_a_graph_per_pass():
    counter = fresh_counter()
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    other = copy.deepcopy(model)
    records = LogitMagnitude(model[2]), LogitMagnitude(other)
    compiled = torch.compile(model, backend=counter)
    for step in range(6):
        x = torch.randn(5, 4)
        compiled(x)
        other(x)
        if step == 1:
            graphs = counter.frame_count

    assert counter.frame_count == graphs
    assert records[0].drain() == pytest.approx(records[1].drain(), rel=1e-5)
