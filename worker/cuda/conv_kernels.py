"""Triton kernels between float32 weights and the padded copies that convolutions compute with.

Weights lie channels-last in memory: R = C_out kH kW rows of C_in numbers. Padding appends rows, and
numbers to each row, so row r of one is row r of the other.
"""

# Triton compiles these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def copy_rows(
    source,
    target,
    rows,
    width,
    source_stride,
    target_stride,
    BLOCK_R: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """Copy (R, width) numbers between rows of different strides, converting their type."""
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    i = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    exists = (r < rows)[:, None] & (i < width)[None, :]
    r = r.to(tl.int64)[:, None]
    value = tl.load(source + r * source_stride + i[None, :], mask=exists)
    tl.store(target + r * target_stride + i[None, :], value, mask=exists)


@triton.jit
def pool_pad(
    x,  # (N, H, W, C)
    y,  # (N, OH, OW, D)
    pixels,  # N OH OW
    height,
    width,
    out_height,
    out_width,
    channels_in,  # C
    channels_out,  # D
    real,  # channels of x that are no padding
    before,  # zero channels before them
    stride,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Average over windows of stride x stride, cut off at the edge, between zero channels."""
    p = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    column = p % out_width
    row = (p // out_width) % out_height
    image = (p // (out_width * out_height)).to(tl.int64)
    inside = (p < pixels)[:, None] & (c >= before)[None, :] & (c < before + real)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    for i in range(stride):
        for j in range(stride):
            h, w = row * stride + i, column * stride + j
            exists = inside & ((h < height) & (w < width))[:, None]
            at = ((image * height + h) * width + w) * channels_in
            offset = at[:, None] + (c - before)[None, :]
            total += tl.load(x + offset, mask=exists, other=0.0).to(tl.float32)
    high = tl.minimum(height - row * stride, stride)
    wide = tl.minimum(width - column * stride, stride)
    total = total / (high * wide).to(tl.float32)[:, None]
    exists = (p < pixels)[:, None] & (c < channels_out)[None, :]
    tl.store(y + p.to(tl.int64)[:, None] * channels_out + c[None, :], total, mask=exists)


@triton.jit
def pool_pad_gradient(
    dy,  # (N, OH, OW, D)
    dx,  # (N, H, W, C)
    pixels,  # N H W
    height,
    width,
    out_height,
    out_width,
    channels_in,
    channels_out,
    real,
    before,
    stride,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Every pixel's share of its window's gradient."""
    p = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    column = (p % width) // stride
    row = ((p // width) % height) // stride
    image = (p // (width * height)).to(tl.int64)
    at = ((image * out_height + row) * out_width + column) * channels_out
    inside = (p < pixels)[:, None] & (c < real)[None, :]
    value = tl.load(dy + at[:, None] + (c + before)[None, :], mask=inside, other=0.0)
    high = tl.minimum(height - row * stride, stride)
    wide = tl.minimum(width - column * stride, stride)
    value = value.to(tl.float32) / (high * wide).to(tl.float32)[:, None]
    exists = (p < pixels)[:, None] & (c < channels_in)[None, :]
    tl.store(dx + p.to(tl.int64)[:, None] * channels_in + c[None, :], value, mask=exists)
