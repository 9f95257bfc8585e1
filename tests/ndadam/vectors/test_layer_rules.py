"""Rules for layers of other packages, low-rank factors, positions, frozen and quantised weights."""

import re

import pytest
import torch
from torch import nn

from ndadam import NDAdam, describe_groups, param_groups, weight_vectors


def named(package, name, base=nn.Module):
    """A class as if ``package`` had defined it."""
    return type(name, (base,), {"__module__": package})


def holding(cls, **shapes):
    """A module of ``cls`` with parameters of these shapes."""
    module = cls()
    for name, shape in shapes.items():
        module.register_parameter(name, nn.Parameter(torch.randn(shape)))
    return module


def lines(model, **choices):
    """name -> its line of the table, without the name."""
    table = describe_groups(model, **choices).partition("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line.partition(" ")[2].strip() for line in table}


def dims(model, **choices):
    groups = param_groups(model, **choices)
    return {name: g["vector_dim"] for g in groups for name in g["names"]}


OF_PACKAGES = [
    ("transformers.pytorch_utils", "Conv1D", {"weight": (3, 12), "bias": (12,)}, {"weight": 1}),
    ("transformers.modeling_utils", "Conv1D", {"weight": (3, 12), "bias": (12,)}, {"weight": 1}),
    ("torchvision.ops.deform_conv", "DeformConv2d", {"weight": (4, 2, 3, 3)}, {"weight": 0}),
]


@pytest.mark.parametrize(("package", "name", "shapes", "expected"), OF_PACKAGES)
def test_layers_of_other_packages_are_known_by_name(package, name, shapes, expected):
    model = holding(named(package, name), **shapes)

    assert dims(model) == {key: expected.get(key) for key in shapes}


def test_experts_that_share_a_row_are_counted_in_the_warning():
    model = holding(named("timm.layers.cond_conv2d", "CondConv2d"), weight=(4, 54), bias=(4, 6))

    with pytest.warns(UserWarning, match=r"^90 % .* in weight \(filters of several experts, each"):
        param_groups(model)


def test_the_layers_of_gpt2_have_one_vector_for_each_output():
    """A weight of shape (in, out) = (3, 12): twelve vectors of three elements, as its columns."""
    model = holding(named("transformers.pytorch_utils", "Conv1D"), weight=(3, 12), bias=(12,))

    assert "vectors  12 x 3" in lines(model)["weight"]
    assert [v.layer for v in weight_vectors(model)] == ["linear1"]
    NDAdam(param_groups(model))
    norms = torch.linalg.vector_norm(model.weight.detach(), dim=0)
    torch.testing.assert_close(norms, torch.ones(12), rtol=0, atol=1e-6)


def test_a_subclass_of_such_a_layer_follows_its_rule():
    base = named("transformers.pytorch_utils", "Conv1D")

    assert dims(holding(type("Mine", (base,), {}), weight=(3, 12))) == {"weight": 1}


def test_the_gain_of_a_scaled_convolution_is_a_scalar_with_its_reason():
    cls = named("timm.layers.std_conv", "ScaledStdConv2d", nn.Conv2d)
    model = cls(3, 4, 3)
    model.gain = nn.Parameter(torch.ones(4, 1, 1, 1))

    assert dims(model) == {"weight": 0, "bias": None, "gain": None}
    assert lines(model)["gain"].endswith("gain of a convolution with standardised weights")


def adapted(rank=2):
    """A frozen linear layer beside two factors, as peft names them."""
    layer = nn.Module()
    layer.base_layer = nn.Linear(8, 6).requires_grad_(False)
    layer.lora_A = nn.ModuleDict({"default": nn.Linear(8, rank, bias=False)})
    layer.lora_B = nn.ModuleDict({"default": nn.Linear(rank, 6, bias=False)})
    nn.init.zeros_(layer.lora_B["default"].weight)
    return layer


def test_of_low_rank_factors_the_one_that_starts_at_zero_is_a_scalar():
    model = adapted()

    table = lines(model)

    assert dims(model) == {
        "base_layer.weight": 0,
        "base_layer.bias": None,
        "lora_A.default.weight": 0,
        "lora_B.default.weight": None,
    }
    assert "low-rank product that starts at zero" in table["lora_B.default.weight"]


def test_the_first_step_of_a_low_rank_product_is_small():
    """As a vector B would have unit norm after it; plain Adam moves each element by alpha_s."""
    model = adapted()
    optimizer = NDAdam(param_groups(model, alpha_s=0.001))
    a, b = model.lora_A["default"], model.lora_B["default"]

    b(a(torch.randn(5, 8))).sum().backward()
    optimizer.step()

    torch.testing.assert_close(b.weight.abs(), torch.full((6, 2), 0.001), rtol=1e-3, atol=0)


def test_a_trained_factor_stays_a_scalar_by_its_name():
    model = adapted()
    nn.init.normal_(model.lora_B["default"].weight)

    assert dims(model)["lora_B.default.weight"] is None


def test_factors_that_are_parameters_are_known_too():
    layer = holding(nn.Module, lora_A=(2, 8), lora_B=(6, 2))
    embedding = nn.Module()
    embedding.lora_embedding_A = nn.ParameterDict({"default": torch.zeros(2, 9)})
    embedding.lora_embedding_B = nn.ParameterDict({"default": torch.randn(5, 2)})

    assert dims(layer) == {"lora_A": 0, "lora_B": None}
    assert dims(embedding) == {"lora_embedding_A.default": None, "lora_embedding_B.default": 0}


@pytest.mark.parametrize(
    ("rank", "bias", "is_zero", "expected"),
    [(2, False, True, None), (2, False, False, 0), (2, True, True, 0), (9, False, True, 0)],
    ids=["low rank", "not zero", "with bias", "full rank"],
)
def test_two_linear_layers_of_which_one_is_zero_are_a_low_rank_product(
    rank, bias, is_zero, expected
):
    model = nn.Sequential(
        nn.Linear(8, rank, bias=bias), nn.Dropout(), nn.Linear(rank, 6, bias=bias)
    )
    if is_zero:
        nn.init.zeros_(model[2].weight)

    found = dims(model)

    assert found["2.weight"] == expected
    assert found["0.weight"] == 0


POSITIONS = [
    (lambda: nn.ModuleDict({"position_embeddings": nn.Embedding(7, 4)}), "7 x 4"),
    (lambda: nn.ModuleDict({"wpe": nn.Embedding(7, 4)}), "7 x 4"),
    (lambda: holding(nn.Module, pos_embed=(1, 7, 4)), "7 x 4"),
    (lambda: holding(nn.Module, pos_embedding=(1, 7, 4)), "7 x 4"),
    (lambda: holding(nn.Module, position_embeddings=(1, 7, 4)), "7 x 4"),
    (lambda: holding(nn.Module, positional_embedding=(7, 4)), "7 x 4"),
]


@pytest.mark.parametrize(("make", "size"), POSITIONS)
def test_positions_are_vectors_however_they_are_kept(make, size):
    (line,) = lines(make()).values()

    assert f"vectors  {size}" in line


def test_unit_vectors_of_positions_lie_along_the_last_dimension():
    model = holding(nn.Module, pos_embed=(1, 7, 4))

    NDAdam(param_groups(model))

    norms = torch.linalg.vector_norm(model.pos_embed.detach(), dim=2)
    torch.testing.assert_close(norms, torch.ones(1, 7), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.ModuleDict({"relative_attention_bias": nn.Embedding(32, 8)}),
        lambda: holding(nn.Module, relative_position_bias_table=(169, 3)),
        lambda: holding(nn.Module, attention_biases=(4, 49)),
    ],
)
def test_biases_that_attention_adds_are_scalars_however_they_are_kept(make):
    (line,) = lines(make()).values()

    assert "scalars" in line
    assert line.endswith("biases that attention adds, by relative position")


def test_frozen_parameters_are_listed_as_frozen():
    model = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 2))

    table = lines(model)

    assert "vectors, frozen  2 x 3" in table["0.weight"]
    assert "scalars, frozen" in table["0.bias"]
    assert "frozen" not in table["1.weight"]


def test_embeddings_with_sparse_gradients_are_refused_in_the_table():
    model = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Linear(3, 2))

    table = lines(model)

    assert "refused" in table["0.weight"]
    assert table["0.weight"].endswith("sparse gradients: exclude it here, SparseAdam takes them")
    assert "refused" not in table["1.weight"]
    assert lines(model, exclude=["0"])["0.weight"].split()[1] == "none"


def test_quantised_weights_are_in_no_group():
    """As bitsandbytes keeps them: packed into bytes, in a subclass of a linear layer."""
    model = named("bitsandbytes.nn.modules", "Linear4bit", nn.Linear)(8, 6)
    packed = torch.zeros(24, 1, dtype=torch.uint8)
    model.weight = nn.Parameter(packed, requires_grad=False)

    table = lines(model)

    assert table["weight"].split() == ["24x1", "none", "quantised", "(uint8):", "not", "trained"]
    assert dims(model) == {"bias": None}
    NDAdam(param_groups(model))


class Own(nn.Module):
    """Half of its 100 trained weights are in a matrix that no rule knows."""

    def __init__(self):
        super().__init__()
        self.mixing = nn.Parameter(torch.randn(10, 5))
        self.token = nn.Parameter(torch.randn(1, 1, 5))
        self.scale = nn.Parameter(torch.randn(5, 1, 1))
        self.linear = nn.Linear(5, 6)
        self.frozen = nn.Parameter(torch.randn(9, 9), requires_grad=False)
        self.rest = nn.Parameter(torch.randn(4))


def test_what_no_rule_covers_is_a_warning_that_counts_weights():
    expected = (
        "50 % of this model's weights (50 of 100) get plain Adam: no rule says which slices are "
        "weight vectors in mixing (Own.mixing). Say it with param_groups(model, rules="
    )

    with pytest.warns(UserWarning, match="^" + re.escape(expected)) as caught:
        param_groups(Own())

    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert param_groups(Own(), rules={"mixing": None})
    assert param_groups(Own(), exclude=["mixing"])


def test_many_uncovered_matrices_are_counted_and_small_shares_have_digits():
    model = nn.Module()
    model.parts = nn.ParameterList([torch.randn(2, 2) for _ in range(5)])
    model.linear = nn.Linear(100, 70, bias=False)

    with pytest.warns(UserWarning, match=r"^0\.28 % .*20 of 7,020.* and 2 more"):
        param_groups(model)
