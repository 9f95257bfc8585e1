"""A batch-normalised perceptron for images, so that not everything is shown on WRNs alone.

The entry point ``mlp`` leads here. Images are averaged to 8 x 8 first, because a network is built
before it sees one; then ``depth`` hidden layers of 64 x ``widen_factor`` units, each Linear-BN-
activation, and a linear layer to the logits, which BN-Softmax follows where ``gamma_c`` is set.
"""

import math

import torch
from torch import Tensor, nn

from ndadam import BatchNormSoftmax
from ndadam.networks.fixed_scale_norm import FixedScaleBatchNorm1d
from ndadam.networks.wide_resnet import INIT_GAIN, LEAKY_SLOPE
from worker.config.train_config import TrainConfig

#: Side that images are averaged to.
_SIDE = 8
#: Units of a hidden layer at widen_factor 1.
_WIDTH = 64


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
        layers.append(nn.LeakyReLU(LEAKY_SLOPE) if config.activation != "relu" else nn.ReLU())
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
    deviation = math.sqrt(INIT_GAIN[str(config.init)] / size)
    weight: Tensor = layer.weight
    weight.normal_(0.0, deviation, generator=generator)
    if bias:
        layer.bias.zero_()
    linear: nn.Linear = layer
    return linear
