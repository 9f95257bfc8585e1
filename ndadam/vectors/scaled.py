"""A scale and a bias for layers of unit weight vectors, and how they are merged for inference.

Section 3.2 of arXiv:1709.04546. A layer without batch normalisation computes y = phi(w . x + b).
With w of unit norm it could not choose the size of what it computes; a trainable scale per hidden
unit gives that back: y = phi(gamma w . x + b).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ndadam.vectors.turning import normalise_vectors_

_LINEAR = (nn.Linear,)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Scaled(nn.Module):
    """phi(gamma w . x + b) around a linear or convolutional layer, computing what it computed.

    The layer's weight vectors are normalised and their norms become ``scale``, gamma, one number
    per hidden unit; its bias moves out of it, behind the scale. ``param_groups`` then holds the
    weight as vectors, scale and bias as scalars. A zero vector keeps scale 0; ``NDAdam`` warns
    about it.

    Args:
        layer: ``nn.Linear`` or a convolution, also transposed; changed in place.
        activation: phi, applied last; None for none.

    Raises:
        ValueError: Another kind of layer, a parametrised one, a lazy one that has seen no batch, or
            a transposed convolution with groups, whose vectors span several hidden units.
    """

    def __init__(
        self, layer: nn.Module, activation: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(layer, nn.Module):
            raise TypeError(f"layer must be an nn.Module, got {type(layer).__name__}")
        if activation is not None and not callable(activation):
            raise TypeError(f"activation must be a function or None, got {activation!r}")
        self._vector_dim = _vector_dim_of(layer)
        weight = layer.weight
        assert isinstance(weight, Tensor)
        rows = weight.detach().movedim(self._vector_dim, 0).flatten(1)
        # In double precision: the square of a large norm leaves the range of the others.
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).to(weight.dtype)
        with torch.no_grad():
            dims = tuple(d for d in range(weight.dim()) if d != self._vector_dim)
            normalise_vectors_(weight, dims)
        self.scale = nn.Parameter(norms)  # (hidden units,)
        self.bias = _bias_of(layer)
        layer.register_parameter("bias", None)
        self.layer: nn.Module = layer
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """The activations, in the shape that the layer gives."""
        z = self.layer(x)
        # Hidden units are the last dimension of a linear layer, the first after N of others.
        shape = [-1] + [1] * (0 if isinstance(self.layer, _LINEAR) else self._weight.dim() - 2)
        z = z * self.scale.view(shape)
        if self.bias is not None:
            z = z + self.bias.view(shape)
        return z if self.activation is None else self.activation(z)

    def folded(self) -> nn.Module:
        """A plain layer with weights gamma w and bias b that computes the same, for inference.

        Without an activation it is a layer like the one that was wrapped, otherwise that and the
        activation in an ``nn.Sequential``. Nothing is shared with this module.
        """
        layer = copy.deepcopy(self.layer)
        weight = layer.weight
        assert isinstance(weight, Tensor)
        _scale_vectors_(weight, self.scale.detach(), self._vector_dim)
        if self.bias is not None:
            layer.bias = nn.Parameter(self.bias.detach().clone())
        if self.activation is None:
            return layer
        return nn.Sequential(layer, _as_module(self.activation)).train(self.training)

    @property
    def _weight(self) -> Tensor:
        weight = self.layer.weight
        assert isinstance(weight, Tensor)
        return weight


class VectorScale(nn.Module):
    """Computes a weight as a trainable scale times unit vectors, as a parametrisation of torch.

    What ``Scaled`` does to a layer's output, for any weight and without another layer around it.

    Args:
        scale: One number per vector, (V,).
        vector_dim: Dimension of the weight that indexes the vectors.
        num_dims: Dimensions of the weight.
    """

    def __init__(self, scale: Tensor, vector_dim: int, num_dims: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)
        self._shape = [-1 if d == vector_dim else 1 for d in range(num_dims)]

    def forward(self, vectors: Tensor) -> Tensor:
        """The weight, in the shape of ``vectors``."""
        return vectors * self.scale.view(self._shape)


def fold_batch_norm(layer: nn.Module, norm: nn.Module) -> nn.Module:
    """A copy of ``layer`` that also does what the batch normalisation behind it does in evaluation.

    The normalisation's scale over its running deviation goes into the weight vectors, its running
    mean and its bias into the bias.

    Raises:
        ValueError: Another kind of layer, a parametrised one, a lazy module that has seen no batch,
            or a normalisation without running statistics or of another width.
    """
    vector_dim = _vector_dim_of(layer)
    if not isinstance(norm, nn.modules.batchnorm._BatchNorm):
        raise ValueError(
            f"the second layer must be a batch normalisation, got {type(norm).__name__}"
        )
    _refuse_lazy(norm)
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise ValueError("batch normalisation without running statistics cannot be folded")
    scale = torch.rsqrt(variance + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    folded = copy.deepcopy(layer)
    weight, bias = folded.weight, _bias_of(layer)
    assert isinstance(weight, Tensor)
    if norm.num_features != weight.shape[vector_dim]:
        raise ValueError(
            f"the batch normalisation must have as many features as the layer has outputs, "
            f"{weight.shape[vector_dim]}, got {norm.num_features}"
        )
    _scale_vectors_(weight, scale, vector_dim)
    shift = -mean * scale if bias is None else (bias.detach() - mean) * scale
    folded.bias = nn.Parameter(shift if norm.bias is None else shift + norm.bias.detach())
    return folded


def _refuse_lazy(module: nn.Module) -> None:
    if any(map(is_lazy, module.parameters())) or any(map(is_lazy, module.buffers())):
        raise ValueError(
            f"{type(module).__name__} has no shape yet: run one batch through the model, which "
            "gives its lazy modules their shapes, and scale or fold it then"
        )


def _vector_dim_of(layer: nn.Module) -> int:
    _refuse_lazy(layer)
    if isinstance(layer, _LINEAR + _CONVOLUTIONS + _TRANSPOSED) and "weight" not in dict(
        layer.named_parameters(recurse=False)
    ):
        raise ValueError(
            f"the weight of {type(layer).__name__} is computed from others (weight_norm, "
            "spectral_norm, …), so a scale cannot be merged into it: remove that first, with "
            "torch.nn.utils.parametrize.remove_parametrizations or the older hook's remove function"
        )
    if isinstance(layer, _LINEAR + _CONVOLUTIONS):
        return 0
    if not isinstance(layer, _TRANSPOSED):
        raise ValueError(
            f"only linear layers and convolutions can be scaled, got {type(layer).__name__}"
        )
    if layer.groups > 1:
        raise ValueError(
            f"a transposed convolution with {layer.groups} groups cannot be scaled: each of its "
            "weight vectors joins the weights of several hidden units"
        )
    return 1


def _bias_of(layer: nn.Module) -> nn.Parameter | None:
    bias = layer.bias
    return bias if isinstance(bias, nn.Parameter) else None


@torch.no_grad()
def _scale_vectors_(weight: Tensor, scale: Tensor, vector_dim: int) -> None:
    shape = [-1 if d == vector_dim else 1 for d in range(weight.dim())]
    weight.mul_(scale.view(shape))


def _as_module(activation: Callable[[Tensor], Tensor]) -> nn.Module:
    if isinstance(activation, nn.Module):
        return copy.deepcopy(activation)
    return _Function(activation)


class _Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)
