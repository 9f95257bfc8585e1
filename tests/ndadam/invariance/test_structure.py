"""Whether a normalisation follows, told from the structure of a model and from a probe."""

import pytest
import torch
from torch import nn

from ndadam import Scaled, describe_groups, probe, weight_vectors
from ndadam.invariance.structure import structure


def follows(model):
    """name -> what follows, without the name of what was met."""
    vectors = weight_vectors(model)
    found = structure(model, vectors)
    return {v.name: found[v.parameter][0] for v in vectors}


def cells(model, **choices):
    """name -> its cell in the table's column."""
    head, *lines = describe_groups(model, **choices).splitlines()
    start, end = head.index("normalisation"), head.index("why")
    rows = [line for line in lines if len(line) > start and not line.startswith("  ")]
    return {
        row.split()[0]: row[start:end].strip() for row in rows if row.split()[0] in names(model)
    }


def names(model):
    return {name for name, _ in model.named_parameters()}


CHAINS = [
    ([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)], "follows"),
    ([nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(4)], "follows"),
    ([nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)], "not known"),
    ([nn.Conv2d(3, 4, 3), nn.Dropout(), nn.InstanceNorm2d(4)], "follows"),
    ([nn.Conv2d(3, 4, 3, bias=False), nn.GroupNorm(2, 4)], "jointly"),
    ([nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)], "not known"),
    ([nn.Linear(3, 4, bias=False), nn.LayerNorm(4)], "jointly"),
    ([nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)], "does not"),
    ([nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)], "does not"),
    ([nn.Linear(3, 4)], "does not"),
    (
        [
            nn.Conv2d(3, 4, 3, bias=False),
            nn.Conv2d(4, 4, 3, groups=4, bias=False),
            nn.BatchNorm2d(4),
        ],
        "follows",
    ),
]


@pytest.mark.parametrize(("layers", "expected"), CHAINS, ids=lambda value: str(value)[:40])
def test_a_chain_is_followed_to_the_first_thing_that_decides(layers, expected):
    assert follows(nn.Sequential(*layers))["0.weight"] == expected


class Block(nn.Module):
    """A residual block whose second convolution is added before anything normalises it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.side = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        gate = self.side(y.mean((2, 3))).sigmoid()
        return x + self.second(y) * gate.view(gate.shape[0], 4, 1, 1)


def test_sums_are_not_known_and_gates_do_not():
    assert follows(Block()) == {
        "first.weight": "follows",
        "second.weight": "not known",
        "side.weight": "does not",
    }


def test_of_two_readers_the_worse_counts():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y), y.tanh()

    assert follows(Two()) == {"conv.weight": "does not"}


def test_what_cannot_be_traced_is_not_known_and_hooks_are_not_called():
    class Branching(nn.Linear):
        def forward(self, x):
            return super().forward(x) if bool(x.sum() > 0) else x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x) if x.sum() > 0 else x

    called = []
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[0].register_forward_hook(lambda *_: called.append(1))

    assert follows(Outer()) == {"inner.weight": "not known"}
    assert follows(model) == {"0.weight": "follows"}
    assert called == []
    assert len(model[0]._forward_hooks) == 1


def test_the_model_is_left_as_it_was():
    model = Block()
    before = {key: value.clone() for key, value in model.state_dict().items()}

    describe_groups(model)

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_standardised_weights_need_no_other_normalisation():
    cls = type("StdConv2d", (nn.Conv2d,), {"__module__": "timm.layers.std_conv"})

    assert follows(nn.Sequential(cls(3, 4, 3))) == {"0.weight": "follows"}


def test_the_table_says_how_it_was_found_and_lists_what_no_normalisation_follows():
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3)]
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), *blocks, Scaled(nn.Linear(4, 4)), nn.Linear(4, 2)
    )

    found = cells(model)
    text = describe_groups(model)

    assert found["0.weight"] == "follows (1)"
    assert found["0.bias"] == ""
    assert found["2.0.weight"] == "does not (2.1)"
    assert found["5.layer.weight"] == "has a scale"
    assert found["6.weight"] == "does not (output)"
    assert text.partition("no normalisation follows:\n")[2].splitlines()[:3] == [
        "  2.0.weight and 2 alike",
        "  6.weight",
        "Their units cannot learn the size of what they give: wrap the layers in Scaled, or give "
        "them to plain Adam",
    ]
    assert "no normalisation follows" not in describe_groups(nn.Sequential(*model[:2]))


def test_a_probe_decides_where_a_batch_is_given():
    model = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8, eps=1e-12), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 2)
    )
    model[3].requires_grad_(False)
    batch = torch.randn(16, 3)

    result = probe(model, batch, lambda m, x: m(x).square().mean())
    found = cells(model, probe=result)

    assert found["0.weight"] == "follows (probe)"
    assert found["3.weight"] == "not known (frozen)"
    assert found["4.weight"] == "does not (probe)"
