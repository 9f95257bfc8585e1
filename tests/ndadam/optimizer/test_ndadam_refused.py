"""Everything the optimizer refuses, with its sentence."""

import numpy as np
import pytest
import torch

from ndadam import NDAdam, param_groups


def matrix(dtype=torch.float32):
    return torch.nn.Parameter(torch.ones(2, 3, dtype=dtype))


REFUSED = [
    ({"lr": -0.1}, r"Invalid learning rate: -0\.1; lr must be >= 0 and finite"),
    ({"lr": float("nan")}, "Invalid learning rate: nan; lr must be >= 0"),
    ({"lr": float("inf")}, "Invalid learning rate: inf; lr must be >= 0 and finite"),
    ({"lr": "0.1"}, "lr must be a number, got '0.1'"),
    ({"lr": torch.ones(2)}, r"Tensor lr must be 1-element, got one of shape \(2,\)"),
    ({"lr": torch.tensor(-1.0)}, "Invalid learning rate: -1.0; lr must be >= 0"),
    ({"eps": -1e-8}, "Invalid epsilon value: -1e-08; eps must be >= 0"),
    ({"eps": None}, "eps must be a number, got None"),
    ({"eps": torch.ones(2)}, "eps must be a number, got tensor"),
    ({"eps": torch.tensor(True)}, "eps must be a number, got tensor"),
    ({"lr": True}, "lr must be a number, got True"),
    ({"lr": np.array([0.1, 0.2])}, r"lr must be a number, got array\(\[0.1, 0.2\]\)"),
    ({"lr": 1j}, "lr must be a number, got 1j"),
    ({"weight_decay": np.array("0.1")}, "weight_decay must be a number, got array"),
    (
        {"betas": (1.0, 0.999)},
        r"Invalid beta parameter at index 0: 1\.0; betas must be in \[0, 1\)",
    ),
    ({"betas": (0.9, 1.0)}, r"Invalid beta parameter at index 1: 1\.0; betas must be in \[0, 1\)"),
    ({"betas": (-0.1, 0.9)}, r"Invalid beta parameter at index 0: -0\.1"),
    ({"betas": (float("nan"), 0.9)}, "Invalid beta parameter at index 0: nan"),
    ({"betas": 0.9}, "betas must be two numbers, got 0.9"),
    (
        {"betas": (0.9, torch.tensor([0.9, 0.99]))},
        r"betas must be two numbers, got tensor\(.*\) at index 1",
    ),
    ({"betas": torch.tensor(0.9)}, r"betas must be two numbers, got tensor\(0.9000\)"),
    ({"betas": (0.9, torch.empty((), device="meta"))}, "betas must be two numbers, got tensor"),
    ({"betas": ("0.9", 0.9)}, "betas must be two numbers, got '0.9' at index 0"),
    ({"betas": (0.9, False)}, "betas must be two numbers, got False at index 1"),
    ({"weight_decay": -1.0}, r"Invalid weight_decay value: -1\.0; weight_decay must be >= 0"),
    (
        {"vector_dim": 0, "weight_decay": 0.1},
        "weight_decay must be 0 in a group with vector_dim: .* pinned to 1.* got 0.1",
    ),
    ({"vector_dim": 2}, r"vector_dim must be a dimension .* got 2 for parameter 0 of group 0"),
    ({"vector_dim": -3}, "vector_dim must be a dimension"),
    ({"vector_dim": 0.5}, "vector_dim must be a whole number or None, got 0.5"),
    ({"vector_dim": True}, "vector_dim must be a whole number or None, got True"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_bad_settings_are_refused_with_the_rule_and_the_value(settings, message):
    with pytest.raises(ValueError, match=message):
        NDAdam([matrix()], **settings)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (matrix(torch.complex64), "parameter 0 of group 0 with shape .2, 3. is complex"),
        (torch.nn.Parameter(torch.ones(3)), "weight vectors need a parameter of 2 or more"),
        (torch.nn.Parameter(torch.tensor(1.0)), "weight vectors need a parameter of 2 or more"),
    ],
)
def test_parameters_without_weight_vectors_are_refused_by_name(parameter, message):
    with pytest.raises(ValueError, match=message):
        NDAdam([parameter], vector_dim=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -0.1},
        {"lr": float("nan")},
        {"lr": torch.ones(2)},
        {"eps": -1.0},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, -1)},
        {"weight_decay": -1.0},
    ],
)
def test_what_torch_refuses_too_is_refused_with_torchs_words(settings):
    with pytest.raises(ValueError, match=r"Invalid|must be") as theirs:
        torch.optim.Adam([matrix()], **settings)
    with pytest.raises(ValueError, match=r"Invalid|must be") as ours:
        NDAdam([matrix()], **settings)

    assert str(ours.value).startswith(str(theirs.value))


def test_a_refused_group_leaves_all_weights_alone():
    first, second = matrix(), matrix()

    with pytest.raises(ValueError, match="vector_dim"):
        NDAdam([{"params": [first], "vector_dim": 0}, {"params": [second], "vector_dim": 5}])

    assert torch.equal(first.detach(), torch.ones(2, 3))


def test_a_refused_extra_group_is_not_added():
    optimizer = NDAdam([matrix()], vector_dim=0)

    with pytest.raises(ValueError, match="betas"):
        optimizer.add_param_group({"params": [matrix()], "betas": (0.9, 2.0)})

    assert len(optimizer.param_groups) == 1


def test_weight_decay_set_later_on_vectors_is_refused_at_the_step():
    p = matrix()
    optimizer = NDAdam([p], vector_dim=0)
    p.grad = torch.ones_like(p)
    optimizer.param_groups[0]["weight_decay"] = 0.1

    with pytest.raises(ValueError, match="weight_decay must be 0"):
        optimizer.step()


def test_sparse_gradients_are_refused_by_name():
    embedding = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = NDAdam(embedding.named_parameters(), vector_dim=0)
    embedding(torch.tensor([1, 2])).sum().backward()

    with pytest.raises(
        RuntimeError, match=r"does not support sparse gradients.* for weight"
    ) as ours:
        optimizer.step()
    with pytest.raises(RuntimeError, match="sparse") as theirs:
        torch.optim.Adam(embedding.parameters()).step()

    assert str(ours.value).startswith(str(theirs.value).replace("Adam does", "NDAdam does"))


@pytest.mark.parametrize(
    ("second", "name"),
    [
        (lambda model: {"params": [model.weight]}, "weight"),
        (lambda model: {"params": (p for p in [model.weight])}, "weight"),
        (lambda model: {"params": [("head", model.weight)]}, "head"),
        (lambda model: {"params": [model.weight], "names": ["head"]}, "head"),
    ],
)
def test_the_same_parameter_in_two_groups_is_refused_by_name(second, name):
    model = torch.nn.Linear(3, 2)

    with pytest.raises(ValueError, match=f"more than one parameter group: {name};"):
        NDAdam([*param_groups(model), second(model)])


def test_the_same_parameter_in_two_groups_without_names_is_told_by_its_place():
    p = matrix()

    with pytest.raises(ValueError, match=r"more than one parameter group: parameter 0 of group 0"):
        NDAdam([{"params": [p], "vector_dim": 0}, {"params": [p]}])


def test_lazy_parameters_are_refused_until_a_batch_has_given_them_a_shape():
    model = torch.nn.Sequential(torch.nn.LazyLinear(3))

    with pytest.raises(ValueError, match=r"0\.weight has no shape yet: run one batch"):
        NDAdam(model.named_parameters(), vector_dim=0)
    with pytest.raises(ValueError, match=r"0\.weight has no shape yet: run one batch"):
        param_groups(model)
    model(torch.ones(2, 4))

    assert [len(group["params"]) for group in NDAdam(param_groups(model)).param_groups] == [1, 1]
