"""A scale behind unit weight vectors: the same function wrapped, trained and folded."""

import pytest
import torch
from torch import nn

from ndadam import NDAdam, Scaled, describe_groups, fold_batch_norm, param_groups

LAYERS = [
    (lambda: nn.Linear(5, 4), (3, 5)),
    (lambda: nn.Linear(5, 4), (3, 2, 5)),
    (lambda: nn.Linear(5, 4, bias=False), (3, 5)),
    (lambda: nn.Conv1d(4, 6, 3), (2, 4, 7)),
    (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 7, 7)),
    (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 7, 7)),
    (lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    (lambda: nn.ConvTranspose1d(4, 6, 3), (2, 4, 7)),
    (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 7, 7)),
    (lambda: nn.ConvTranspose3d(2, 3, 2), (2, 2, 4, 4, 4)),
]
EVERY_LAYER = pytest.mark.parametrize(
    ("make", "shape"), LAYERS, ids=lambda x: str(x() if callable(x) else x)
)


def case(make, shape):
    torch.manual_seed(0)
    return make().double(), torch.randn(shape, dtype=torch.float64)


def norms(weight, dim):
    return torch.linalg.vector_norm(weight.detach().movedim(dim, 0).flatten(1), dim=1)


@EVERY_LAYER
def test_a_wrapped_layer_computes_what_it_computed_with_unit_vectors(make, shape):
    layer, x = case(make, shape)
    expected = torch.relu(layer(x))

    scaled = Scaled(layer, torch.relu)

    torch.testing.assert_close(scaled(x), expected, rtol=0, atol=1e-12)
    unit = norms(layer.weight, scaled._vector_dim)
    torch.testing.assert_close(unit, torch.ones_like(unit), rtol=0, atol=1e-12)


@EVERY_LAYER
def test_after_training_the_folded_layer_computes_the_same(make, shape):
    layer, x = case(make, shape)
    scaled = Scaled(layer, nn.Tanh())
    optimizer = NDAdam(param_groups(scaled, alpha_v=0.1, alpha_s=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        (scaled(x) - 0.3).square().mean().backward()
        optimizer.step()

    folded = scaled.folded()

    torch.testing.assert_close(folded(x), scaled(x), rtol=0, atol=1e-12)
    assert type(folded[0]) is type(layer)
    folded_norms = norms(folded[0].weight, scaled._vector_dim)
    torch.testing.assert_close(folded_norms, scaled.scale.detach().abs(), rtol=0, atol=1e-12)
    unit = norms(layer.weight, scaled._vector_dim)
    torch.testing.assert_close(unit, torch.ones_like(unit), rtol=0, atol=1e-12)


def test_without_an_activation_the_folded_layer_is_of_the_kind_that_was_wrapped():
    layer, x = case(lambda: nn.Linear(5, 4), (3, 5))
    before = layer(x)

    folded = Scaled(layer).folded()

    assert type(folded) is nn.Linear
    torch.testing.assert_close(folded(x), before, rtol=0, atol=1e-12)
    torch.testing.assert_close(Scaled(layer, torch.tanh).folded()(x).shape, before.shape)


def test_folding_shares_nothing_with_what_is_trained_on():
    scaled = Scaled(nn.Linear(5, 4))
    before = scaled.layer.weight.detach().clone()

    folded = scaled.folded()
    with torch.no_grad():
        folded.weight.zero_()
        folded.bias.add_(1)

    assert torch.equal(scaled.layer.weight, before)
    assert not torch.equal(folded.bias, scaled.bias)


def test_the_scale_and_the_bias_are_scalars_and_the_weight_is_vectors():
    scaled = Scaled(nn.Linear(5, 4))

    vectors, scalars = param_groups(scaled)

    assert vectors["params"] == [scaled.layer.weight]
    assert {id(p) for p in scalars["params"]} == {id(scaled.scale), id(scaled.bias)}
    assert "scale of Scaled" in describe_groups(scaled)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("make", "norm", "shape"),
    [
        (lambda: nn.Linear(5, 4), nn.BatchNorm1d, (6, 5)),
        (lambda: nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d, (2, 4, 7, 7)),
        (lambda: nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d, (2, 4, 7)),
    ],
)
def test_batch_normalisation_folds_into_the_layer_before_it(make, norm, shape, affine):
    layer, x = case(make, shape)
    outputs = layer(x)
    norm = norm(outputs.shape[1], affine=affine).double()
    norm(outputs)  # moves the running statistics off 0 and 1
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    norm.eval()

    torch.testing.assert_close(fold_batch_norm(layer, norm)(x), norm(outputs), rtol=0, atol=1e-12)


def test_what_cannot_be_scaled_or_folded_is_refused():
    with pytest.raises(ValueError, match=r"only linear layers and convolutions .* got Embedding"):
        Scaled(nn.Embedding(3, 2))
    with pytest.raises(ValueError, match="transposed convolution with 2 groups cannot be scaled"):
        Scaled(nn.ConvTranspose2d(4, 6, 3, groups=2))
    for lazy in (nn.LazyLinear(3), nn.LazyConv2d(3, 3)):
        with pytest.raises(ValueError, match=f"{type(lazy).__name__} has no shape yet: run one"):
            Scaled(lazy)
    with pytest.raises(ValueError, match="LazyBatchNorm1d has no shape yet: run one batch"):
        fold_batch_norm(nn.Linear(2, 2), nn.LazyBatchNorm1d())
    with pytest.raises(ValueError, match="must be a batch normalisation, got ReLU"):
        fold_batch_norm(nn.Linear(2, 2), nn.ReLU())
    for width in (1, 3):
        with pytest.raises(ValueError, match=f"as the layer has outputs, 2, got {width}"):
            fold_batch_norm(nn.Linear(2, 2), nn.BatchNorm1d(width))
    with pytest.raises(ValueError, match="without running statistics"):
        fold_batch_norm(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))


@pytest.mark.parametrize(
    "parametrise",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.spectral_norm,
    ],
)
def test_a_weight_computed_from_others_is_refused(parametrise):
    """Its layer would compute the weight anew, without what was merged into it."""
    message = "the weight of .*Linear is computed from others .* remove that first"
    with pytest.raises(ValueError, match=message):
        Scaled(parametrise(nn.Linear(5, 4)))
    with pytest.raises(ValueError, match=message):
        fold_batch_norm(parametrise(nn.Linear(5, 4)), nn.BatchNorm1d(4))


def test_norms_whose_square_leaves_the_range_are_scales_too():
    layer = nn.Linear(5, 4, bias=False)
    with torch.no_grad():
        layer.weight[0] *= 1e25
        layer.weight[1] *= 1e-30
    x = torch.randn(3, 5)
    expected = layer(x).detach()

    torch.testing.assert_close(Scaled(layer)(x), expected)


def test_what_is_folded_in_evaluation_is_in_evaluation():
    scaled = Scaled(nn.Linear(5, 4), torch.relu)

    assert scaled.folded().training
    assert not scaled.eval().folded().training
