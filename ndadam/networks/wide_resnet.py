"""Wide residual networks as the paper trains them, in both of its variants.

Zagoruyko and Komodakis, arXiv:1605.07146, with the change of arXiv:1709.04546, Sec. 5.1: the end
of the network is BN-ReLU-Conv1x1-GlobalAvgPool-Softmax.
"""

import itertools
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from ndadam.networks.batch_norm_softmax import BatchNormSoftmax
from ndadam.networks.fixed_scale_norm import FixedScaleBatchNorm2d

#: (parameter, channel): row r of the parameter writes to channel + r of the residual stream.
Writer = tuple[Tensor, int]
Activation = Literal["leaky_relu", "relu"]
Shortcut = Literal["pool_pad", "conv"]
Init = Literal["fan_in_normal", "kaiming_normal"]
Norm = Callable[[int], nn.BatchNorm2d]

_STEM_WIDTH = 16
# Slope of the TensorFlow code that the paper's Table 1 is based on.
LEAKY_SLOPE = 0.1
# Variance times fan-in of the initial weights.
INIT_GAIN: dict[str, float] = {"fan_in_normal": 1.0, "kaiming_normal": 2.0}


class Block(nn.Module):
    """BN-ReLU-Conv3x3-BN-ReLU-Conv3x3 beside a shortcut.

    Args:
        width_in: Channels of the input.
        width_out: Channels of the output.
        stride: Of the first convolution and of the shortcut.
        norm: Makes a batch normalisation for a number of channels.
        activation: Non-linearity.
        shortcut: What the shortcut does where the width changes.
        shares_activation: Whether the shortcut takes the activated input.
    """

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        *,
        norm: Norm,
        activation: nn.Module,
        shortcut: Shortcut,
        shares_activation: bool,
    ) -> None:
        super().__init__()
        self.shares_activation = shares_activation
        self.norm1 = norm(width_in)
        self.activation = activation
        self.conv1 = _convolution(width_in, width_out, 3, stride)
        self.norm2 = norm(width_out)
        self.conv2 = _convolution(width_out, width_out, 3)
        self.shortcut = _shortcut(width_in, width_out, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.activation(self.norm1(x))
        out: Tensor = self.conv2(self.activation(self.norm2(self.conv1(activated))))
        shortcut: Tensor = self.shortcut(activated if self.shares_activation else x)
        return out + shortcut


class PoolPad(nn.Module):
    """Shortcut without weights: average pool by the stride, zero channels added on both sides."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (width_out - width_in) // 2
        self.after = width_out - width_in - self.before

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            # ceil: an odd image keeps the size that the strided convolution gives it.
            x = functional.avg_pool2d(x, self.stride, ceil_mode=True, count_include_pad=False)
        return functional.pad(x, (0, 0, 0, 0, self.before, self.after))


class WideResNet(nn.Module):
    """WRN-depth-widen_factor for images (N, in_channels, H, W); returns logits (N, num_classes).

    The returned logits are those that enter the softmax: with ``gamma_c`` they have gone through
    ``BatchNormSoftmax``. Depth is 6n + 4, widths are 16, 16k, 32k, 64k. No convolution has a bias.

    Args:
        depth: 6n + 4, at least 10.
        widen_factor: k; 16 k must be whole.
        num_classes: Classes.
        in_channels: Channels of the images.
        activation: "leaky_relu" (slope 0.1) or "relu".
        shortcut: Where the width changes: "pool_pad", average pool by the stride and zero channels
            on both sides (the paper's Table 1), or "conv", a strided 1x1 convolution on the
            activated input (Table 2). With "pool_pad" the first block of group 1 shares its
            BN-ReLU with the shortcut; with "conv" each block with a shortcut convolution does.
        init: Convolution weights are normal with variance 1/fan_in or 2/fan_in.
        bn_eps: Added to the variance in batch normalisation.
        bn_momentum: Weight of the new batch in the running statistics (torch's sense).
        bn_scale: "trainable", or "fixed" at 1 ("w/o scaling factors").
        gamma_c: Scale of BN-Softmax on the pooled logits, or None for plain logits.
        generator: Draws the initial weights; torch's default generator when None.

    Raises:
        ValueError: Values outside their range.
    """

    def __init__(
        self,
        depth: int,
        widen_factor: float,
        num_classes: int,
        in_channels: int = 3,
        *,
        activation: Activation = "relu",
        shortcut: Shortcut = "conv",
        init: Init = "kaiming_normal",
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        bn_scale: Literal["trainable", "fixed"] = "trainable",
        gamma_c: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, number in (("num_classes", num_classes), ("in_channels", in_channels)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if not 0 <= bn_eps < math.inf:
            raise ValueError(f"bn_eps must be >= 0 and finite, got {bn_eps}")
        if not 0 <= bn_momentum <= 1:
            raise ValueError(f"bn_momentum must be between 0 and 1, got {bn_momentum}")
        widths = _widths(depth, widen_factor, shortcut)
        _check_choices(activation=activation, shortcut=shortcut, init=init, bn_scale=bn_scale)
        make_norm = nn.BatchNorm2d if bn_scale == "trainable" else FixedScaleBatchNorm2d

        def norm(width: int) -> nn.BatchNorm2d:
            return make_norm(width, eps=bn_eps, momentum=bn_momentum)

        nonlinearity = nn.LeakyReLU(LEAKY_SLOPE) if activation == "leaky_relu" else nn.ReLU()
        self.stem = _convolution(in_channels, widths[0], 3)
        self.groups = nn.ModuleList()
        for number, (width_in, width_out) in enumerate(itertools.pairwise(widths)):
            blocks = [
                Block(
                    width_out if index else width_in,
                    width_out,
                    stride=2 if index == 0 and number > 0 else 1,
                    norm=norm,
                    activation=nonlinearity,
                    shortcut=shortcut,
                    shares_activation=index == 0
                    and (number == 0 if shortcut == "pool_pad" else width_in != width_out),
                )
                for index in range((depth - 4) // 6)
            ]
            self.groups.append(nn.Sequential(*blocks))
        self.norm = norm(widths[-1])
        self.activation = nonlinearity
        self.head = _convolution(widths[-1], num_classes, 1)
        self.softmax: nn.Module = (
            nn.Identity()
            if gamma_c is None
            else BatchNormSoftmax(num_classes, gamma_c, bn_eps, bn_momentum)
        )
        self._draw_weights(INIT_GAIN[init], generator)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for group in self.groups:
            x = group(x)
        maps = self.head(self.activation(self.norm(x)))
        logits: Tensor = self.softmax(maps.mean((2, 3)))
        return logits

    def residual_groups(self) -> list[list[Writer]]:
        """Convolutions that write to the same residual channels, one list per residual stream.

        An entry (parameter, channel) says that row r of the parameter is added to channel
        ``channel + r`` of that stream. Only batch normalisations read a stream, so the loss does
        not change when all rows of one channel are scaled together, except where an activation
        enters the stream unscaled (first block of group 1 with "pool_pad").
        """
        blocks = [block for block in self.modules() if isinstance(block, Block)]
        streams: list[list[Writer]] = (
            [] if blocks[0].shares_activation else [[(self.stem.weight, 0)]]
        )
        for block in blocks:
            if isinstance(block.shortcut, nn.Conv2d):
                streams.append([(block.shortcut.weight, 0)])
            elif block.shares_activation:
                streams.append([])
            elif isinstance(block.shortcut, PoolPad):
                before = block.shortcut.before
                streams[-1] = [(weight, channel + before) for weight, channel in streams[-1]]
            streams[-1].append((block.conv2.weight, 0))
        return streams

    @torch.no_grad()
    def _draw_weights(self, gain: float, generator: torch.Generator | None) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_in = module.weight[0].numel()
                nn.init.normal_(module.weight, std=math.sqrt(gain / fan_in), generator=generator)


def _convolution(width_in: int, width_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    # skip_init: torch's own initial weights would be drawn from the global generator.
    convolution: nn.Conv2d = skip_init(  # type: ignore[no-untyped-call]
        nn.Conv2d,
        width_in,
        width_out,
        size,
        stride=stride,
        padding=size // 2,
        bias=False,
    )
    return convolution


def _shortcut(width_in: int, width_out: int, stride: int, kind: Shortcut) -> nn.Module:
    if width_in == width_out and stride == 1:
        return nn.Identity()
    if kind == "conv":
        return _convolution(width_in, width_out, 1, stride)
    return PoolPad(width_in, width_out, stride)


def _widths(depth: int, widen_factor: float, shortcut: str) -> list[int]:
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 6n + 4 and at least 10, got {depth}")
    if not widen_factor > 0 or not float(_STEM_WIDTH * widen_factor).is_integer():
        raise ValueError(
            f"widen_factor must be > 0 and make 16 x widen_factor whole, got {widen_factor}"
        )
    if shortcut == "pool_pad" and widen_factor < 1:
        raise ValueError(
            "widen_factor must be >= 1 with shortcut 'pool_pad', which can only add channels; "
            f"got {widen_factor}"
        )
    base = int(_STEM_WIDTH * widen_factor)
    return [_STEM_WIDTH, base, 2 * base, 4 * base]


def _check_choices(*, activation: str, shortcut: str, init: str, bn_scale: str) -> None:
    choices = {
        "activation": (activation, ("leaky_relu", "relu")),
        "shortcut": (shortcut, ("pool_pad", "conv")),
        "init": (init, tuple(INIT_GAIN)),
        "bn_scale": (bn_scale, ("trainable", "fixed")),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
