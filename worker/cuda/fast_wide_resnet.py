"""The passes of a ``WideResNet`` in few, large kernels, on the network's own parameters.

What is computed is the network's ``forward``: same weights, same running statistics, gradients in
the same ``.grad``. Only the order of rounding differs; the head averages before its 1x1 convolution
and not after, in float32, which is the same sum.
"""

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from ndadam.networks.fixed_scale_norm import FixedScaleBatchNorm2d
from ndadam.networks.wide_resnet import Block, PoolPad, WideResNet
from worker.cuda.conv_layers import PaddedConv, PaddedPoolPad, padded
from worker.cuda.norm_layers import Layer, add_norm_act, norm_act, pool


class FastWideResNet:
    """Runs passes of ``model``; works in ``dtype`` with float32 sums and parameters.

    Training passes while ``model`` is in training mode. In evaluation mode it takes the running
    statistics, and what it returns has no gradient.
    """

    def __init__(self, model: WideResNet, dtype: torch.dtype) -> None:
        self.model = model
        norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        tracked = [norm.num_batches_tracked for norm in norms]
        self._counters = [count for count in tracked if count is not None]
        # In one piece, so that a step clears all with one call.
        widths = [4 * padded(norm.num_features) for norm in norms]
        device = model.stem.weight.device
        self._sums = torch.zeros(sum(widths), dtype=torch.float32, device=device)
        slope = getattr(model.activation, "negative_slope", 0.0)
        parts = torch.split(self._sums, widths)
        layers = {
            norm: Layer(norm, slope, part.view(4, -1))
            for norm, part in zip(norms, parts, strict=True)
        }
        self._convs: list[PaddedConv] = []

        def convolution(module: nn.Conv2d) -> PaddedConv:
            self._convs.append(PaddedConv(module, dtype))
            return self._convs[-1]

        self._stem = convolution(model.stem)
        blocks = [module for module in model.groups.modules() if isinstance(module, Block)]
        self._blocks = [_Parts(block, layers, convolution) for block in blocks]
        self._last = layers[model.norm]

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
            if self.model.training:
                self._sums.zero_()
                torch._foreach_add_(self._counters, 1)
            for conv in self._convs:
                conv.refresh()
        stream, addend = self._stem(images), None
        for parts in self._blocks:
            stream, addend = parts(stream, addend)
        model = self.model
        _, y = _enter(self._last, stream, addend)
        pooled = pool(y)[:, : model.norm.num_features]
        logits: Tensor = model.softmax(functional.linear(pooled, model.head.weight.flatten(1)))
        return logits


def _enter(layer: Layer, stream: Tensor, addend: Tensor | None) -> tuple[Tensor, Tensor]:
    """The residual stream, and what a normalisation with activation makes of it."""
    if addend is None:
        return stream, norm_act(layer, stream)
    return add_norm_act(layer, stream, addend)


class _Parts:
    """One block; its sum is left to the normalisation that follows."""

    def __init__(
        self,
        block: Block,
        layers: dict[nn.BatchNorm2d, Layer],
        convolution: Callable[[nn.Conv2d], PaddedConv],
    ) -> None:
        self._shares_activation = block.shares_activation
        self._norm1, self._norm2 = layers[block.norm1], layers[block.norm2]
        self._conv1, self._conv2 = convolution(block.conv1), convolution(block.conv2)
        shortcut = block.shortcut
        self._shortcut: Callable[[Tensor], Tensor] | None = None
        if isinstance(shortcut, PoolPad):
            self._shortcut = PaddedPoolPad(shortcut, block.norm1.num_features)
        elif isinstance(shortcut, nn.Conv2d):
            self._shortcut = convolution(shortcut)

    def __call__(self, stream: Tensor, addend: Tensor | None) -> tuple[Tensor, Tensor]:
        stream, activated = _enter(self._norm1, stream, addend)
        inner = norm_act(self._norm2, self._conv1(activated))
        shortcut = activated if self._shares_activation else stream
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
