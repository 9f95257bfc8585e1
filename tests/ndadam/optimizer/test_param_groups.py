"""Which parameters are weight vectors, for every kind of layer with a rule."""

import pytest
import torch
from torch import nn

from ndadam import NDAdam, describe_groups, param_groups, weight_vectors


def groups_of(model):
    """name -> vector_dim, or None for scalars."""
    dims = {p: g["vector_dim"] for g in param_groups(model) for p in g["params"]}
    return {name: dims[p] for name, p in model.named_parameters()}


RULES = [
    (nn.Linear(3, 2), {"weight": 0, "bias": None}),
    (nn.Bilinear(2, 3, 4), {"weight": 0, "bias": None}),
    (nn.Conv1d(3, 2, 3), {"weight": 0, "bias": None}),
    (nn.Conv2d(3, 2, 3), {"weight": 0, "bias": None}),
    (nn.Conv3d(3, 2, 3), {"weight": 0, "bias": None}),
    (nn.ConvTranspose1d(3, 2, 3), {"weight": 1, "bias": None}),
    (nn.ConvTranspose2d(3, 2, 3), {"weight": 1, "bias": None}),
    (nn.ConvTranspose3d(3, 2, 3), {"weight": 1, "bias": None}),
    (nn.ConvTranspose2d(4, 6, 3, groups=2), {"weight": None, "bias": None}),
    (nn.Conv2d(4, 6, 3, groups=2), {"weight": 0, "bias": None}),
    (nn.Conv2d(4, 4, 3, groups=4), {"weight": 0, "bias": None}),
    (nn.Conv2d(4, 4, 1, groups=4), {"weight": None, "bias": None}),
    (nn.Conv2d(1, 4, 1), {"weight": None, "bias": None}),
    (nn.Embedding(5, 3), {"weight": 0}),
    (nn.EmbeddingBag(5, 3), {"weight": 0}),
    (nn.BatchNorm2d(3), {"weight": None, "bias": None}),
    (nn.LayerNorm((2, 3)), {"weight": None, "bias": None}),
    (nn.GroupNorm(1, 3), {"weight": None, "bias": None}),
    (nn.PReLU(3), {"weight": None}),
    (
        nn.LSTM(3, 4, proj_size=2),
        {
            "weight_ih_l0": 0,
            "weight_hh_l0": 0,
            "weight_hr_l0": 0,
            "bias_ih_l0": None,
            "bias_hh_l0": None,
        },
    ),
    (nn.RNN(3, 4, bias=False), {"weight_ih_l0": 0, "weight_hh_l0": 0}),
    (nn.RNNCell(3, 4, bias=False), {"weight_ih": 0, "weight_hh": 0}),
    (nn.GRUCell(3, 4, bias=False), {"weight_ih": 0, "weight_hh": 0}),
    (
        nn.MultiheadAttention(4, 2, add_bias_kv=True),
        {
            "in_proj_weight": 0,
            "in_proj_bias": None,
            "bias_k": None,
            "bias_v": None,
            "out_proj.weight": 0,
            "out_proj.bias": None,
        },
    ),
    (
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5, bias=False),
        {"q_proj_weight": 0, "k_proj_weight": 0, "v_proj_weight": 0, "out_proj.weight": 0},
    ),
]


@pytest.mark.parametrize(("module", "expected"), RULES, ids=lambda value: str(value)[:40])
def test_each_kind_of_layer_has_its_rule(module, expected):
    assert groups_of(module) == expected


@pytest.mark.parametrize("module", [module for module, _ in RULES], ids=lambda m: str(m)[:40])
def test_the_optimizer_takes_the_groups_of_every_kind(module):
    optimizer = NDAdam(param_groups(module, weight_decay=0.1))
    for p in module.parameters():
        p.grad = torch.ones_like(p)

    optimizer.step()

    for v in weight_vectors(module):
        norms = torch.linalg.vector_norm(
            v.parameter.detach().movedim(v.vector_dim, 0).flatten(1), dim=1
        )
        torch.testing.assert_close(norms, torch.ones(v.count))


def test_groups_carry_their_rates_decay_and_name():
    vectors, scalars = param_groups(nn.Linear(3, 2), alpha_v=0.3, alpha_s=0.2, weight_decay=0.1)

    assert {k: v for k, v in vectors.items() if k != "params"} == {
        "lr": 0.3,
        "vector_dim": 0,
        "weight_decay": 0.0,
        "name": "vectors",
        "names": ["weight"],
    }
    assert {k: v for k, v in scalars.items() if k != "params"} == {
        "lr": 0.2,
        "vector_dim": None,
        "weight_decay": 0.1,
        "name": "scalars",
        "names": ["bias"],
    }


def test_vectors_along_another_dimension_get_a_group_of_their_own():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(3, 2, 3))

    groups = param_groups(model)

    assert [(g["name"], g["vector_dim"]) for g in groups] == [
        ("vectors", 0),
        ("vectors", 1),
        ("scalars", None),
    ]


def test_empty_groups_are_left_out():
    assert [g["name"] for g in param_groups(nn.Linear(3, 2, bias=False))] == ["vectors"]
    assert [g["name"] for g in param_groups(nn.BatchNorm1d(3))] == ["scalars"]
    assert param_groups(nn.ReLU()) == []


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.output = nn.Linear(3, 5, bias=False)
            self.output.weight = self.embedding.weight

    model = Tied()

    assert [len(g["params"]) for g in param_groups(model)] == [1]
    assert [v.name for v in weight_vectors(model)] == ["embedding.weight"]
    assert "output.weight is the same parameter as embedding.weight" in describe_groups(model)


@pytest.mark.filterwarnings("ignore:86 % of this model's weights")
def test_what_has_no_rule_is_a_scalar_and_the_table_says_so():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.ones(3, 4))
            self.temperature = nn.Parameter(torch.tensor(1.0))
            self.gain = nn.Parameter(torch.ones(1))
            self.nothing = nn.Parameter(torch.empty(0, 4))

    model = Own()
    assert set(groups_of(model).values()) == {None}
    table = describe_groups(model).splitlines()

    assert [line.split()[:3] for line in table[1:]] == [
        ["table", "3x4", "scalars"],
        ["temperature", "()", "scalars"],
        ["gain", "1", "scalars"],
        ["nothing", "0x4", "scalars"],
    ]
    assert all("no rule for Own." in line for line in table[1:])
    take_a_step(model)


def take_a_step(model):
    optimizer = NDAdam(param_groups(model))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("parametrise", "names"),
    [
        (nn.utils.parametrizations.weight_norm, ["original0", "original1"]),
        (nn.utils.parametrizations.spectral_norm, ["original"]),
        (nn.utils.parametrizations.orthogonal, ["original"]),
    ],
)
def test_what_a_parametrisation_computes_a_weight_from_is_a_scalar(parametrise, names):
    """Its rows are not the weight vectors, and its computation would undo their norm."""
    model = nn.Sequential(parametrise(nn.Linear(4, 3)), nn.Linear(3, 2))

    groups = groups_of(model)
    table = describe_groups(model)

    assert groups == {
        "0.bias": None,
        **{f"0.parametrizations.weight.{name}": None for name in names},
        "1.weight": 0,
        "1.bias": None,
    }
    assert table.count("a parametrisation computes the weight from it") == len(names)
    optimizer = NDAdam(param_groups(model))
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("parametrise", "layer", "name", "parts"),
    [
        (nn.utils.weight_norm, lambda: nn.Linear(4, 3), "weight", ["g", "v"]),
        (nn.utils.weight_norm, lambda: nn.LSTM(3, 4), "weight_ih_l0", ["g", "v"]),
        (nn.utils.spectral_norm, lambda: nn.Conv2d(2, 3, 3), "weight", ["orig"]),
        (nn.utils.spectral_norm, lambda: nn.GRU(3, 4), "weight_hh_l0", ["orig"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
def test_what_an_older_hook_computes_a_weight_from_is_a_scalar(parametrise, layer, name, parts):
    groups = groups_of(parametrise(layer(), name))

    assert {groups[f"{name}_{part}"] for part in parts} == {None}
    assert sorted(key for key in groups if key.startswith(f"{name}_")) == [
        f"{name}_{part}" for part in sorted(parts)
    ]


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(4, 0), lambda: nn.Embedding(0, 3), lambda: nn.Conv2d(2, 0, 1)]
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layers_without_units_are_passed_over(make):
    model = nn.Sequential(make(), nn.Linear(4, 3))

    assert "vectors of 0 element(s) cannot turn" in describe_groups(model)
    take_a_step(model)


def test_weights_that_a_wrapper_has_flattened_are_scalars_and_the_table_says_so():
    model = nn.Linear(4, 3)
    model.weight = nn.Parameter(model.weight.detach().flatten())

    assert groups_of(model)["weight"] is None
    assert "1 dimension(s): no rows, or flattened by a sharding wrapper" in describe_groups(model)
    with pytest.raises(ValueError, match="If a sharding wrapper has flattened it"):
        NDAdam(model.named_parameters(), vector_dim=0)


@pytest.mark.parametrize(
    ("layer", "name", "size"),
    [
        (nn.LSTM(3, 4), "weight_ih_l0", "16 x 3"),
        (nn.LSTM(3, 4, proj_size=2), "weight_hr_l0", "2 x 4"),
        (nn.GRU(3, 4, num_layers=2, bidirectional=True), "weight_hh_l1_reverse", "12 x 4"),
        (nn.LSTMCell(3, 4), "weight_hh", "16 x 4"),
        (nn.MultiheadAttention(4, 2), "in_proj_weight", "12 x 4"),
        (nn.MultiheadAttention(4, 2, kdim=3, vdim=5), "v_proj_weight", "4 x 5"),
        (nn.ConvTranspose3d(4, 6, 2), "weight", "6 x 32"),
        (nn.Conv2d(4, 4, 3, groups=4), "weight", "4 x 9"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_table_counts_vectors_and_their_length(layer, name, size):
    line = next(x for x in describe_groups(layer).splitlines() if x.split()[0] == name)

    assert f"vectors  {size}" in line


COLUMNS = ["normalisation", "why"]


def test_the_table_names_shape_group_vectors_and_reason():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 6, 3, groups=2)
    )

    lines = describe_groups(model).splitlines()

    assert lines[0].split("  ")[0] == "parameter"
    assert lines[0].split()[1:] == ["shape", "group", "vectors", "x", "length", *COLUMNS]
    assert lines[1].split()[:6] == ["0.weight", "8x3x5x5", "vectors", "8", "x", "75"]
    assert lines[1].endswith("filters of a convolution")
    assert lines[3].split() == ["1.weight", "8", "scalars", "scale", "of", "BatchNorm2d"]
    assert lines[5].split()[:3] == ["2.weight", "8x3x3x3", "scalars"]
    assert lines[5].endswith("convolution with 2 groups: slices span 2 output channels")


def test_subclasses_follow_the_rule_of_their_class():
    class MyConv(nn.Conv2d):
        pass

    assert groups_of(MyConv(3, 2, 3)) == {"weight": 0, "bias": None}


def test_layers_are_numbered_by_kind_in_registration_order():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 4)
    )

    assert [(v.layer, v.name, v.count, v.length) for v in weight_vectors(model)] == [
        ("conv1", "0.weight", 2, 9),
        ("conv2", "2.weight", 2, 18),
        ("linear1", "4.weight", 4, 8),
    ]


def test_every_parameter_is_in_exactly_one_group():
    model = nn.TransformerDecoderLayer(8, 2, 16)

    grouped = [p for g in param_groups(model) for p in g["params"]]

    assert len(grouped) == len(set(grouped)) == len(list(model.parameters()))


def test_packed_biases_of_attention_are_called_biases():
    table = describe_groups(nn.MultiheadAttention(4, 2, add_bias_kv=True))

    assert table.count("bias of MultiheadAttention") == 3  # in_proj_bias, bias_k, bias_v
    assert "no rule" not in table


def test_messages_call_parameters_as_the_model_does():
    model = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Linear(3, 2))
    optimizer = NDAdam(param_groups(model))
    model(torch.tensor([1])).sum().backward()

    with pytest.raises(RuntimeError, match=r"torch.sparse_coo for 0\.weight"):
        optimizer.step()
    assert "names" not in optimizer.param_groups[0]
    assert all("names" not in group for group in optimizer.state_dict()["param_groups"])


def test_groups_may_be_shared_and_joined_with_others():
    groups = param_groups(nn.Linear(3, 2))
    extra = {"params": [nn.Parameter(torch.ones(2))]}

    for _ in range(2):
        optimizer = NDAdam([*groups, extra])
        assert [len(g["params"]) for g in optimizer.param_groups] == [1, 1, 1]
    assert [g["names"] for g in groups] == [["weight"], ["bias"]]
    torch.optim.AdamW(groups)


def test_parameters_that_come_one_by_one_are_all_taken_and_named():
    one, two = (nn.Parameter(torch.eye(2)) for _ in range(2))
    groups = [
        {"params": [one], "vector_dim": 0, "names": ["one"]},
        {"params": (p for p in [two]), "vector_dim": 0, "names": ["two"]},
    ]

    optimizer = NDAdam(groups)

    assert [group["params"] for group in optimizer.param_groups] == [[one], [two]]
    with pytest.raises(ValueError, match="more than one parameter group: two"):
        optimizer.add_param_group({"params": iter([two]), "vector_dim": 0, "names": ["two"]})


def test_modules_that_share_a_parameter_are_refused_by_its_name_and_grouped_together():
    model = nn.ModuleDict({"embedding": nn.Embedding(4, 3), "head": nn.Linear(3, 4, bias=False)})
    model["head"].weight = model["embedding"].weight

    with pytest.raises(ValueError, match=r"more than one parameter group: weight; make groups of"):
        NDAdam(param_groups(model["embedding"]) + param_groups(model["head"]))
    assert [len(g["params"]) for g in NDAdam(param_groups(model)).param_groups] == [1]


def test_parameters_in_place_of_a_model_are_refused():
    with pytest.raises(TypeError, match=r"must be an nn\.Module, got generator: .* pass the model"):
        param_groups(nn.Linear(3, 2).parameters())
