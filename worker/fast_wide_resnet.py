"""The training pass of a ``WideResNet`` in few, large kernels, on the network's own parameters.

What is computed is the network's ``forward``: same weights, same running statistics, gradients in
the same ``.grad``. Only the order of rounding differs; the head averages before its 1x1 convolution
and not after, in float32, which is the same sum.
"""

from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from ndadam.wide_resnet import Block, FixedScaleBatchNorm2d, PoolPad, WideResNet
from worker.conv_layers import PaddedConv, PaddedPoolPad, padded
from worker.norm_act import Layer, add_norm_act, norm_act, pool


class FastWideResNet:
    """Runs training passes of ``model``; works in ``dtype`` with float32 sums and parameters."""

    def __init__(self, model: WideResNet, dtype: torch.dtype) -> None:
        self.model = model
        self._dtype = dtype
        self._convs: list[PaddedConv] = []
        self._norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        widths = [padded(norm.num_features) for norm in self._norms]
        device = model.stem.weight.device
        self._sums = torch.zeros(4, sum(widths), dtype=torch.float32, device=device)
        slope = getattr(model.activation, "negative_slope", 0.0)
        # In one piece, so that a step clears all with one call.
        flat = self._sums.view(-1)
        starts = [0]
        for width in widths:
            starts.append(starts[-1] + 4 * width)
        self._layers = {
            norm: Layer(norm, slope, flat[a:b].view(4, -1))
            for norm, (a, b) in zip(self._norms, pairwise(starts), strict=True)
        }
        tracked = [norm.num_batches_tracked for norm in self._norms]
        self._counters = [count for count in tracked if count is not None]
        self._stem = self.conv(model.stem)
        blocks = [block for block in model.groups.modules() if isinstance(block, Block)]
        self._blocks = [_Parts(self, block) for block in blocks]

    @property
    def in_channels(self) -> int:
        """Channels of the images it takes; those that the network does not have are 0."""
        return self._stem.weight.shape[1]

    def __call__(
        self,
        images: Tensor,  # (N, in_channels, H, W), channels last, in the working type
    ) -> Tensor:  # (N, classes) float32
        """Logits that enter the softmax."""
        with torch.no_grad():
            self._sums.zero_()
            torch._foreach_add_(self._counters, 1)
            for conv in self._convs:
                conv.refresh()
        stream, addend = self._stem(images), None
        for parts in self._blocks:
            stream, addend = parts(stream, addend)
        model = self.model
        _, y = self.enter(model.norm, stream, addend)
        pooled = pool(y)[:, : model.norm.num_features]
        logits: Tensor = model.softmax(functional.linear(pooled, model.head.weight.flatten(1)))
        return logits

    def enter(
        self, norm: nn.BatchNorm2d, stream: Tensor, addend: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The residual stream, and what a normalisation with activation makes of it."""
        layer = self._layers[norm]
        if addend is None:
            return stream, norm_act(layer, stream)
        return add_norm_act(layer, stream, addend)

    def conv(self, module: nn.Conv2d) -> PaddedConv:
        """A convolution of the network, padded."""
        conv = PaddedConv(module, self._dtype)
        self._convs.append(conv)
        return conv


class _Parts:
    """One block; its sum is left to the normalisation that follows."""

    def __init__(self, network: FastWideResNet, block: Block) -> None:
        self._network, self._block = network, block
        self._conv1, self._conv2 = network.conv(block.conv1), network.conv(block.conv2)
        shortcut = block.shortcut
        self._shortcut: Any = None
        if isinstance(shortcut, PoolPad):
            self._shortcut = PaddedPoolPad(shortcut, block.norm1.num_features)
        elif isinstance(shortcut, nn.Conv2d):
            self._shortcut = network.conv(shortcut)

    def __call__(self, stream: Tensor, addend: Tensor | None) -> tuple[Tensor, Tensor]:
        block, network = self._block, self._network
        stream, activated = network.enter(block.norm1, stream, addend)
        _, inner = network.enter(block.norm2, self._conv1(activated), None)
        shortcut = activated if block.shares_activation else stream
        if self._shortcut is not None:
            shortcut = self._shortcut(shortcut)
        return self._conv2(inner), shortcut


def is_fast(model: nn.Module) -> TypeGuard[WideResNet]:
    """Whether ``FastWideResNet`` computes what ``model`` does."""
    return type(model) is WideResNet and all(
        type(m) in (nn.BatchNorm2d, FixedScaleBatchNorm2d)
        for m in model.modules()
        if isinstance(m, nn.BatchNorm2d)
    )
