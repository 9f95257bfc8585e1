"""Vectors that share a length: group or layer normalisation reads their channels together."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import EffectiveLR, probe
from tests.ndadam.invariance.test_probe import relative_radial


def images(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 3, 8, 8, generator=generator, dtype=torch.float64)
    return x, torch.randint(5, (16,), generator=generator)


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def convolutions(norm, *, bias=False):
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 12, 3, bias=bias), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(12, 5)).double()


def rows(norm, *, bias=False):
    torch.manual_seed(0)
    parts = [nn.Flatten(), nn.Linear(192, 12, bias=bias), norm, nn.ReLU(), nn.Linear(12, 5)]
    return nn.Sequential(*parts).double()


@pytest.mark.parametrize(
    ("model", "span"),
    [
        (convolutions(nn.GroupNorm(4, 12)), 3),
        (convolutions(nn.GroupNorm(1, 12)), 12),
        (convolutions(nn.LayerNorm([12, 6, 6])), 12),
        (rows(nn.GroupNorm(2, 12)), 6),
        (rows(nn.LayerNorm(12)), 12),
        (rows(nn.RMSNorm(12)), 12),
    ],
)
def test_channels_that_are_normalised_together_are_invariant_together(model, span):
    found = probe(model, images(), loss)
    layer, head = found.classes

    assert set(found.classes[layer]) == {"jointly_invariant"}
    assert set(found.classes[head]) == {"neither"}
    assert (found.streams, found.spans) == ((((layer, 0),),), (span,))


@pytest.mark.parametrize(
    "norm",
    [nn.GroupNorm(12, 12), nn.InstanceNorm2d(12), nn.LayerNorm([6, 6]), nn.BatchNorm2d(12)],
)
def test_channels_that_are_normalised_by_themselves_need_no_company(norm):
    found = probe(convolutions(norm), images(), loss)

    assert set(found.classes["conv1"]) == {"invariant"}
    assert found.streams == found.spans == ()


@pytest.mark.parametrize(
    ("norm", "span"), [(nn.GroupNorm(4, 12), 3), (nn.LayerNorm([12, 6, 6]), 12)]
)
def test_the_loss_ignores_a_factor_on_a_group_and_sees_one_on_a_filter(norm, span):
    model = convolutions(norm)
    norm.eps = 0.0
    before = loss(model, images()).item()

    def after(channels):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            twin[0].weight[channels] *= 2
        return loss(twin, images()).item()

    assert after(slice(0, span)) == pytest.approx(before, rel=1e-12)
    assert after(slice(0, 1)) != pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    "model",
    [convolutions(nn.GroupNorm(4, 12), bias=True), rows(nn.LayerNorm(12), bias=True)],
)
def test_with_a_bias_before_the_normalisation_they_are_not(model):
    """Batch normalisation takes the bias out again; the mean over several channels leaves it in."""
    assert probe(model, images(), loss).counts()["neither"] == 17


class Residual(nn.Module):
    """Two writers to one stream, which normalisations of different groups read."""

    def __init__(self, *norms):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 12, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(12, 12, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(12, 12, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.norm3 = norms
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.conv2(self.norm2(self.conv1(self.norm1(x).relu())).relu())
        return self.head(self.norm3(x).relu().mean((2, 3)))


@pytest.mark.parametrize(
    ("first", "last", "span"),
    [
        (nn.GroupNorm(4, 12), nn.GroupNorm(4, 12), 3),
        (nn.GroupNorm(4, 12), nn.BatchNorm2d(12), 3),
        (nn.GroupNorm(6, 12), nn.GroupNorm(4, 12), 6),  # blocks of 2 and of 3
        (nn.BatchNorm2d(12), nn.GroupNorm(1, 12), 12),
        (nn.BatchNorm2d(12), nn.BatchNorm2d(12), 1),
    ],
)
def test_a_residual_stream_is_judged_by_the_channels_that_any_reader_ties_together(
    first, last, span
):
    model = Residual(first, nn.GroupNorm(2, 12), last).double()
    found = probe(model, images(), loss)

    assert found.counts() == {
        "invariant": 0,
        "jointly_invariant": 36,
        "eps_limited": 0,
        "neither": 5,
    }
    assert found.streams == ((("conv1", 0), ("conv3", 0)), (("conv2", 0),))
    assert found.spans == (span, 6)


def test_streams_that_are_listed_are_read_in_groups_too():
    model = Residual(*(nn.GroupNorm(4, 12) for _ in range(3))).double()
    listed = [[(model.stem.weight, 0), (model.conv2.weight, 0)]]

    assert probe(model, images(), loss, listed) == probe(model, images(), loss)
    assert set(probe(model, images(), loss, []).classes["conv1"]) == {"neither"}


@pytest.mark.parametrize("seed", [0, 11])
def test_a_group_that_is_orthogonal_by_chance_is_not_invariant(seed):
    """Of 38,400 elements, one direction in six has |cos| below the threshold."""
    torch.manual_seed(seed)
    layers = [nn.Linear(192, 200), nn.LayerNorm(200), nn.ReLU(), nn.Linear(200, 5)]
    model = nn.Sequential(nn.Flatten(), *layers).double()
    nn.init.normal_(layers[0].bias)
    loss(model, images(seed)).backward()
    weight = layers[0].weight

    assert relative_radial([(weight.grad, weight.detach())]) < 1e-3
    assert probe(model, images(seed), loss).counts()["neither"] == 205


def test_vectors_of_one_group_enter_the_headline_together_and_balance():
    model = convolutions(nn.GroupNorm(4, 12))
    found = probe(model, images(), loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    dynamics = EffectiveLR(model, optimizer, probe=found)
    expected = []
    for seed in range(20):
        optimizer.zero_grad()
        loss(model, images(seed)).backward()
        before = model[0].weight.detach().clone()
        optimizer.step()
        ratio = [
            (w - b).square().sum() / b.square().sum()
            for w, b in zip(model[0].weight.detach().split(3), before.split(3), strict=True)
        ]
        expected.append(torch.stack(ratio).mean().sqrt().item())

    assert dynamics.drain().effective_lr == pytest.approx(expected, rel=1e-10)
    balance = dynamics.balance()
    assert abs(balance.residual) < 1e-10
    assert abs(balance.kappa) < 1e-2
