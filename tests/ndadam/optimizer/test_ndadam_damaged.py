"""States that are damaged: refused by name and value, and the optimizer is as it was."""

import copy
import warnings

import numpy as np
import pytest
import torch

from ndadam import NDAdam, param_groups
from tests.ndadam.small_model import small_model, train

NAN, INF = float("nan"), float("inf")


def put(index, key, change):
    """Change one part of the saved state of one parameter."""

    def spoil(saved):
        state = saved["state"][index]
        value = change(state[key])
        state[key] = state[key] if value is None else value

    return spoil


def fill(place, value):
    def change(tensor):
        tensor[place] = value

    return change


def group(change):
    def spoil(saved):
        saved["param_groups"][0] = change(saved["param_groups"][0])

    return spoil


VECTORS, SCALARS = 0, 2  # 0.weight, and the first of those that are scalars
DAMAGES = {
    "negative step": (
        put(VECTORS, "step", lambda t: t - 3),
        r"step of 0\.weight .* >= 0, got -1\.0",
    ),
    "step nan": (
        put(VECTORS, "step", lambda t: t * NAN),
        r"step of 0\.weight must be a whole .* nan",
    ),
    "step inf": (put(VECTORS, "step", lambda t: t * INF), r"step of 0\.weight .* got inf"),
    "half a step": (put(VECTORS, "step", lambda t: t / 4), r"step of 0\.weight .* got 0\.5"),
    "number for a step": (put(VECTORS, "step", lambda t: -1), r"step of 0\.weight .* got -1\.0"),
    "text for a step": (put(VECTORS, "step", lambda t: "2"), "step of 0.weight .* tensor, got str"),
    "nan in a moment": (
        put(VECTORS, "exp_avg", fill((1, 0, 2, 2), NAN)),
        r"exp_avg of 0\.weight must be finite, .* has nan at \(1, 0, 2, 2\) \(of 1 such",
    ),
    "inf in a moment of scalars": (
        put(SCALARS, "exp_avg", fill(0, INF)),
        r"exp_avg of .* must be finite, the loaded state has inf at \(0,\)",
    ),
    "beyond float32": (
        put(VECTORS, "exp_avg", lambda t: t.double() * 1e300),
        r"exp_avg of 0\.weight must be finite",
    ),
    "negative second moment": (
        put(VECTORS, "exp_avg_sq", fill(2, -1.0)),
        r"exp_avg_sq of 0\.weight must be >= 0 and finite, .* has -1\.0 at \(2, 0, 0, 0\)",
    ),
    "nan in a second moment": (
        put(SCALARS, "exp_avg_sq", fill(1, NAN)),
        r"exp_avg_sq of .* must be >= 0, the loaded state has nan at \(1,\)",
    ),
    "infinite second moment of a vector": (
        put(VECTORS, "exp_avg_sq", fill(0, INF)),
        r"exp_avg_sq of 0\.weight .* has inf",
    ),
    "meta tensor": (
        put(VECTORS, "exp_avg", lambda t: t.to("meta")),
        r"exp_avg of 0\.weight in the loaded state has a shape and no numbers \(device meta\)",
    ),
    "numpy array": (
        put(VECTORS, "exp_avg", lambda t: t.numpy()),
        r"exp_avg of 0\.weight in the loaded state must be a tensor, got ndarray",
    ),
    "list": (put(VECTORS, "exp_avg_sq", lambda t: t.tolist()), "must be a tensor, got list"),
    "None": (put(VECTORS, "step", lambda t: {}), "must be a tensor, got dict"),
    "sparse": (put(VECTORS, "exp_avg", lambda t: t.to_sparse()), "dense .*, got torch.sparse_coo"),
    "complex": (put(VECTORS, "exp_avg", lambda t: t + 1j), "dense tensor of real .*complex64"),
    "missing moment": (
        lambda saved: saved["state"][VECTORS].pop("exp_avg"),
        r"state of 0\.weight has no exp_avg: it holds \['exp_avg_sq', 'step'\]",
    ),
    "other shape": (
        put(VECTORS, "exp_avg", lambda t: t[:1]),
        r"exp_avg of 0\.weight must have shape",
    ),
    "no dict for a parameter": (
        lambda saved: saved["state"].update({VECTORS: [1.0]}),
        r"state of 0\.weight must be a dict, got list",
    ),
    "empty group": (group(lambda g: {}), r"group 0 .* is damaged: it has no params, it holds \[\]"),
    "group without settings": (
        group(lambda g: {"params": g["params"]}),
        r"group 0 of the loaded state is damaged: it has no settings, it holds \['params'\]",
    ),
    "no group": (group(lambda g: 5), "group 0 of the loaded state must be a dict, got int"),
    "group without lr": (
        group(lambda g: {k: v for k, v in g.items() if k != "lr"}),
        "group 0 of the loaded state is damaged: it has no lr",
    ),
    "dimension that is not there": (
        group(lambda g: {**g, "vector_dim": 4}),
        r"vector_dim must be a dimension .* got 4 for 0\.weight",
    ),
    "rate nan": (group(lambda g: {**g, "lr": NAN}), "Invalid learning rate: nan"),
    "rate of text": (group(lambda g: {**g, "lr": "0.1"}), "lr must be a number, got '0.1'"),
    "amsgrad": (
        group(lambda g: {**g, "amsgrad": True}),
        "group 0 of the loaded state has amsgrad=True, which NDAdam does not have",
    ),
    "whole checkpoint": (
        lambda saved: saved.update(optimizer=saved.pop("param_groups")),
        r"the loaded state has no param_groups: it holds \['optimizer', 'state'\]",
    ),
}


def snapshot(optimizer):
    return copy.deepcopy(optimizer.state_dict())


def same(a, b):
    def flat(saved):
        return {(i, k): v for i, s in saved["state"].items() for k, v in s.items()}

    now, then = flat(a), flat(b)
    return (
        a["param_groups"] == b["param_groups"]
        and now.keys() == then.keys()
        and all(torch.equal(now[key], then[key]) for key in now)
    )


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_state_is_refused_by_name_and_leaves_the_optimizer_as_it_was(name):
    spoil, message = DAMAGES[name]
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    before, saved = snapshot(optimizer), snapshot(optimizer)
    spoil(saved)

    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(saved)

    assert same(snapshot(optimizer), before)
    train(model, optimizer, 1, start=2)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_what_is_no_dict_is_refused():
    with pytest.raises(ValueError, match="the loaded state must be a dict, got list"):
        NDAdam(param_groups(small_model())).load_state_dict([])


def test_what_a_step_leaves_in_the_moments_of_scalars_loads():
    """The square of a large gradient is inf, as in torch's Adam; its element rests."""
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer, other = NDAdam([p]), NDAdam([q])
    p.grad = torch.tensor([1.0, 1e30, 2.0])
    optimizer.step()

    other.load_state_dict(optimizer.state_dict())

    assert other.state[q]["exp_avg_sq"].isinf().tolist() == [False, True, False]


@pytest.mark.parametrize("count", [2, 2.0, np.float32(2)])
def test_older_states_with_a_number_for_a_step_load(count):
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    saved = snapshot(optimizer)
    for state in saved["state"].values():
        state["step"] = count

    optimizer.load_state_dict(saved)

    assert optimizer.state[model[0].weight]["step"].item() == 2


def test_a_state_of_numbers_loads_where_parameters_have_none():
    with torch.device("meta"):
        layer = torch.nn.Linear(4, 3)
    real = torch.nn.Linear(4, 3)
    saved_of, optimizer = NDAdam(param_groups(real)), NDAdam(param_groups(layer))
    real(torch.ones(2, 4)).sum().backward()
    saved_of.step()

    optimizer.load_state_dict(saved_of.state_dict())

    assert optimizer.state[layer.weight]["exp_avg"].is_meta


def test_keys_that_schedules_leave_load_without_a_warning_and_unknown_ones_with_one():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.1, 0.01], total_steps=9)
    saved = snapshot(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NDAdam(param_groups(small_model())).load_state_dict(saved)

    saved["param_groups"][1]["learning_rate"] = 0.5
    with pytest.warns(UserWarning, match="group 1 of the loaded state has learning_rate, which"):
        NDAdam(param_groups(small_model())).load_state_dict(saved)
