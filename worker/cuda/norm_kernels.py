"""Triton kernels of batch normalisation followed by a (leaky) ReLU, on channels-last activations.

An activation of N images of H x W pixels is M = N H W rows of C channels; of these the first
``real`` belong to the layer, the others are padding and stay 0. A forward pass reads it twice and
writes it once, a backward pass reads it and the gradient twice and writes one gradient: the fewest
that a normalisation by the batch's own statistics can do. A residual sum costs nothing extra: it is
made where the statistics are taken, and the gradient that arrives over the other branch is added
where the gradient of the normalisation is written.

Sums over rows are made of values from which the first row is subtracted, because E[x^2] - E[x]^2
has no digits left where the mean is large. Programs add their part to a buffer of zeros, in any
order, so the last bits of a result may differ from run to run.
"""

# Triton compiles these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def _tile(start, rows, channels, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
    """Offsets of a tile that begins at row ``start``, which of them exist, and their channels."""
    row = start + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    exists = (row < rows)[:, None] & (c < channels)[None, :]
    return row[:, None] * channels + c[None, :], exists, c


@triton.jit
def moments(
    x,  # (M, C)
    other,  # (M, C) or None: added to x
    total,  # (M, C): where the sum goes
    sums,  # (2, C) zeros: of x - x[0] and of its square
    rows,
    channels,
    rows_per_program,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    first = tl.program_id(0) * rows_per_program
    count = tl.minimum(rows - first, rows_per_program)
    at = first.to(tl.int64) * channels
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = c < channels
    origin = tl.load(x + c, mask=in_c, other=0.0).to(tl.float32)
    if other is not None:
        origin += tl.load(other + c, mask=in_c, other=0.0).to(tl.float32)
        origin = origin.to(total.dtype.element_ty).to(tl.float32)
    sum1 = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    sum2 = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    for start in range(0, count, BLOCK_M):
        offset, exists, _same = _tile(start, count, channels, BLOCK_M, BLOCK_C)
        value = tl.load(x + at + offset, mask=exists, other=0.0).to(tl.float32)
        if other is not None:
            value += tl.load(other + at + offset, mask=exists, other=0.0).to(tl.float32)
            rounded = value.to(total.dtype.element_ty)
            tl.store(total + at + offset, rounded, mask=exists)
            value = rounded.to(tl.float32)
        value = tl.where(exists, value - origin[None, :], 0.0)
        sum1 += value
        sum2 += value * value
    tl.atomic_add(sums + c, tl.sum(sum1, 0), mask=in_c)
    tl.atomic_add(sums + channels + c, tl.sum(sum2, 0), mask=in_c)


@triton.jit
def apply(
    x,  # (M, C)
    y,  # (M, C)
    sums,  # (2, C) as ``moments`` leaves them
    weight,  # (real,) float32
    bias,  # (real,) float32
    saved,  # (2, C) float32: mean and 1 / deviation, for the backward pass
    running_mean,  # (real,) float32
    running_var,  # (real,) float32
    rows,
    channels,
    real,
    eps,
    momentum,
    slope,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    # Backwards: the rows that ``moments`` read last are still in the cache.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    start = block * BLOCK_M
    offset, exists, c = _tile(0, rows - start, channels, BLOCK_M, BLOCK_C)
    in_c, is_real = c < channels, c < real
    at = start.to(tl.int64) * channels
    value = tl.load(x + at + offset, mask=exists, other=0.0).to(tl.float32)
    shifted = tl.load(sums + c, mask=in_c, other=0.0) / rows
    square = tl.load(sums + channels + c, mask=in_c, other=0.0) / rows
    origin = tl.load(x + c, mask=in_c, other=0.0).to(tl.float32)
    mean = origin + shifted
    variance = tl.maximum(square - shifted * shifted, 0.0)
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(weight + c, mask=is_real, other=0.0) * inverse
    shift = tl.load(bias + c, mask=is_real, other=0.0)
    value = (value - mean[None, :]) * scale[None, :] + shift[None, :]
    tl.store(y + at + offset, tl.where(value > 0, value, value * slope), mask=exists)
    if block == 0:
        tl.store(saved + c, mean, mask=in_c)
        tl.store(saved + channels + c, inverse, mask=in_c)
        old = tl.load(running_mean + c, mask=is_real, other=0.0)
        tl.store(running_mean + c, old + momentum * (mean - old), mask=is_real)
        unbiased = variance * (rows / tl.maximum(rows - 1, 1).to(tl.float32))
        old = tl.load(running_var + c, mask=is_real, other=0.0)
        tl.store(running_var + c, old + momentum * (unbiased - old), mask=is_real)


@triton.jit
def apply_running(
    x,  # (M, C)
    other,  # (M, C) or None: added to x
    total,  # (M, C): where the sum goes
    y,  # (M, C)
    weight,  # (real,) float32
    bias,  # (real,) float32
    running_mean,  # (real,) float32
    running_var,  # (real,) float32
    rows,
    channels,
    real,
    eps,
    slope,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """As in evaluation: the running statistics, sum and activation in one pass."""
    start = tl.program_id(0) * BLOCK_M
    offset, exists, c = _tile(0, rows - start, channels, BLOCK_M, BLOCK_C)
    is_real = c < real
    at = start.to(tl.int64) * channels
    value = tl.load(x + at + offset, mask=exists, other=0.0).to(tl.float32)
    if other is not None:
        value += tl.load(other + at + offset, mask=exists, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + at + offset, rounded, mask=exists)
        value = rounded.to(tl.float32)
    mean = tl.load(running_mean + c, mask=is_real, other=0.0)
    variance = tl.load(running_var + c, mask=is_real, other=0.0)
    scale = tl.load(weight + c, mask=is_real, other=0.0) / tl.sqrt(variance + eps)
    shift = tl.load(bias + c, mask=is_real, other=0.0)
    value = (value - mean[None, :]) * scale[None, :] + shift[None, :]
    tl.store(y + at + offset, tl.where(value > 0, value, value * slope), mask=exists)


@triton.jit
def _affine(saved, weight, bias, channels, real, c):
    """Mean, 1 / deviation, scale and bias of the channels ``c``."""
    in_c, is_real = c < channels, c < real
    mean = tl.load(saved + c, mask=in_c, other=0.0)
    inverse = tl.load(saved + channels + c, mask=in_c, other=0.0)
    scale = tl.load(weight + c, mask=is_real, other=0.0) * inverse
    return mean, inverse, scale, tl.load(bias + c, mask=is_real, other=0.0)


@triton.jit
def gradient_sums(
    x,  # (M, C)
    dy,  # (M, C)
    saved,
    weight,
    bias,
    sums,  # (2, C) zeros: of g and of g (x - mean), g the gradient before the activation
    rows,
    channels,
    real,
    slope,
    rows_per_program,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    first = tl.program_id(0) * rows_per_program
    count = tl.minimum(rows - first, rows_per_program)
    at = first.to(tl.int64) * channels
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mean, _inverse, scale, shift = _affine(saved, weight, bias, channels, real, c)
    sum1 = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    sum2 = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    for start in range(0, count, BLOCK_M):
        offset, exists, _same = _tile(start, count, channels, BLOCK_M, BLOCK_C)
        value = tl.load(x + at + offset, mask=exists, other=0.0).to(tl.float32) - mean[None, :]
        g = tl.load(dy + at + offset, mask=exists, other=0.0).to(tl.float32)
        g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, g * slope)
        sum1 += g
        sum2 += g * value
    tl.atomic_add(sums + c, tl.sum(sum1, 0), mask=c < channels)
    tl.atomic_add(sums + channels + c, tl.sum(sum2, 0), mask=c < channels)


@triton.jit
def gradient_input(
    x,  # (M, C)
    dy,  # (M, C)
    dother,  # (M, C) or None: the gradient over the other branch
    dx,  # (M, C)
    saved,
    weight,
    bias,
    sums,  # (2, C) as ``gradient_sums`` leaves them
    dweight,  # (real,) float32
    dbias,  # (real,) float32
    rows,
    channels,
    real,
    slope,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    start = block * BLOCK_M
    offset, exists, c = _tile(0, rows - start, channels, BLOCK_M, BLOCK_C)
    at = start.to(tl.int64) * channels
    value = tl.load(x + at + offset, mask=exists, other=0.0).to(tl.float32)
    g = tl.load(dy + at + offset, mask=exists, other=0.0).to(tl.float32)
    mean, inverse, scale, shift = _affine(saved, weight, bias, channels, real, c)
    sum1 = tl.load(sums + c, mask=c < channels, other=0.0)
    sum2 = tl.load(sums + channels + c, mask=c < channels, other=0.0)
    value -= mean[None, :]
    g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, g * slope)
    slope_x = sum2 * inverse * inverse / rows
    result = scale[None, :] * (g - (sum1 / rows)[None, :] - value * slope_x[None, :])
    if dother is not None:
        result += tl.load(dother + at + offset, mask=exists, other=0.0).to(tl.float32)
    tl.store(dx + at + offset, result, mask=exists)
    if block == 0:
        tl.store(dweight + c, sum2 * inverse, mask=c < real)
        tl.store(dbias + c, sum1, mask=c < real)


@triton.jit
def spread(
    dy,  # (N, C) float32
    dx,  # (M, C)
    numbers,  # M C
    channels,
    pixels,  # rows of an image
    BLOCK: tl.constexpr,
):
    """Gradient of the mean over the pixels of each image."""
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c, image = e % channels, e // (channels * pixels)
    value = tl.load(dy + image * channels + c, mask=e < numbers, other=0.0) / pixels
    tl.store(dx + e, value, mask=e < numbers)
