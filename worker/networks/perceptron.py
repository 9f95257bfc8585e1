"""A batch-normalised perceptron for images, so that not everything is shown on WRNs alone.

The entry point ``mlp`` leads here. Images are averaged to 8 x 8 first, because a network is built
before it sees one; then ``depth`` hidden layers of 64 x ``widen_factor`` units, each Linear-BN-
activation, and a linear layer to the logits, which BN-Softmax follows where ``gamma_c`` is set.
"""

import math

import torch
from torch import Tensor, nn

from ndadam import BatchNormSoftmax
from worker.config.train_config import TrainConfig

#: Side that images are averaged to.
_SIDE = 8
#: Units of a hidden layer at widen_factor 1.
_WIDTH = 64
# As ndadam.WideResNet: slope of the TensorFlow code, and variance times fan-in.
_LEAKY_SLOPE = 0.1
_INIT_GAIN = {"fan_in_normal": 1.0, "kaiming_normal": 2.0}


class FixedScaleBatchNorm1d(nn.BatchNorm1d):
    """Batch normalisation whose scale is 1 and not trained; the bias is trained."""

    def __init__(self, num_features: int, eps: float, momentum: float) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        del self.weight
        self.register_buffer("weight", torch.ones(num_features), persistent=False)


def perceptron(config: TrainConfig, num_classes: int, in_channels: int) -> nn.Module:
    """The perceptron of a resolved config; initial weights depend on ``config.seed`` alone."""
    assert config.bn_eps is not None
    assert config.bn_momentum is not None
    generator = torch.Generator().manual_seed(config.seed)
    width = round(_WIDTH * config.widen_factor)
    layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(_SIDE), nn.Flatten()]
    norm = nn.BatchNorm1d if config.bn_scale == "trainable" else FixedScaleBatchNorm1d
    before = _SIDE * _SIDE * in_channels
    for _ in range(config.depth):
        layers.append(_linear(config, before, width, generator))
        layers.append(norm(width, config.bn_eps, config.bn_momentum))
        layers.append(nn.LeakyReLU(_LEAKY_SLOPE) if config.activation != "relu" else nn.ReLU())
        before = width
    # Without BN-Softmax nothing ignores the head's size, and it has a bias of its own.
    layers.append(_linear(config, before, num_classes, generator, bias=config.gamma_c is None))
    if config.gamma_c is not None:
        layers.append(BatchNormSoftmax(num_classes, config.gamma_c, config.bn_eps))
    return nn.Sequential(*layers)


@torch.no_grad()
def _linear(
    config: TrainConfig, size: int, width: int, generator: torch.Generator, *, bias: bool = False
) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, size, width, bias=bias)  # type: ignore[no-untyped-call]
    deviation = math.sqrt(_INIT_GAIN[str(config.init)] / size)
    weight: Tensor = layer.weight
    weight.normal_(0.0, deviation, generator=generator)
    if bias:
        layer.bias.zero_()
    linear: nn.Linear = layer
    return linear
