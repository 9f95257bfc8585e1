"""Batch normalisation and activation in one autograd step, with the residual sum before it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from worker.cuda import norm_kernels as kernels

#: Numbers of one tile; a program of 4 warps holds 32 of them in each thread.
_TILE = 4096
_OPTIONS = {"num_warps": 4}
#: The same for sums over rows.
_SUM_TILE = 4096
_SUM_OPTIONS = {"num_warps": 4}
#: Programs of a sum, all channel blocks together: two per processor of an H100. All add to the same
#: numbers when they end, and wait for one another; more programs are slower.
_SUM_PROGRAMS = 264


class Layer(NamedTuple):
    """One normalisation with its activation, and the buffers it works in."""

    norm: nn.BatchNorm2d
    slope: float  # of the activation below 0
    sums: Tensor  # (4, C) float32, zero before each step: two rows forward, two backward


class _Tiles(NamedTuple):
    """How M rows of C channels are cut."""

    rows: int
    channels: int
    block_m: int
    block_c: int

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.rows // self.block_m), -(-self.channels // self.block_c)

    def bounded_grid(self) -> tuple[tuple[int, int], int]:
        """A grid of few programs, and the rows of each of them."""
        tiles, blocks = self.grid
        per_program = -(-tiles // max(1, _SUM_PROGRAMS // blocks))
        return (-(-tiles // per_program), blocks), per_program * self.block_m


def _tiles(x: Tensor, size: int) -> _Tiles:
    count, channels, height, width = x.shape
    block_c = min(channels & -channels, 128)
    if block_c < 16:
        block_c = 128 if channels > 64 else 64
    return _Tiles(count * height * width, channels, size // block_c, block_c)


def norm_act(layer: Layer, x: Tensor) -> Tensor:
    """activation(norm(x)) with the batch's statistics, and updates the running ones.

    In evaluation mode with the running ones, and no gradient.
    """
    if not layer.norm.training:
        return _with_running_statistics(layer, x, None)[1]
    y: Tensor = _NormAct.apply(x, None, layer.norm.weight, layer.norm.bias, layer)
    return y


def add_norm_act(layer: Layer, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of both, and activation(norm(sum)), likewise."""
    if not layer.norm.training:
        return _with_running_statistics(layer, x, other)
    total, y = _NormAct.apply(x, other, layer.norm.weight, layer.norm.bias, layer)
    return total, y


def _with_running_statistics(
    layer: Layer, x: Tensor, other: Tensor | None
) -> tuple[Tensor, Tensor]:
    tiles, norm = _tiles(x, _TILE), layer.norm
    x = _channels_last(x)
    total = x
    if other is not None:
        other = _channels_last(other)
        total = torch.empty_like(x)
    y = torch.empty_like(x)
    kernels.apply_running[tiles.grid](
        x,
        other,
        total,
        y,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        *tiles[:2],
        norm.num_features,
        norm.eps,
        layer.slope,
        *tiles[2:],
        **_OPTIONS,
    )
    return total, y


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, other: Tensor | None, weight: Tensor, bias: Tensor, layer: Layer
    ) -> Any:
        tiles, sum_tiles = _tiles(x, _TILE), _tiles(x, _SUM_TILE)
        x = _channels_last(x)
        total = x
        if other is not None:
            other = _channels_last(other)
            total = torch.empty_like(x)
        sums = layer.sums[:2]
        grid, per_program = sum_tiles.bounded_grid()
        kernels.moments[grid](
            x, other, total, sums, *tiles[:2], per_program, *sum_tiles[2:], **_SUM_OPTIONS
        )
        y, saved = torch.empty_like(x), torch.empty_like(sums)
        norm = layer.norm
        kernels.apply[tiles.grid](
            total,
            y,
            sums,
            weight,
            bias,
            saved,
            norm.running_mean,
            norm.running_var,
            *tiles[:2],
            norm.num_features,
            norm.eps,
            norm.momentum,
            layer.slope,
            *tiles[2:],
            **_OPTIONS,
        )
        ctx.save_for_backward(total, weight, bias, saved)
        ctx.layer, ctx.tiles, ctx.adds = layer, (tiles, sum_tiles), other is not None
        ctx.set_materialize_grads(False)
        return (total, y) if ctx.adds else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        dother, dy = grads if ctx.adds else (None, grads[0])
        assert dy is not None, "nothing reads the normalised activation"
        x, weight, bias, saved = ctx.saved_tensors
        layer, (tiles, sum_tiles) = ctx.layer, ctx.tiles
        dy = _channels_last(dy)
        if dother is not None:
            dother = _channels_last(dother)
        sums, real = layer.sums[2:], layer.norm.num_features
        grid, per_program = sum_tiles.bounded_grid()
        shape = (*tiles[:2], real, layer.slope)
        kernels.gradient_sums[grid](
            x, dy, saved, weight, bias, sums, *shape, per_program, *sum_tiles[2:], **_SUM_OPTIONS
        )
        dx = torch.empty_like(x)
        dweight, dbias = torch.empty_like(bias), torch.empty_like(bias)
        kernels.gradient_input[tiles.grid](
            x,
            dy,
            dother,
            dx,
            saved,
            weight,
            bias,
            sums,
            dweight,
            dbias,
            *shape,
            *tiles[2:],
            **_OPTIONS,
        )
        other = dx if ctx.adds else None
        return dx, other, dweight if ctx.needs_input_grad[2] else None, dbias, None


def pool(x: Tensor) -> Tensor:  # (N, C) float32
    """Mean over the pixels of an activation."""
    y: Tensor = _Pool.apply(x)
    return y


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return x.mean((2, 3), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        _, channels, height, width = ctx.shape
        dx = torch.empty(
            ctx.shape, dtype=ctx.dtype, device=dy.device, memory_format=torch.channels_last
        )
        dy = dy.contiguous()
        grid = (-(-dx.numel() // _TILE),)
        kernels.spread[grid](dy, dx, dx.numel(), channels, height * width, BLOCK=_TILE, **_OPTIONS)
        return dx


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
