"""What torch's own tools expect of an optimizer: signature, hooks, schedulers, conversions."""

import inspect
import io

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.optim.swa_utils import AveragedModel, update_bn

from ndadam import NDAdam, param_groups
from tests.ndadam.small_model import small_model, train, weights


def test_the_arguments_are_torchs_with_the_vectors_in_between():
    parameters = inspect.signature(NDAdam).parameters
    theirs = inspect.signature(torch.optim.Adam).parameters
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    assert positional == ["params", "lr", "betas", "eps", "vector_dim", "weight_decay"]
    keywords = {n: p.default for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords == {"maximize": False, "capturable": False, "foreach": None, "fused": None}
    assert set(parameters) - {"vector_dim"} <= set(theirs)
    assert all(theirs[name].default == default for name, default in keywords.items())
    defaults = NDAdam([nn.Parameter(torch.ones(2))]).defaults
    assert set(defaults) == set(parameters) - {"params"}


@pytest.mark.filterwarnings("ignore:lr=0.1 has no effect")
def test_a_group_takes_its_own_settings_and_the_defaults_for_the_rest():
    vectors, scalars = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    optimizer = NDAdam([{"params": vectors, "vector_dim": 0, "lr": 0.3}], lr=0.1, eps=1e-6)
    optimizer.add_param_group({"params": [scalars], "betas": (0.5, 0.6)})

    keys = ("vector_dim", "lr", "eps", "betas")
    assert [tuple(group[key] for key in keys) for group in optimizer.param_groups] == [
        (0, 0.3, 1e-6, (0.9, 0.999)),
        (None, 0.1, 1e-6, (0.5, 0.6)),
    ]


def test_printing_it_shows_every_group():
    text = repr(NDAdam(param_groups(nn.Linear(3, 2), alpha_v=0.3)))

    assert text.startswith("NDAdam (")
    assert "lr: 0.3" in text
    assert "vector_dim: 0" in text
    assert "Parameter Group 1" in text


def test_hooks_run_around_each_step_and_the_profiler_names_it():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    calls = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: calls.append("before")),
        optimizer.register_step_post_hook(lambda *_: calls.append("after")),
        register_optimizer_step_pre_hook(lambda *_: calls.append("before any")),
        register_optimizer_step_post_hook(lambda *_: calls.append("after any")),
    ]
    with torch.profiler.profile(acc_events=True) as profile:  # torch 2.11 warns without it
        train(model, optimizer, 1)
    for handle in handles:
        handle.remove()
    train(model, optimizer, 1)

    assert sorted(calls) == ["after", "after any", "before", "before any"]
    assert calls.index("before") < calls.index("after")
    assert "Optimizer.step#NDAdam.step" in {event.key for event in profile.key_averages()}


SCHEDULES = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=[0.1, 0.05, 0.01], total_steps=20),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 0.1, step_size_up=4, cycle_momentum=False),
    "cosine restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=5),
    "warm-up, then cosine": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 10)],
        milestones=[3],
    ),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
}


@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_moves_the_rates_that_the_steps_use(name, as_tensor):
    """Beside an optimizer whose rates are set by hand to what the schedule has left in the groups.

    A schedule fills a rate that is a tensor in place.
    """
    models = small_model(torch.float64), small_model(torch.float64)
    optimizers = [NDAdam(param_groups(model)) for model in models]
    if as_tensor:
        for group in optimizers[0].param_groups:
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
    schedule = SCHEDULES[name](optimizers[0])
    rates = []
    for step in range(8):
        for ours, theirs in zip(*(o.param_groups for o in optimizers), strict=True):
            theirs |= {"lr": float(ours["lr"]), "betas": ours["betas"]}
        rates.append(float(optimizers[0].param_groups[0]["lr"]))
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer, 1, start=step)
        schedule.step(1.0) if name == "plateau" else schedule.step()

    assert len(set(rates)) > 3
    for p, q in zip(*map(weights, models), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)
    assert isinstance(optimizers[0].param_groups[0]["lr"], torch.Tensor) is as_tensor


def test_a_schedule_goes_on_from_a_checkpoint():
    def make():
        model = small_model()
        optimizer = NDAdam(param_groups(model))
        return model, optimizer, lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def run(parts, steps, start=0):
        for step in range(start, start + steps):
            train(parts[0], parts[1], 1, start=step)
            parts[2].step()

    whole, first, second = make(), make(), make()
    run(whole, 6)
    run(first, 3)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in first], file)
    file.seek(0)
    for part, saved in zip(second, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(saved)
    run(second, 3, start=3)

    assert second[1].param_groups[0]["lr"] == whole[1].param_groups[0]["lr"]
    assert all(
        torch.equal(p, q) for p, q in zip(weights(second[0]), weights(whole[0]), strict=True)
    )


@pytest.mark.parametrize("swap", [False, True])
def test_a_model_converted_after_steps_goes_on_as_if_it_had_not_been(swap):
    """By assigning to ``.data`` or by ``torch.utils.swap_tensors``; parameters stay the same."""
    model, other = small_model(), small_model()
    optimizer, plain = NDAdam(param_groups(model)), NDAdam(param_groups(other))
    train(model, optimizer, 2)
    train(other, plain, 2)
    model.zero_grad()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        model.to(memory_format=torch.channels_last)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    train(model, optimizer, 2, start=2)
    train(other, plain, 2, start=2)

    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    for p, q in zip(weights(model), weights(other), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


def test_a_step_per_parameter_inside_backward_equals_one_after_it():
    """Each parameter has an optimizer of its own, run by a hook when its gradient is ready."""
    models = [nn.Linear(4, 3, bias=False).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    inside, after = (NDAdam(m.parameters(), vector_dim=0) for m in models)

    def step(p):
        inside.step()
        inside.zero_grad()

    models[0].weight.register_post_accumulate_grad_hook(step)
    for seed in range(3):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for model in models:
            model(x).square().mean().backward()
        after.step()
        after.zero_grad()

    assert models[0].weight.grad is None
    assert torch.equal(models[0].weight, models[1].weight)


def test_averaged_weights_are_shorter_and_compute_the_same_where_a_normalisation_follows():
    """The caveat of the guide: an average of unit vectors is inside the sphere."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5, eps=1e-12)).double()
    optimizer = NDAdam(param_groups(model, alpha_v=0.5))
    averaged = AveragedModel(model)
    x = torch.randn(40, 6, dtype=torch.float64)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) * torch.randn(40, 5, dtype=torch.float64)).mean().backward()
        optimizer.step()
        averaged.update_parameters(model)
    update_bn([x], averaged)
    averaged.eval()
    before = averaged(x)

    rows = averaged.module[0].weight
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    assert norms.max() < 0.999
    with torch.no_grad():
        rows.div_(norms)
    update_bn([x], averaged)
    averaged.eval()
    torch.testing.assert_close(averaged(x), before, rtol=0, atol=1e-6)


def test_the_gradients_norm_may_be_clipped_and_changes_no_first_step():
    """ND-Adam does not see the size of a gradient, which clipping changes."""
    models = small_model(torch.float64), small_model(torch.float64)
    for model, largest in zip(models, (1e-3, None), strict=True):
        optimizer = NDAdam(param_groups(model), eps=0.0)
        for i, p in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(i)
            p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        if largest is not None:
            nn.utils.clip_grad_norm_(model.parameters(), largest)
        optimizer.step()

    for p, q in zip(*map(weights, models), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)
