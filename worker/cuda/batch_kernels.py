"""Triton kernels at both ends of a training step: its augmented images, and its loss.

Both read on the device what changes from step to step, so that a captured graph can replay them.
"""

# Triton compiles these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def augment(
    images,  # (N, H, W, C) uint8
    labels,  # (N,) int64
    plan,  # (4, P) int32: which image, rows down, columns right, flip
    step,  # (1,) int64: within the epoch
    scale,  # (C,) float32 per channel, or None: by each image's own mean and deviation
    shift,
    out,  # (B, H, W, D)
    out_labels,  # (B,) int64
    planned,  # P
    batch_size,
    height,
    width,
    channels,
    out_channels,
    pad,
    ZERO_FILL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Crop, flip and standardise one image, as ``worker.data.augment`` does."""
    position = tl.program_id(0)
    entry = plan + tl.load(step) * batch_size + position
    image = tl.load(entry).to(tl.int64)
    down, right = tl.load(entry + planned), tl.load(entry + 2 * planned)
    flips = tl.load(entry + 3 * planned) != 0
    e = tl.arange(0, BLOCK)
    size = height * width * channels
    exists = e < size
    c, column, row = e % channels, (e // channels) % width, e // (channels * width)
    y, x = down + row, right + column
    if scale is None:
        mirrored = 2 * right + (width - 1) - x
    else:
        mirrored = (width + 2 * pad - 1) - x
    x = tl.where(flips, mirrored, x) - pad
    y = y - pad
    inside_y = tl.minimum(tl.maximum(y, 0), height - 1)
    inside_x = tl.minimum(tl.maximum(x, 0), width - 1)
    offset = (inside_y * width + inside_x) * channels + c
    value = tl.load(images + image * size + offset, mask=exists, other=0).to(tl.float32)
    if ZERO_FILL:
        value = tl.where((inside_y == y) & (inside_x == x), value, 0.0)
    if scale is None:
        mean = tl.sum(tl.where(exists, value, 0.0)) / size
        value = tl.where(exists, value - mean, 0.0)
        deviation = tl.sqrt(tl.sum(value * value) / size)
        value = value / tl.maximum(deviation, 1.0 / tl.sqrt(size.to(tl.float32)))
    else:
        value = value * tl.load(scale + c) + tl.load(shift + c)
    to = position.to(tl.int64) * height * width * out_channels
    tl.store(out + to + (row * width + column) * out_channels + c, value, mask=exists)
    tl.store(out_labels + position, tl.load(labels + image))


@triton.jit
def loss(
    logits,  # (B, K) float32, those that enter the softmax
    labels,  # (B,) int64
    dlogits,  # (B, K) float32
    record,  # (S, 3) float64: loss, wrong predictions, sum of squared logits of each step
    step,  # (1,) int64: the row of the record
    batch_size,
    classes,
    penalty,  # lambda_c
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Mean cross entropy with the penalty on logits, its gradient, and what is reported of it."""
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    k = tl.arange(0, BLOCK_K)
    in_b = b < batch_size
    exists = in_b[:, None] & (k < classes)[None, :]
    offset = b[:, None] * classes + k[None, :]
    z = tl.load(logits + offset, mask=exists, other=0.0)
    label = tl.load(labels + b, mask=in_b, other=0)
    squares = tl.where(exists, z * z, 0.0)
    masked = tl.where((k < classes)[None, :], z, float("-inf"))
    top = tl.max(masked, 1)
    power = tl.exp(masked - top[:, None])
    total = tl.sum(power, 1)
    is_label = label[:, None] == k[None, :]
    target = tl.sum(tl.where(is_label, z, 0.0), 1)
    losses = tl.log(total) + top - target + 0.5 * penalty * tl.sum(squares, 1)
    gradient = power / total[:, None] - tl.where(is_label, 1.0, 0.0) + penalty * z
    tl.store(dlogits + offset, gradient / batch_size, mask=exists)
    # The first of equal logits is the prediction; NaN is never right.
    best = tl.min(tl.where(masked == top[:, None], k[None, :], BLOCK_K), 1)
    wrong = tl.where(best == label, 0.0, 1.0)
    row = record + tl.load(step) * 3
    tl.atomic_add(row, tl.sum(tl.where(in_b, losses, 0.0)).to(tl.float64) / batch_size)
    tl.atomic_add(row + 1, tl.sum(tl.where(in_b, wrong, 0.0)).to(tl.float64))
    tl.atomic_add(row + 2, tl.sum(squares).to(tl.float64))
