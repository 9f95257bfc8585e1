"""Wide residual networks: published sizes, shapes, initial weights, both recipes in detail."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import WideResNet, weight_vectors
from ndadam.networks.wide_resnet import Block, PoolPad

PAPER_TF = {
    "activation": "leaky_relu",
    "shortcut": "pool_pad",
    "init": "fan_in_normal",
    "bn_eps": 1e-3,
}
PAPER_WRN = {"activation": "relu", "shortcut": "conv", "init": "kaiming_normal", "bn_eps": 1e-5}
RECIPES = pytest.mark.parametrize("recipe", [PAPER_TF, PAPER_WRN], ids=["paper-tf", "paper-wrn"])


def count(model):
    return sum(p.numel() for p in model.parameters())


# Table 4 and the model table of arXiv:1605.07146, in millions to one digit.
@pytest.mark.parametrize(
    ("depth", "widen_factor", "millions"),
    [
        (40, 1, 0.6),
        (40, 2, 2.2),
        (40, 4, 8.9),
        (16, 8, 11.0),
        (16, 10, 17.1),
        (22, 8, 17.2),
        (28, 10, 36.5),
    ],
)
def test_parameter_counts_are_the_published_ones(depth, widen_factor, millions):
    with torch.device("meta"):
        assert count(WideResNet(depth, widen_factor, 10)) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    ("depth", "widen_factor", "convolutions", "rows", "bn_channels"),
    [(22, 7.5, 15.07e6, 5906, 10112), (28, 10, 36.46e6, 10106, 17952)],
)
def test_sizes_of_the_papers_networks_in_the_conv_recipe(
    depth, widen_factor, convolutions, rows, bn_channels
):
    model = WideResNet(depth, widen_factor, 10, **PAPER_WRN)
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert sum(w.numel() for w in weights) == pytest.approx(convolutions, rel=1e-3)
    assert sum(len(w) for w in weights) == rows
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert sum(2 * m.num_features for m in norms) == bn_channels


def test_widths_of_wrn_22_7_5_are_the_papers():
    model = WideResNet(22, 7.5, 10, **PAPER_TF)

    assert [group[0].conv1.out_channels for group in model.groups] == [120, 240, 480]
    assert model.stem.out_channels == 16
    assert sum(isinstance(m, nn.Conv2d) for m in model.modules()) == 20  # stem, 18, head


@RECIPES
@pytest.mark.parametrize("bn_scale", ["trainable", "fixed"])
@pytest.mark.parametrize("gamma_c", [None, 2.5])
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 8), (1, 9), (3, 4)])
def test_every_variant_takes_every_image_size_and_trains_every_parameter(
    recipe, bn_scale, gamma_c, channels, size
):
    model = WideResNet(10, 2, 7, channels, bn_scale=bn_scale, gamma_c=gamma_c, **recipe)
    logits = model(torch.randn(4, channels, size, size))
    functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()

    assert logits.shape == (4, 7)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@RECIPES
def test_fixed_scales_are_ones_outside_the_parameters(recipe):
    model = WideResNet(10, 1, 10, bn_scale="fixed", **recipe)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]

    for norm in norms:
        assert torch.equal(norm.weight, torch.ones(norm.num_features))
        assert [name for name, _ in norm.named_parameters()] == ["bias"]
    trainable = WideResNet(10, 1, 10, **recipe)
    assert count(trainable) - count(model) == sum(m.num_features for m in norms)


def test_fixed_and_trainable_scales_start_as_the_same_function():
    x = torch.randn(4, 3, 16, 16)
    logits = [
        WideResNet(10, 1, 10, bn_scale=scale, generator=torch.Generator().manual_seed(1))(x)
        for scale in ("trainable", "fixed")
    ]

    torch.testing.assert_close(logits[0], logits[1])


@pytest.mark.parametrize(("init", "gain"), [("fan_in_normal", 1.0), ("kaiming_normal", 2.0)])
def test_initial_weights_have_the_recipes_deviation(init, gain):
    model = WideResNet(10, 4, 10, init=init, generator=torch.Generator().manual_seed(0))

    for v in weight_vectors(model):
        expected = math.sqrt(gain / v.length)
        deviation = 4 * expected / math.sqrt(2 * v.parameter.numel())
        assert v.parameter.std().item() == pytest.approx(expected, abs=deviation)
        assert abs(v.parameter.mean().item()) < 4 * expected / math.sqrt(v.parameter.numel())


def test_the_generator_alone_decides_the_weights():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    models = [WideResNet(10, 1, 10, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(models[0].stem.weight, models[1].stem.weight)
    assert not torch.equal(models[0].stem.weight, models[2].stem.weight)


def test_no_convolution_has_a_bias():
    model = WideResNet(10, 2, 10)

    assert all(m.bias is None for m in model.modules() if isinstance(m, nn.Conv2d))


def test_the_leaky_slope_is_the_papers():
    slopes = {
        m.negative_slope
        for m in WideResNet(10, 1, 10, **PAPER_TF).modules()
        if isinstance(m, nn.LeakyReLU)
    }

    assert slopes == {0.1}


def test_bn_settings_reach_every_normalisation():
    model = WideResNet(10, 1, 10, bn_eps=1e-3, bn_momentum=0.2, gamma_c=2.5)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]

    assert {(m.eps, m.momentum) for m in norms} == {(1e-3, 0.2)}
    assert len(norms) == 3 * 2 + 1 + 1


def shortcuts(**recipe):
    model = WideResNet(16, 2, 10, **recipe)
    return [[(type(b.shortcut), b.shares_activation) for b in group] for group in model.groups]


def test_shortcuts_of_paper_tf():
    identity = (nn.Identity, False)

    assert shortcuts(**PAPER_TF) == [
        [(PoolPad, True), identity],
        [(PoolPad, False), identity],
        [(PoolPad, False), identity],
    ]


def test_shortcuts_of_paper_wrn():
    changes = [(nn.Conv2d, True), (nn.Identity, False)]

    assert shortcuts(**PAPER_WRN) == [changes, changes, changes]


@pytest.mark.parametrize(("recipe", "shares"), [(PAPER_TF, True), (PAPER_WRN, False)])
def test_the_first_block_where_the_width_stays(recipe, shares):
    """k = 1: the TensorFlow code activates before the shortcut anyway, the WRN code does not."""
    first = WideResNet(10, 1, 10, **recipe).groups[0][0]

    assert isinstance(first.shortcut, nn.Identity)
    assert first.shares_activation is shares


def test_the_pooling_shortcut_averages_and_pads_on_both_sides():
    x = torch.arange(16.0).view(1, 1, 4, 4).expand(1, 2, 4, 4)

    out = PoolPad(2, 6, stride=2)(x)

    assert out.shape == (1, 6, 2, 2)
    assert torch.equal(out[0, 2:4], torch.tensor([[2.5, 4.5], [10.5, 12.5]]).expand(2, 2, 2))
    assert not out[0, :2].any()
    assert not out[0, 4:].any()


def test_a_block_computes_what_its_sentence_says():
    torch.manual_seed(0)
    block = Block(
        4,
        8,
        2,
        norm=nn.BatchNorm2d,
        activation=nn.ReLU(),
        shortcut="conv",
        shares_activation=True,
    )
    for conv in (block.conv1, block.conv2, block.shortcut):
        nn.init.normal_(conv.weight, std=0.1)
    x = torch.randn(5, 4, 6, 6)

    def normalise(x):
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
        return (x - mean) / (var + 1e-5).sqrt()

    activated = normalise(x).relu()
    inner = functional.conv2d(activated, block.conv1.weight, stride=2, padding=1)
    out = functional.conv2d(normalise(inner).relu(), block.conv2.weight, padding=1)
    expected = out + functional.conv2d(activated, block.shortcut.weight, stride=2)

    torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


def test_the_end_is_convolution_then_average():
    model = WideResNet(10, 1, 10, gamma_c=2.5).eval()
    x = torch.randn(2, 3, 16, 16)

    maps = model.stem(x)
    for group in model.groups:
        maps = group(maps)
    pooled = model.head(model.activation(model.norm(maps))).mean((2, 3))

    torch.testing.assert_close(model(x), model.softmax(pooled))


def test_layers_are_counted_from_the_stem():
    layers = [v.layer for v in weight_vectors(WideResNet(22, 1, 10, **PAPER_TF))]
    names = [v.name for v in weight_vectors(WideResNet(22, 1, 10, **PAPER_TF))]

    assert layers == [f"conv{i}" for i in range(1, 21)]
    assert (names[0], names[4], names[-1]) == (
        "stem.weight",
        "groups.0.1.conv2.weight",
        "head.weight",
    )


def streams(**settings):
    model = WideResNet(10, **settings, num_classes=10)
    names = {p: name for name, p in model.named_parameters()}
    return [[(names[p], channel) for p, channel in stream] for stream in model.residual_groups()]


def test_residual_streams_of_paper_wrn():
    def stage(i, first):
        return [(first, 0), (f"groups.{i}.0.conv2.weight", 0)]

    wide = [stage(i, f"groups.{i}.0.shortcut.weight") for i in range(3)]
    assert streams(widen_factor=2, **PAPER_WRN) == wide
    assert streams(widen_factor=1, **PAPER_WRN) == [stage(0, "stem.weight"), *wide[1:]]


def test_residual_streams_of_paper_tf_span_the_groups():
    """Channels 0..31 of group 1 become 16..47 of 64, then 48..79 of 128."""
    assert streams(widen_factor=2, **PAPER_TF) == [
        [
            ("groups.0.0.conv2.weight", 48),
            ("groups.1.0.conv2.weight", 32),
            ("groups.2.0.conv2.weight", 0),
        ]
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 11}, "depth must be 6n \\+ 4 and at least 10, got 11"),
        ({"depth": 4}, "depth must be 6n \\+ 4 and at least 10, got 4"),
        (
            {"widen_factor": 0.3},
            "widen_factor must be > 0 and make 16 x widen_factor whole, got 0.3",
        ),
        ({"widen_factor": -1}, "widen_factor must be > 0"),
        ({"widen_factor": 0.5, "shortcut": "pool_pad"}, "widen_factor must be >= 1 with shortcut"),
        ({"activation": "tanh"}, "activation must be one of leaky_relu, relu; got 'tanh'"),
        ({"init": "zeros"}, "init must be one of fan_in_normal, kaiming_normal; got 'zeros'"),
        ({"bn_scale": "none"}, "bn_scale must be one of trainable, fixed; got 'none'"),
        ({"gamma_c": 0.0}, "gamma_c must be > 0"),
        ({"bn_eps": -1e-3}, "bn_eps must be >= 0 and finite, got -0.001"),
        ({"bn_eps": float("nan")}, "bn_eps must be >= 0 and finite"),
        ({"bn_momentum": 1.5}, "bn_momentum must be between 0 and 1, got 1.5"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"in_channels": 0}, "in_channels must be at least 1, got 0"),
    ],
)
def test_networks_that_cannot_be_built_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        WideResNet(**{"depth": 10, "widen_factor": 1, "num_classes": 10, **settings})
