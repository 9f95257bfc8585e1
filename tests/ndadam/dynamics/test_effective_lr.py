"""Measured dynamics: against brute force, and without disturbing the run."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import EffectiveLR, NDAdam, param_groups
from tests.ndadam.dynamics.moving_weights import batches, loss, rms, sgd, small_net, train

OPTIMIZERS = {
    "sgd": sgd,
    "plain sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "ndadam": lambda model: NDAdam(param_groups(model)),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.001),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_records_equal_brute_force_for_every_optimizer(name):
    model = small_net()
    optimizer = OPTIMIZERS[name](model)
    dynamics = EffectiveLR(model, optimizer)
    weights, grads = train(model, optimizer, batches(4))

    record = dynamics.drain()

    assert record.steps == [0, 1, 2, 3]
    assert list(record.layers) == ["conv1", "conv2", "linear1"]
    for t in range(4):
        relative = []
        for i, layer in enumerate(record.layers.values()):
            before, after, grad = weights[t][i], weights[t + 1][i], grads[t][i]
            norm = torch.linalg.vector_norm(before, dim=1)
            effective = torch.linalg.vector_norm(after - before, dim=1) / norm
            relative.append(effective)
            angle = torch.acos(functional.cosine_similarity(before, after).clamp(max=1))
            radial = (grad * before).sum(1) / norm.square()
            assert layer.effective_lr[t] == pytest.approx(rms(effective), rel=1e-10)
            assert layer.weight_norm[t] == pytest.approx(rms(norm), rel=1e-10)
            assert layer.angular_update[t] == pytest.approx(rms(angle), rel=1e-6)
            assert layer.radial_gradient[t] == pytest.approx(
                radial.mean().item(), rel=1e-8, abs=1e-12
            )
        assert record.effective_lr[t] == pytest.approx(rms(torch.cat(relative)), rel=1e-10)


def test_the_first_step_of_ndadam_turns_every_vector_by_arctan_lr():
    model = small_net()
    optimizer = NDAdam(param_groups(model, alpha_v=0.05))
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(1))

    record = dynamics.drain()

    assert list(record.layers) == ["conv1", "conv2", "linear1"]
    for layer in record.layers.values():
        assert layer.angular_update[0] == pytest.approx(math.atan(0.05), rel=1e-5)
        assert layer.effective_lr[0] == pytest.approx(2 * math.sin(math.atan(0.05) / 2), rel=1e-5)
        assert layer.weight_norm[0] == pytest.approx(1, abs=1e-12)


def test_measuring_changes_no_bit_of_the_run():
    models = [small_net(torch.float32) for _ in range(2)]
    optimizers = [sgd(model) for model in models]
    EffectiveLR(models[0], optimizers[0], shadow_betas=(0.9, 0.99))
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, batches(5, torch.float32))

    assert all(
        torch.equal(a, b)
        for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True)
    )


def test_small_angles_keep_their_digits_in_float32():
    model = nn.Linear(50, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    dynamics = EffectiveLR(model, optimizer)
    w = model.weight.detach().clone()
    sideways = torch.randn(4, 50)
    sideways -= (sideways * w).sum(1, keepdim=True) / w.square().sum(1, keepdim=True) * w
    scale = torch.linalg.vector_norm(w, dim=1) / torch.linalg.vector_norm(sideways, dim=1)
    model.weight.grad = 1e-4 * scale[:, None] * sideways
    optimizer.step()

    # 1e-4 radians: its cosine differs from 1 by less than float32 resolves.
    assert dynamics.drain().layers["linear1"].angular_update[0] == pytest.approx(1e-4, rel=1e-3)


def test_every_second_step_and_pauses():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, every=2, first_step=10)
    train(model, optimizer, batches(3))
    dynamics.recording = False
    train(model, optimizer, batches(2))
    dynamics.recording = True
    train(model, optimizer, batches(2))

    assert dynamics.drain().steps == [10, 12, 16]
    assert dynamics.drain().steps == []
    assert dynamics.step == 17


def test_detached_it_measures_no_more():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(1))
    dynamics.detach()
    train(model, optimizer, batches(1))

    assert dynamics.drain().steps == [0]


def test_groups_that_are_added_later_are_not_measured_and_that_is_said_once():
    model = small_net()
    first, *others = [p for p in model.parameters() if p.dim() > 1]
    optimizer = torch.optim.SGD([first], lr=0.1)
    dynamics = EffectiveLR(model, optimizer)
    optimizer.add_param_group({"params": [p for p in model.parameters() if p.dim() == 1]})
    train(model, optimizer, batches(1))  # none of these is measured, so there is nothing to say
    optimizer.add_param_group({"params": others})
    message = r"param_groups\[2\] was added to the optimizer after EffectiveLR was attached"
    with pytest.warns(UserWarning, match=message):
        train(model, optimizer, batches(1))
    train(model, optimizer, batches(1))  # a second warning would be an error

    assert len(dynamics.drain().layers) == 1


def test_gradients_computed_in_a_closure_are_the_ones_measured():
    model, other = small_net(), small_net()
    optimizer, other_optimizer = sgd(model), sgd(other)
    dynamics, expected = EffectiveLR(model, optimizer), EffectiveLR(other, other_optimizer)
    train(other, other_optimizer, batches(2))
    for batch in batches(2):

        def closure(batch=batch):
            optimizer.zero_grad()
            value = loss(model, batch)
            value.backward()
            return value

        optimizer.step(closure)

    assert dynamics.drain() == expected.drain()


def test_unused_parameters_count_as_resting():
    model = small_net()
    optimizer = sgd(model, weight_decay=0.0)
    dynamics = EffectiveLR(model, optimizer)
    model[5].weight.requires_grad_(False)
    train_grads = batches(1)[0]
    loss(model, train_grads).backward()
    optimizer.step()

    record = dynamics.drain()

    assert record.layers["linear1"].effective_lr == [0.0]
    assert record.layers["linear1"].radial_gradient == [0.0]
    assert record.layers["conv1"].effective_lr[0] > 0


def test_flat_names_of_all_series():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(2))

    series = dynamics.drain().series()

    assert {len(values) for values in series.values()} == {2}
    quantities = {
        "effective_lr",
        "angular_update",
        "weight_norm",
        "radial_gradient",
        "projection_ratio",
        "projection_ratio_on_w",
    }
    assert set(series) == {"effective_lr"} | {
        f"{q}/{layer}" for q in quantities for layer in ("conv1", "conv2", "linear1")
    }


def test_the_projection_ratio_equals_a_split_momentum_buffer():
    model = small_net()
    mu, decay, lr = 0.9, 1e-2, 0.1
    optimizer = sgd(model, lr=lr, weight_decay=decay, momentum=mu)
    dynamics = EffectiveLR(model, optimizer)
    weights, grads = train(model, optimizer, batches(5))
    record = dynamics.drain()

    assert len(record.layers) == 3
    for i, layer in enumerate(record.layers.values()):
        from_loss = torch.zeros_like(weights[0][i])
        from_decay = torch.zeros_like(weights[0][i])
        for t in range(5):
            w = weights[t][i]
            from_loss = mu * from_loss + grads[t][i]
            from_decay = mu * from_decay + decay * w
            dw_l, dw_p = -lr * from_loss, -lr * from_decay
            on_p = (dw_l * dw_p).sum(1) / dw_p.square().sum(1)
            on_w = (dw_l * w).sum(1) / (dw_p * w).sum(1)
            assert layer.projection_ratio[t] == pytest.approx(
                on_p.mean().item(), rel=1e-7, abs=1e-9
            )
            assert layer.projection_ratio_on_w[t] == pytest.approx(
                on_w.mean().item(), rel=1e-7, abs=1e-9
            )


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    ],
)
def test_projection_and_balance_are_for_plain_sgd_with_decay_only(optimizer):
    model = small_net()
    made = optimizer(model.parameters())
    dynamics = EffectiveLR(model, made)
    train(model, made, batches(3))

    assert dynamics.balance() is None
    assert dynamics.drain().layers["conv1"].projection_ratio == []


def test_going_on_from_a_checkpoint_equals_never_having_stopped():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.5, 0.9))
    train(model, optimizer, batches(20))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), dynamics.state_dict()))
    train(model, optimizer, batches(20))

    other = small_net()
    other_optimizer = sgd(other)
    resumed = EffectiveLR(other, other_optimizer, shadow_betas=(0.5, 0.9))
    other.load_state_dict(saved[0])
    other_optimizer.load_state_dict(saved[1])
    resumed.load_state_dict(saved[2])
    train(other, other_optimizer, batches(20))

    assert resumed.gain() == dynamics.gain()
    assert resumed.balance() == dynamics.balance()
    assert resumed.drain() == dynamics.drain()


def test_a_state_with_other_parts_is_refused():
    model = small_net()
    saved = EffectiveLR(model, sgd(model), shadow_betas=(0.5, 0.9)).state_dict()
    adam = torch.optim.Adam(model.parameters())

    with pytest.raises(ValueError, match="has no averages, the state has balance, shadow, split"):
        EffectiveLR(model, adam).load_state_dict(saved)


def test_channels_last_weights_are_measured_alike():
    models = [small_net(), small_net().to(memory_format=torch.channels_last)]
    records = []
    for model in models:
        optimizer = sgd(model)
        dynamics = EffectiveLR(model, optimizer)
        train(model, optimizer, batches(3))
        records.append(dynamics.drain())

    assert records[0].effective_lr == pytest.approx(records[1].effective_lr, rel=1e-9)


def test_half_precision_weights_are_measured_in_float32():
    model = nn.Linear(8, 4, bias=False).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dynamics = EffectiveLR(model, optimizer)
    before = model.weight.detach().float()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()

    moved = torch.linalg.vector_norm(model.weight.detach().float() - before, dim=1)
    expected = rms(moved / torch.linalg.vector_norm(before, dim=1))
    assert dynamics.drain().effective_lr[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every must be >= 1, got 0"),
        ({"every": 1.5}, "every must be a whole number of steps, got 1.5"),
        ({"shadow_betas": (1.0, 0.9)}, r"shadow_betas\[0\] must be in \[0, 1\), got 1.0"),
        ({"shadow_betas": (0.9,)}, r"shadow_betas must be two numbers in \[0, 1\), got \(0.9,\)"),
        ({"shadow_betas": 0.9}, r"shadow_betas must be two numbers in \[0, 1\), got 0.9"),
        ({"shadow_betas": (0.9, "a")}, r"shadow_betas\[1\] must be in \[0, 1\), got a"),
    ],
)
def test_bad_arguments_are_refused(settings, message):
    model = small_net()

    with pytest.raises(ValueError, match=message):
        EffectiveLR(model, sgd(model), **settings)


def test_steps_before_a_run_may_count_below_0():
    model = small_net()
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, every=3, first_step=-2)
    train(model, optimizer, batches(6))

    assert dynamics.drain().steps == [0, 3]


def test_an_optimizer_without_weight_vectors_is_refused():
    model = small_net()
    optimizer = torch.optim.SGD([model[0].bias], lr=0.1)

    with pytest.raises(ValueError, match="trains none of the 3 parameters that have any"):
        EffectiveLR(model, optimizer)


def test_sparse_gradients_are_measured():
    embedding = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
    dynamics = EffectiveLR(embedding, optimizer)
    before = embedding.weight.detach().clone()
    embedding(torch.tensor([1])).sum().backward()
    optimizer.step()

    turned = (embedding.weight.detach() - before).norm(dim=1) / before.norm(dim=1)
    record = dynamics.drain()
    assert record.effective_lr == pytest.approx([turned.square().mean().sqrt().item()])
    radial = before[1].sum() / before[1].square().sum()
    assert record.layers["embedding1"].radial_gradient == pytest.approx([radial.item() / 3])


def test_what_is_no_model_is_refused():
    model = small_net()

    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got SGD"):
        EffectiveLR(sgd(model), model)
