"""Measured dynamics: against brute force, against physics, and without disturbing the run."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import EffectiveLR, NDAdam, WideResNet, param_groups, probe, weight_vectors


def small_net(dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, eps=1e-12),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 2),
        nn.Flatten(),
        nn.Linear(75, 5),
    )
    return model.to(dtype)


def batches(n, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(8, 2, 6, 6, generator=generator, dtype=dtype),
            torch.randint(5, (8,), generator=generator),
        )
        for _ in range(n)
    ]


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def sgd(model, lr=0.1, weight_decay=1e-2, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)


def train(model, optimizer, data):
    """Weights before the first and after every step, and the gradients of every step."""
    weights, grads = [snapshot(model)], []
    for batch in data:
        optimizer.zero_grad()
        loss(model, batch).backward()
        grads.append([rows(v, v.parameter.grad) for v in weight_vectors(model)])
        optimizer.step()
        weights.append(snapshot(model))
    return weights, grads


def rows(v, tensor):
    return tensor.detach().movedim(v.vector_dim, 0).flatten(1).clone()


def snapshot(model):
    return [rows(v, v.parameter) for v in weight_vectors(model)]


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


def rms(values):
    return values.square().mean().sqrt().item()


def test_the_first_step_of_ndadam_turns_every_vector_by_arctan_lr():
    model = small_net()
    optimizer = NDAdam(param_groups(model, alpha_v=0.05))
    dynamics = EffectiveLR(model, optimizer)
    train(model, optimizer, batches(1))

    record = dynamics.drain()

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


def random_walk(steps, rho=0.0, lr=0.1, mu=0.9, decay=1e-3, betas=None, optimizer=None):
    """SGD on gradients that are noise orthogonal to w: autocorrelation rho, size 1 / ||w||."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(200, 20, bias=False).double()
    with torch.no_grad():
        # Equilibrium norm for unit gradients: (lr / (2 decay (1 - mu)))^(1/4), matching.md 1.4.
        norm = (lr / (2 * decay * (1 - mu))) ** 0.25
        model.weight.copy_(torch.randn(20, 200, generator=generator))
        model.weight.mul_(norm / torch.linalg.vector_norm(model.weight, dim=1, keepdim=True))
    made = optimizer(model) if optimizer else sgd(model, lr, decay, mu)
    dynamics = EffectiveLR(model, made, shadow_betas=betas)
    noise = torch.zeros(20, 200, dtype=torch.float64)
    for _ in range(steps):
        fresh = torch.randn(20, 200, generator=generator, dtype=torch.float64) / 200**0.5
        noise = rho * noise + (1 - rho**2) ** 0.5 * fresh
        w = model.weight.detach()
        ww = w.square().sum(1, keepdim=True)
        model.weight.grad = (noise - (noise * w).sum(1, keepdim=True) / ww * w) / ww.sqrt()
        made.step()
    return dynamics


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


def wrn_run(steps, use_probe, widen_factor=2):
    generator = torch.Generator().manual_seed(0)
    model = WideResNet(10, widen_factor, 5, generator=generator).double()
    x = torch.randn(8, 3, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (8,), generator=generator)
    groups = model.residual_groups()
    found = probe(model, (x, y), loss, groups) if use_probe else None
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, residual_groups=groups, probe=found)
    weights, _ = train(model, optimizer, [(x, y)] * steps)
    return model, groups, dynamics, weights


@pytest.mark.parametrize(("use_probe", "widen_factor"), [(True, 2), (False, 2), (True, 1)])
def test_vectors_of_one_residual_channel_enter_the_headline_together(use_probe, widen_factor):
    model, groups, dynamics, weights = wrn_run(2, use_probe, widen_factor)
    vectors = weight_vectors(model)
    number = {v.parameter: i for i, v in enumerate(vectors)}
    joint = {number[p] for stream in groups for p, _ in stream}
    head = len(vectors) - 1

    for t, headline in enumerate(dynamics.drain().effective_lr):
        qq = [(b - a).square().sum(1) for a, b in zip(weights[t], weights[t + 1], strict=True)]
        ww = [a.square().sum(1) for a in weights[t]]
        units = [
            sum(qq[number[p]] for p, _ in stream) / sum(ww[number[p]] for p, _ in stream)
            for stream in groups
        ]
        alone = [i for i in range(len(vectors)) if i not in joint and not (use_probe and i == head)]
        units += [qq[i] / ww[i] for i in alone]
        assert headline == pytest.approx(torch.cat(units).mean().sqrt().item(), rel=1e-10)


def test_with_a_probe_kappa_of_the_headline_vanishes():
    balance = wrn_run(20, use_probe=True)[2].balance()

    assert abs(balance.kappa) < 1e-3
    assert abs(balance.layers["conv3"]) > abs(balance.kappa)
    assert abs(balance.residual) < 1e-10


def test_streams_with_shifted_channels_are_grouped_by_channel():
    generator = torch.Generator().manual_seed(0)
    model = WideResNet(10, 2, 5, shortcut="pool_pad", generator=generator)
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, residual_groups=model.residual_groups())

    # 128 channels hold 224 vectors; the other 16 + 32 + 64 + 128 and the head's 5 are alone.
    assert dynamics._headline._num_units == 128 + 16 + 32 + 64 + 128 + 5


def test_when_no_vector_is_invariant_all_count():
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 5)).double()
    with torch.no_grad():
        model[1].weight.copy_(batches(1)[0][0][:5].flatten(1))
    found = probe(model, batches(1)[0], loss)
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, probe=found)
    train(model, optimizer, batches(2))
    record = dynamics.drain()

    assert "invariant" not in found.classes["linear1"]
    # Sums of the same numbers, whose order is the processor's.
    layer = record.layers["linear1"].effective_lr
    assert record.effective_lr == pytest.approx(layer, rel=1e-12)


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
        ({"shadow_betas": (1.0, 0.9)}, r"shadow_betas\[0\] must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments_are_refused(settings, message):
    model = small_net()

    with pytest.raises(ValueError, match=message):
        EffectiveLR(model, sgd(model), **settings)


def test_an_optimizer_without_weight_vectors_is_refused():
    model = small_net()
    optimizer = torch.optim.SGD([model[0].bias], lr=0.1)

    with pytest.raises(ValueError, match="no weight vectors"):
        EffectiveLR(model, optimizer)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_measuring_on_cuda_waits_for_nothing_and_equals_the_cpu():
    records = []
    for device in ("cpu", "cuda"):
        model = small_net().to(device)
        optimizer = sgd(model)
        dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.99))
        for x, y in batches(3):
            optimizer.zero_grad()
            loss(model, (x.to(device), y.to(device))).backward()
            if device == "cuda" and dynamics.step > 0:
                torch.cuda.set_sync_debug_mode("error")
            try:
                optimizer.step()
            finally:
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
        records.append(dynamics.drain())

    assert records[1].effective_lr == pytest.approx(records[0].effective_lr, rel=1e-6)
