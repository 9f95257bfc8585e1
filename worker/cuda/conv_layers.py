"""Convolutions on padded channels, and the shortcut without weights.

The matrix units of a card work on 64 or 128 channels at a time. 120 channels take 20 % longer than
128 there (H100, bf16), so a width just below a multiple of 128 is padded to it with zeros.
"""

from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ndadam.networks.wide_resnet import PoolPad
from worker.cuda import conv_kernels as kernels

_ALIGNED, _TILE, _LEAST = 16, 128, 8
#: Padding to a multiple of ``_TILE`` may add this part.
_WASTE = 0.07
_OPTIONS = {"num_warps": 4}
#: Numbers that one program copies.
_COPIED = 2048


def padded(channels: int) -> int:
    """Channels that a layer of ``channels`` is computed with."""
    if channels <= _LEAST:
        return _LEAST
    tiles = -(-channels // _TILE) * _TILE
    if tiles - channels <= _WASTE * channels:
        return tiles
    return -(-channels // _ALIGNED) * _ALIGNED


class PaddedConv:
    """A convolution without bias whose weight is computed with in another type, padded by zeros."""

    def __init__(self, conv: nn.Conv2d, dtype: torch.dtype) -> None:
        self.conv = conv
        weight = conv.weight
        out, into, *window = weight.shape
        self.weight = torch.zeros(
            (padded(out), padded(into), *window), dtype=dtype, device=weight.device
        ).contiguous(memory_format=torch.channels_last)

    def refresh(self) -> None:
        """Take over what the weight is now. Call at the start of a step."""
        _copy_rows(self.conv.weight.detach(), self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _Convolve.apply(x, self.conv.weight, self)
        return y

    def gradient(self, padded_gradient: Tensor) -> Tensor:
        """The weight's own gradient, in its type and layout."""
        gradient = torch.empty_like(self.conv.weight)
        _copy_rows(padded_gradient.contiguous(memory_format=torch.channels_last), gradient)
        return gradient


def _copy_rows(source: Tensor, target: Tensor) -> None:
    """Copy the part that both weights have; both channels-last, one larger than the other."""
    out, into = (min(a, b) for a, b in zip(source.shape[:2], target.shape[:2], strict=True))
    rows = out * source[0, 0].numel()
    block = min(triton.next_power_of_2(into), 128)
    block_r = max(1, _COPIED // block)
    kernels.copy_rows[(-(-rows // block_r), -(-into // block))](
        source, target, rows, into, source.shape[1], target.shape[1], block_r, block, **_OPTIONS
    )


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: PaddedConv) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        y: Tensor = torch.ops.aten.convolution(x, layer.weight, None, *_settings(layer.conv))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (x,) = ctx.saved_tensors
        layer = ctx.layer
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx, dweight, _ = torch.ops.aten.convolution_backward(
            dy,
            x,
            layer.weight,
            None,
            *_settings(layer.conv),
            [ctx.needs_input_grad[0], True, False],
        )
        return dx, layer.gradient(dweight), None


def _settings(conv: nn.Conv2d) -> tuple[Any, ...]:
    return conv.stride, conv.padding, conv.dilation, False, (0, 0), conv.groups


class PaddedPoolPad:
    """``ndadam.networks.wide_resnet.PoolPad`` on padded channels."""

    def __init__(self, module: PoolPad, width_in: int) -> None:
        self.stride, self.before, self.real = module.stride, module.before, width_in
        self.out = padded(module.before + width_in + module.after)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _PoolPad.apply(x, self)
        return y


class _PoolPad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: PaddedPoolPad) -> Tensor:
        count, channels, height, width = x.shape
        x = x.contiguous(memory_format=torch.channels_last)
        out_height, out_width = -(-height // layer.stride), -(-width // layer.stride)
        y = torch.empty(
            (count, layer.out, out_height, out_width),
            dtype=x.dtype,
            device=x.device,
            memory_format=torch.channels_last,
        )
        sizes = (height, width, out_height, out_width, channels, layer.out)
        ctx.sizes, ctx.layer, ctx.count = sizes, layer, count
        _launch(kernels.pool_pad, x, y, count * out_height * out_width, layer.out, sizes, layer)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        height, width, _, _, channels, _ = ctx.sizes
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = torch.empty(
            (ctx.count, channels, height, width),
            dtype=dy.dtype,
            device=dy.device,
            memory_format=torch.channels_last,
        )
        pixels = ctx.count * height * width
        _launch(kernels.pool_pad_gradient, dy, dx, pixels, channels, ctx.sizes, ctx.layer)
        return dx, None


def _launch(
    kernel: Any,
    source: Tensor,
    target: Tensor,
    pixels: int,
    channels: int,
    sizes: tuple[int, ...],
    layer: PaddedPoolPad,
) -> None:
    block_c = min(triton.next_power_of_2(channels), 128)
    block_m = max(1, _COPIED // block_c)
    kernel[(-(-pixels // block_m), -(-channels // block_c))](
        source,
        target,
        pixels,
        *sizes,
        layer.real,
        layer.before,
        layer.stride,
        block_m,
        block_c,
        **_OPTIONS,
    )
