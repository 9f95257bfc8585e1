"""What a saved state may hold: other models, groups, copies and optimizers."""

import copy

import pytest
import torch

from ndadam import NDAdam, param_groups
from tests.ndadam.small_model import equal, small_model, train, weights


def test_state_of_other_shapes_is_refused_by_name():
    p, q = torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3, 4))
    scalars = NDAdam([{"params": [p], "vector_dim": None}])
    p.grad = torch.randn(3, 4)
    scalars.step()
    saved = scalars.state_dict()
    saved["param_groups"][0]["vector_dim"] = 0

    with pytest.raises(ValueError, match=r"exp_avg_sq of parameter 0 .* must have shape \(3, 1\)"):
        NDAdam([q], vector_dim=0).load_state_dict(saved)


@pytest.mark.parametrize("spoil", ["shape", "setting", "groups", "kind"])
def test_a_state_that_is_refused_leaves_the_optimizer_as_it_was(spoil):
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    before = copy.deepcopy(optimizer.state_dict())
    saved = copy.deepcopy(before)
    saved["param_groups"][0]["lr"] = 0.5
    saved["state"][0]["exp_avg"].zero_()
    if spoil == "shape":
        saved["state"][2]["exp_avg"] = torch.zeros(7)
    elif spoil == "setting":
        saved["param_groups"][1]["betas"] = (0.9, 2.0)
    elif spoil == "kind":
        saved["state"][2]["exp_avg"] = "moments"
    else:
        saved["param_groups"].pop()

    with pytest.raises(
        (ValueError, TypeError),
        match=r"must have shape|Invalid beta|number of parameter groups|must be a tensor, got str",
    ):
        optimizer.load_state_dict(saved)

    now = optimizer.state_dict()
    assert now["param_groups"] == before["param_groups"]
    for i, state in before["state"].items():
        assert all(torch.equal(now["state"][i][key], value) for key, value in state.items())


def test_hooks_on_loading_change_what_is_loaded_and_see_what_has_been():
    """Also in half precision, where torch would have rounded the moments by then."""
    model = small_model(torch.bfloat16)
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    saved = optimizer.state_dict()
    weight = model[0].weight
    expected = optimizer.state[weight]["exp_avg"] * 3
    seen = []

    def triple(_, state_dict):
        state = {i: dict(s) for i, s in state_dict["state"].items()}
        state[0]["exp_avg"] = state[0]["exp_avg"] * 3
        return {**state_dict, "state": state}

    optimizer.register_load_state_dict_pre_hook(triple)
    optimizer.register_load_state_dict_post_hook(
        lambda loaded: seen.append(loaded.state[weight]["exp_avg"])
    )
    optimizer.load_state_dict(saved)

    assert len(seen) == 1
    assert seen[0].dtype == torch.float32
    assert torch.equal(seen[0], expected)
    assert optimizer.state[weight]["exp_avg"] is seen[0]
    optimizer.load_state_dict(saved)
    assert len(seen) == 2  # the library's own hooks are gone, the caller's are not


def test_a_step_that_was_never_taken_loads_as_no_state():
    model = small_model()
    optimizer = NDAdam(param_groups(model))

    optimizer.load_state_dict(NDAdam(param_groups(small_model())).state_dict())
    train(model, optimizer, 1)

    assert optimizer.state[model[0].weight]["step"].item() == 1


def test_weights_loaded_after_the_state_are_normalised_at_the_next_step():
    """Also where only some of the vectors have another norm; the others keep their bits.

    The gradient of a loss that knows directions only is there as much smaller.
    """
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    saved = optimizer.state_dict()

    other_model = small_model()
    other = NDAdam(param_groups(other_model))
    other.load_state_dict(saved)
    loaded = model.state_dict()
    loaded["0.weight"] = loaded["0.weight"].clone()
    loaded["0.weight"][2] *= 5
    other_model.load_state_dict(loaded)
    for m in (model, other_model):
        generator = torch.Generator().manual_seed(2)
        for p in m.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
    other_model[0].weight.grad[2] /= 5
    optimizer.step()
    other.step()
    train(model, optimizer, 1, start=3)
    train(other_model, other, 1, start=3)

    for p, q in zip(weights(other_model), weights(model), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
    assert torch.equal(other_model[2].weight, model[2].weight)


def test_a_state_loads_into_a_model_with_frozen_parts():
    """Frozen parameters keep weights and state, and go on when they are trained again."""
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)

    frozen = small_model()
    frozen[0].weight.requires_grad_(False)
    other = NDAdam(param_groups(frozen))
    frozen.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    train_all_but(frozen[0].weight, frozen, other, 2)
    assert torch.equal(frozen[0].weight, model[0].weight)
    assert other.state[frozen[0].weight]["step"].item() == 2

    frozen[0].weight.requires_grad_(True)
    train(frozen, other, 1, start=2)
    train(model, optimizer, 1, start=2)

    assert torch.equal(frozen[0].weight, model[0].weight)
    assert other.state[frozen[2].weight]["step"].item() == 5


def train_all_but(p, model, optimizer, steps):
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        for q in model.parameters():
            q.grad = None if q is p else torch.randn(q.shape, generator=generator)
        optimizer.step()
    p.grad = None


def test_a_state_saved_while_a_part_was_frozen_loads_where_it_is_not():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train_all_but(model[0].weight, model, optimizer, 2)

    other_model = small_model()
    other = NDAdam(param_groups(other_model))
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    train(model, optimizer, 1, start=2)
    train(other_model, other, 1, start=2)

    assert equal(weights(other_model), weights(model))
    assert other.state[other_model[0].weight]["step"].item() == 1


def test_the_settings_of_the_saved_groups_win_as_in_torch():
    model, other_model = small_model(), small_model()
    optimizer = NDAdam(param_groups(model, alpha_v=0.3), betas=(0.8, 0.99), eps=1e-6)
    other = NDAdam(param_groups(other_model, alpha_v=0.1), foreach=True)

    other.load_state_dict(optimizer.state_dict())

    group = other.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (0.3, (0.8, 0.99), 1e-6)


def test_a_state_of_other_groups_is_refused():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 1)
    saved = optimizer.state_dict()

    with pytest.raises(ValueError, match="different number of parameter groups"):
        NDAdam([small_model()[0].weight], vector_dim=0).load_state_dict(saved)
    fewer = param_groups(small_model())
    fewer[0]["params"] = []
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        NDAdam(fewer).load_state_dict(saved)


def test_a_state_of_adam_is_refused_where_vectors_need_one_number_each():
    model = torch.nn.Linear(4, 3, bias=False)
    adam = torch.optim.Adam(model.parameters())
    model.weight.grad = torch.ones(3, 4)
    adam.step()
    optimizer = NDAdam(param_groups(model))
    saved = adam.state_dict()
    saved["param_groups"][0] |= {"vector_dim": 0}

    with pytest.raises(ValueError, match=r"exp_avg_sq of .* must have shape \(3, 1\)"):
        optimizer.load_state_dict(saved)
    del saved["state"][0]["exp_avg"]
    with pytest.raises(ValueError, match="has no exp_avg: it holds"):
        NDAdam(param_groups(torch.nn.Linear(4, 3, bias=False))).load_state_dict(saved)


@pytest.mark.parametrize("vector_dim", [None, 0])
def test_a_state_without_vectors_is_refused_as_another_optimizers(vector_dim):
    """Loaded unseen, its groups would make scalars of the vectors."""
    model = torch.nn.Linear(4, 3, bias=False)
    adam = torch.optim.AdamW(model.parameters())
    model.weight.grad = torch.ones(3, 4)
    adam.step()
    optimizer = NDAdam([{"params": model.parameters(), "vector_dim": vector_dim}])

    with pytest.raises(ValueError, match="no vector_dim, so another optimizer than NDAdam"):
        optimizer.load_state_dict(adam.state_dict())
    assert optimizer.param_groups[0]["vector_dim"] == vector_dim
    assert not optimizer.state
