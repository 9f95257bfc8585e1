"""Classes of weight vectors, and the physics behind them."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import WideResNet, probe, weight_vectors
from ndadam.invariance.residual_streams import find_streams

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
PAPER_TF = {"activation": "leaky_relu", "shortcut": "pool_pad", "init": "fan_in_normal"}
PAPER_WRN = {"activation": "relu", "shortcut": "conv", "init": "kaiming_normal"}


def wrn(seed=0, **settings):
    return WideResNet(10, num_classes=5, generator=torch.Generator().manual_seed(seed), **settings)


def images(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 3, 12, 12, generator=generator), torch.randint(
        5, (16,), generator=generator
    )


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def probed(model):
    return probe(model, images(), loss, model.residual_groups())


def gradients_in_double(**settings):
    model = wrn(bn_eps=1e-20, **settings).double()
    x, y = images()
    loss(model, (x.double(), y)).backward()
    return model


def relative_radial(rows):
    """|sum <g, w>| / sqrt(sum ||g||^2 sum ||w||^2) over a list of (gradient, weight)."""
    gw = sum((g * w).sum() for g, w in rows)
    gg, ww = sum(g.square().sum() for g, _ in rows), sum(w.square().sum() for _, w in rows)
    return (gw.abs() / (gg * ww).sqrt()).item()


def test_the_toy_of_the_oracle_is_orthogonal_and_halves_when_w_doubles():
    case = ORACLES["scale_invariant_toy"]
    x = torch.tensor(case["x"], dtype=torch.float64)
    for factor, expected in ((1, case["grad"]), (2, case["grad_at_2w"])):
        w = (factor * torch.tensor(case["w"], dtype=torch.float64)).requires_grad_()
        value = (w @ x) / torch.linalg.vector_norm(w)
        value.backward()
        assert value.item() == pytest.approx(case["value"], abs=1e-12)
        torch.testing.assert_close(
            w.grad, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
        )
        assert relative_radial([(w.grad, w.detach())]) < 1e-12


@pytest.mark.parametrize(
    "settings", [{"widen_factor": 2, **PAPER_WRN}, {"widen_factor": 2, **PAPER_TF}]
)
def test_the_gradient_of_a_convolution_before_batch_norm_is_orthogonal_to_each_filter(settings):
    model = gradients_in_double(**settings)

    for group in model.groups:
        weight = group[0].conv1.weight
        for g, w in zip(weight.grad, weight.detach(), strict=True):
            assert relative_radial([(g, w)]) < 1e-12


@pytest.mark.parametrize("widen_factor", [1, 2])
def test_sums_over_a_residual_channel_vanish(widen_factor):
    model = gradients_in_double(widen_factor=widen_factor, **PAPER_WRN)

    for stream in model.residual_groups():
        channels = len(stream[0][0])
        for channel in range(channels):
            rows = [(p.grad[channel - at], p.detach()[channel - at]) for p, at in stream]
            assert relative_radial(rows) < 1e-12
            # One by one they do not vanish.
            assert all(relative_radial([row]) > 1e-9 for row in rows)


def test_classes_in_the_conv_recipe():
    result = probed(wrn(widen_factor=2, **PAPER_WRN))

    assert result.layer_classes() == {
        "conv1": "invariant",  # read by batch norm only: the shortcut takes the activated input
        "conv2": "invariant",
        "conv3": "jointly_invariant",
        "conv4": "jointly_invariant",
        "conv5": "invariant",
        "conv6": "jointly_invariant",
        "conv7": "jointly_invariant",
        "conv8": "invariant",
        "conv9": "jointly_invariant",
        "conv10": "jointly_invariant",
        "conv11": "neither",  # the head
    }
    assert result.counts() == {
        "invariant": 16 + 32 + 64 + 128,
        "jointly_invariant": 2 * (32 + 64 + 128),
        "eps_limited": 0,
        "neither": 5,
    }


def test_classes_without_widening_put_the_stem_into_the_first_stream():
    result = probed(wrn(widen_factor=1, **PAPER_WRN))

    assert set(result.classes["conv1"]) == {"jointly_invariant"}
    assert set(result.classes["conv3"]) == {"jointly_invariant"}


def test_with_an_empty_list_of_residual_groups_nothing_is_joint():
    result = probe(wrn(widen_factor=2, **PAPER_WRN), images(), loss, [])

    assert result.counts()["jointly_invariant"] == 0
    assert result.layer_classes()["conv3"] == "neither"


class Block(nn.Module):
    """A pre-activation block that knows nothing of this package."""

    def __init__(self, width):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x):
        branch = self.conv2(self.bn2(self.conv1(self.bn1(x).relu())).relu())
        branch += functional.dropout(x, 0.0)
        return branch


def test_streams_of_a_network_that_lists_none_are_found_by_following_it():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        Block(8),
        nn.AvgPool2d(2),
        Block(8),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )

    result = probe(model, images(), loss)

    assert result.streams == ((("conv1", 0), ("conv3", 0), ("conv5", 0)),)
    assert result.layer_classes() == {
        "conv1": "jointly_invariant",
        "conv2": "invariant",
        "conv3": "jointly_invariant",
        "conv4": "invariant",
        "conv5": "jointly_invariant",
        "linear1": "neither",
    }


def test_streams_found_are_those_that_a_wide_residual_network_lists():
    model = wrn(widen_factor=2, **PAPER_WRN)
    listed = [s for s in probe(model, images(), loss).streams if len(s) > 1]
    vectors = weight_vectors(model)

    _, found, _ = find_streams(vectors, lambda: loss(model, images()))

    assert [sorted(s) for s in found] == [sorted(s) for s in listed]


def test_a_sum_with_what_no_layer_wrote_is_judged_by_its_gradient():
    """Stems that add the input to their output are not invariant, and must not be taken so."""
    torch.manual_seed(0)

    class Stem(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 5)

        def forward(self, x):
            return self.head(self.norm(self.a(x) + self.b(x) + x))

    batch = (torch.randn(64, 6), torch.randint(5, (64,)))

    result = probe(Stem(), batch, loss)

    assert result.streams == ((("linear1", 0), ("linear2", 0)),)
    assert "jointly_invariant" not in result.classes["linear1"]


def test_channels_with_an_unscaled_activation_are_not_invariant():
    """pool_pad: the activated stem enters the middle 16 channels of the stream."""
    result = probed(wrn(widen_factor=2, **PAPER_TF, bn_eps=1e-5))

    # Group 1 has 32 channels; the stem's 16 lie at 8..23 of them.
    middle, rest = (
        result.classes["conv3"][8:24],
        result.classes["conv3"][:8] + result.classes["conv3"][24:],
    )
    assert "jointly_invariant" not in middle
    assert set(rest) == {"jointly_invariant"}


def test_bn_softmax_makes_the_head_invariant_when_eps_is_small():
    small = probed(wrn(widen_factor=2, gamma_c=2.5, bn_eps=1e-8, **PAPER_WRN))
    large = probed(wrn(widen_factor=2, gamma_c=2.5, bn_eps=1e-1, **PAPER_WRN))

    assert set(small.classes["conv11"]) == {"invariant"}
    assert "invariant" not in large.classes["conv11"]


def test_between_the_thresholds_a_vector_is_limited_by_eps():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(100, 4, bias=False), nn.BatchNorm1d(4, eps=5e-3), nn.Linear(4, 5)
    )
    batch = (torch.randn(64, 100), torch.randint(5, (64,)))

    result = probe(model, batch, loss)

    for name, cosine in zip(result.classes["linear1"], result.cosines["linear1"], strict=True):
        expected = "invariant" if cosine < 1e-3 else "eps_limited" if cosine <= 0.01 else "neither"
        assert name == expected
    assert "eps_limited" in result.classes["linear1"]


def test_a_vector_without_gradient_is_neither():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 5))
    with torch.no_grad():
        model[0].bias.fill_(-100.0)  # dead units
    batch = (torch.randn(8, 3), torch.randint(5, (8,)))

    result = probe(model, batch, loss)

    assert result.classes["linear1"] == ("neither", "neither")
    assert result.cosines["linear1"] == (0.0, 0.0)


def test_probing_leaves_the_model_alone():
    model = wrn(widen_factor=1, **PAPER_WRN).eval()
    model.stem.weight.grad = torch.ones_like(model.stem.weight)
    before = copy.deepcopy(model.state_dict())
    probed(model)

    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert not model.training
    assert torch.equal(model.stem.weight.grad, torch.ones_like(model.stem.weight))
    assert all(p.grad is None for p in model.parameters() if p is not model.stem.weight)


@pytest.mark.parametrize("pack", [tuple, list, lambda xy: {"x": xy[0], "y": xy[1]}])
def test_batches_come_as_tuples_lists_or_dicts(pack):
    def any_loss(model, batch):
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
        assert x.dtype == torch.float64
        return functional.cross_entropy(model(x), y)

    model = wrn(widen_factor=1, **PAPER_WRN)

    result = probe(model, pack(images()), any_loss)

    assert sum(result.counts().values()) == sum(v.count for v in weight_vectors(model))
