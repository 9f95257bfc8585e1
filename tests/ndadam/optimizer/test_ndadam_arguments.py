"""What groups may say: numbers of any kind, keys that are not read, plain Adam by accident."""

import copy
import fractions
import io
import pickle
import warnings
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import nn

from ndadam import ModelNDAdam, NDAdam, describe_groups, param_groups
from tests.ndadam.small_model import equal, small_model, train, weights

PLAIN = {"lr": 0.05, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.25}


@pytest.mark.parametrize(
    "number",
    [
        np.float64,
        np.array,
        lambda x: np.array([x]),
        lambda x: torch.tensor(x, dtype=torch.float64),
        lambda x: torch.tensor([x], dtype=torch.float64),
        lambda x: Decimal(str(x)),
        lambda x: fractions.Fraction(str(x)),
    ],
    ids=["np.float64", "array", "array of one", "tensor", "tensor of one", "Decimal", "Fraction"],
)
def test_numbers_of_any_kind_are_kept_as_pythons_and_load_as_weights_only(number):
    said = {key: number(PLAIN[key]) for key in ("lr", "eps", "weight_decay")}
    optimizer = NDAdam(
        [nn.Parameter(torch.ones(3))], betas=tuple(map(number, PLAIN["betas"])), **said
    )

    group = optimizer.param_groups[0]
    if not isinstance(said["lr"], torch.Tensor):  # that one is read at each step
        assert {key: group[key] for key in PLAIN} == PLAIN
        assert type(group["lr"]) is float
    assert [type(x) for x in (*group["betas"], group["eps"], group["weight_decay"])] == [float] * 4
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))


def test_numbers_of_shorter_types_and_of_whole_kinds_are_taken():
    p = nn.Parameter(torch.ones(2, 3))
    optimizer = NDAdam(
        [p], np.float32(0.5), (np.float32(0.9), 0), vector_dim=np.int64(0), weight_decay=0
    )

    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.5, (float(np.float32(0.9)), 0.0))
    assert type(group["vector_dim"]) is int
    assert NDAdam([p], betas=[0.5, 0.6], vector_dim=0).param_groups[0]["betas"] == (0.5, 0.6)
    betas = torch.tensor([0.5, 0.25])
    assert NDAdam([p], betas=betas, vector_dim=0).param_groups[0]["betas"] == (0.5, 0.25)


def test_tensor_betas_take_the_steps_of_torchs_adam():
    betas = (torch.tensor(0.8), torch.tensor(0.95))
    p, q = (nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))
    ours = NDAdam([p], lr=0.01, betas=betas)
    theirs = torch.optim.Adam([q], lr=0.01, betas=betas, foreach=False)
    for step in range(5):
        p.grad, q.grad = (torch.linspace(1, 2 + step, 5) for _ in range(2))
        ours.step()
        theirs.step()

    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_what_a_schedule_computes_with_numpy_is_saved_as_pythons():
    optimizer = NDAdam(param_groups(nn.Linear(3, 2)))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: np.cos(np.float64(t)))
    optimizer.param_groups[0]["betas"] = (np.float64(0.8), 0.9)
    optimizer.param_groups[0]["max_lr"] = np.float32(0.5)
    assert isinstance(schedule.get_last_lr()[0], np.floating)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)

    groups = torch.load(file, weights_only=True)["param_groups"]

    assert groups[0]["betas"] == (0.8, 0.9)
    assert groups[0]["max_lr"] == 0.5


def copies(optimizer):
    other = copy.deepcopy(optimizer)
    yield other
    yield pickle.loads(pickle.dumps(optimizer))
    loaded = NDAdam(param_groups(small_model()))
    loaded.load_state_dict(optimizer.state_dict())
    yield loaded


def test_copies_and_loaded_ones_have_the_keys_of_new_ones():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 1)
    fresh = NDAdam(param_groups(small_model()))

    for other in copies(optimizer):
        assert [set(g) for g in other.state_dict()["param_groups"]] == [
            set(g) for g in fresh.state_dict()["param_groups"]
        ]
        assert other.defaults == fresh.defaults
        other.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
        assert "differentiable" not in other.param_groups[-1]


def test_a_state_of_an_earlier_version_with_that_key_loads_without_it():
    optimizer = NDAdam(param_groups(small_model()))
    saved = copy.deepcopy(optimizer.state_dict())
    for group in saved["param_groups"]:
        group["differentiable"] = False

    optimizer.load_state_dict(saved)

    assert "differentiable" not in optimizer.state_dict()["param_groups"][0]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ({"amsgrad": True}, "amsgrad=True"),
        ({"decoupled_weight_decay": True}, "decoupled_weight_decay=True"),
        ({"momentum": 0.9, "nesterov": True}, "momentum=0.9, nesterov=True"),
        ({"differentiable": True}, "differentiable=True"),
    ],
)
def test_settings_of_other_optimizers_that_are_on_are_refused_by_name(setting, shown):
    with pytest.raises(ValueError, match=f"group 0 has {shown}, which NDAdam does not have"):
        NDAdam([{"params": [nn.Parameter(torch.ones(2))], **setting}])


def test_those_that_are_off_and_names_may_stay():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NDAdam(
            [
                {
                    "params": [nn.Parameter(torch.ones(2))],
                    "amsgrad": False,
                    "momentum": 0,
                    "lr_scale": 0.5,
                    "name": "biases",
                }
            ]
        )


def test_keys_that_are_not_read_are_warned_of_by_name():
    with pytest.warns(UserWarning, match=r"group 0 has alpha_v, learning_rate, which NDAdam does"):
        NDAdam([{"params": [nn.Parameter(torch.ones(2))], "learning_rate": 0.1, "alpha_v": 1}])


PLAIN_ADAM = (
    "no parameter group has vector_dim: 2 parameter.s. of 2 or more .* get plain Adam, at lr="
)


@pytest.mark.parametrize(
    ("settings", "rate"), [({}, "0.05"), ({"lr": 1e-3}, "0.001"), ({"vector_dim": None}, "0.05")]
)
def test_plain_adam_by_accident_is_warned_of_once_with_what_to_write(settings, rate):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))

    with pytest.warns(UserWarning, match=PLAIN_ADAM + rate) as found:
        optimizer = NDAdam(model.parameters(), **settings)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()  # without a warning, which would be an error

    assert len(found) == 1
    assert "NDAdam(param_groups(model))" in str(found[0].message)
    assert found[0].filename == __file__


def test_plain_adam_that_is_said_or_that_has_no_matrix_is_not_warned_of():
    layer = nn.Linear(4, 3)

    NDAdam([{"params": layer.parameters(), "vector_dim": None}])
    NDAdam([layer.bias])
    NDAdam([{"params": [layer.weight], "vector_dim": 0}, {"params": nn.Linear(2, 2).parameters()}])


def test_an_added_group_that_is_plain_adam_by_accident_is_warned_of():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = NDAdam(param_groups(model[0]))

    with pytest.warns(UserWarning, match=r"the added group has no vector_dim: 1 .* at lr=0\.05"):
        optimizer.add_param_group({"params": model[1].parameters()})


def test_layers_that_are_unfrozen_are_added_as_a_list_of_groups():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = NDAdam(param_groups(model[0]))

    optimizer.add_param_group(param_groups(model[1], alpha_v=0.2, alpha_s=0.3))

    found = [(g["vector_dim"], g["lr"]) for g in optimizer.param_groups]
    assert found == [(0, 0.05), (None, 0.001), (0, 0.2), (None, 0.3)]
    norms = model[1].weight.detach().norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(2))


def test_a_list_of_which_one_group_is_refused_adds_none():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = NDAdam(param_groups(model[0]))
    before = model[1].weight.detach().clone()
    groups = param_groups(model[1])
    groups[1]["lr"] = -1.0

    with pytest.raises(ValueError, match="Invalid learning rate"):
        optimizer.add_param_group(groups)

    assert len(optimizer.param_groups) == 2
    assert torch.equal(model[1].weight, before)
    optimizer.add_param_group(param_groups(model[1]))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"lr": 0.1}, "lr=0.1 has no effect: every group has its own lr"),
        ({"weight_decay": 0.01}, "weight_decay=0.01 has no effect: every group has its own"),
        ({"vector_dim": 0}, "vector_dim=0 has no effect"),
        ({"lr": torch.tensor(0.1)}, r"lr=tensor\(0.1000\) has no effect"),
    ],
)
def test_arguments_beside_complete_groups_are_said_to_have_no_effect(said, message):
    with pytest.warns(UserWarning, match=message):
        NDAdam(param_groups(small_model()), **said)


def test_arguments_that_reach_a_group_are_not_warned_of():
    model = small_model()

    NDAdam(param_groups(model), betas=(0.8, 0.9), eps=1e-6)
    NDAdam([*param_groups(model[:1]), {"params": model[1].parameters()}], lr=0.3)


FRAMEWORK = {"alpha_v": 0.1, "alpha_s": 0.01, "betas": (0.8, 0.9)}


def test_a_class_with_keyword_arguments_splits_what_it_is_given():
    """As trainers call it: with parameters, with groups that decay and do not, with the model."""
    model, other, third, plain = (small_model() for _ in range(4))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizers = [
        ModelNDAdam(groups, model=model, **FRAMEWORK),
        ModelNDAdam(other.parameters(), model=other, **FRAMEWORK),
        ModelNDAdam(third, **FRAMEWORK),
    ]
    reference = NDAdam(param_groups(plain, alpha_v=0.1, alpha_s=0.01), betas=(0.8, 0.9))
    train(plain, reference, 3)

    for each, optimizer in zip((model, other, third), optimizers, strict=True):
        train(each, optimizer, 3)
        assert equal(weights(each), weights(plain))
        assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["betas"] == (0.8, 0.9)
        optimizer.load_state_dict(optimizer.state_dict())


def test_decay_of_a_group_goes_to_its_scalars():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    pairs = list(model.named_parameters())

    optimizer = ModelNDAdam([{"params": pairs, "weight_decay": 0.1}], model=model)

    found = [(g["vector_dim"], g["weight_decay"]) for g in optimizer.param_groups]
    assert found == [(0, 0.0), (None, 0.1)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: ModelNDAdam(m.parameters()),
            "ModelNDAdam needs the model, as model=…, .* NoneType",
        ),
        (lambda m: ModelNDAdam(m, lr=0.1), "takes alpha_v, alpha_s and model, not lr"),
        (
            lambda m: ModelNDAdam([{"params": [m.weight], "lr": 1.0}], model=m),
            "a group to be split cannot have an lr of its own, got 1.0",
        ),
        (
            lambda m: ModelNDAdam([nn.Parameter(torch.ones(5))], model=m),
            r"model does not hold a parameter that is to be optimized, of shape \(5,\)",
        ),
    ],
)
def test_what_such_a_call_lacks_is_said(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(nn.Linear(3, 2))


def test_a_transposed_convolution_with_groups_is_scalars_with_the_reason():
    """Three slices of 36 elements, of which each joined two of its six output channels."""
    layer = nn.ConvTranspose2d(4, 6, 3, groups=2)

    groups = param_groups(layer)

    assert [(g["name"], g["vector_dim"]) for g in groups] == [("scalars", None)]
    assert "transposed convolution with 2 groups: slices span 2 output" in describe_groups(layer)
