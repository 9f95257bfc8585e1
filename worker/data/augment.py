"""Crops, flips and standardises the images of a step on the device, each image by itself.

Letters: B images of H x W pixels with C channels.

Two orders, by ``input_norm``, as in the two codes of the paper:

* per_image: pad, crop, flip, then standardise each image by its own mean and deviation;
* channel: subtract channel means, divide by deviations, flip, pad, crop.

With ``crop_fill`` edge the padding repeats the edge pixel (OpenCV's BORDER_REFLECT at one pixel,
torch's "replicate"); with zero it holds raw zeros in both orders.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.config.train_config import TrainConfig
from worker.data.prepared import DatasetInfo

#: Channel means and deviations that the WRN codes use for CIFAR-10 and CIFAR-100 alike, 0..255.
CIFAR_MEANS = (125.3, 123.0, 113.9)
CIFAR_DEVIATIONS = (63.0, 62.1, 66.7)


@dataclass(frozen=True)
class Draws:
    """Random draws for a sequence of images; all on the device of the images."""

    order: Tensor  # (B,) int64: which image
    down: Tensor  # (B,) int64: rows the crop starts below the top of the padded image
    right: Tensor  # (B,) int64: columns the crop starts right of its left edge
    flip: Tensor  # (B,) bool


@dataclass(frozen=True)
class Pixels:
    """The images of a set on a device, with the values that standardise them."""

    images: Tensor  # (N, H, W, C) uint8
    labels: Tensor  # (N,) int64
    #: Per channel (C,): x -> x * scale + shift; None standardises each image by itself.
    channel: tuple[Tensor, Tensor] | None
    pad: int
    fill: str

    @property
    def device(self) -> torch.device:
        return self.images.device


def channel_norm(info: DatasetInfo, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return scale and shift per channel (C,): published ones for CIFAR, else the set's own."""
    means, deviations = info.channel_means, info.channel_deviations
    if info.name in ("cifar10", "cifar100"):
        means, deviations = CIFAR_MEANS, CIFAR_DEVIATIONS
    # A channel that is constant over the whole set has deviation 0; it becomes 0, not 0/0.
    scale = [1 / d if d > 0 else 1.0 for d in deviations]
    shift = [-m * s for m, s in zip(means, scale, strict=True)]
    return torch.tensor(scale, device=device), torch.tensor(shift, device=device)


def pixels_on(config: TrainConfig, info: DatasetInfo, images: Tensor, labels: Tensor) -> Pixels:
    """Bind a resolved config's standardisation and padding to images on a device."""
    assert config.crop_pad is not None
    assert config.crop_fill is not None
    channel = channel_norm(info, images.device) if config.input_norm == "channel" else None
    return Pixels(images, labels, channel, config.crop_pad, config.crop_fill)


def draw_epoch(
    indices: Tensor,  # (N,) int64: the training images, on the CPU
    pad: int,
    flip: bool,
    *,
    seed: int,
    epoch: int,
    device: torch.device,
) -> Draws:
    """Draw order, crops and flips of one epoch, a function of (seed, epoch) only.

    They are drawn on the CPU, so that every device sees the same data, and for the whole epoch, so
    that a resumed run draws them again instead of restoring a generator.
    """
    generator = torch.Generator().manual_seed(seed)
    # Neighbouring seeds and epochs must not share a stream, so the seed is hashed by a draw first.
    base = int(torch.randint(2**62, (), generator=generator))
    generator.manual_seed((base + epoch * 0x9E3779B97F4A7C15) % 2**63)
    count = len(indices)
    order = indices[torch.randperm(count, generator=generator)]
    offsets = torch.randint(2 * pad + 1, (2, count), generator=generator)
    flips = torch.rand(count, generator=generator) < 0.5
    if not flip:
        flips.zero_()
    return Draws(order.to(device), offsets[0].to(device), offsets[1].to(device), flips.to(device))


def augment(
    pixels: Pixels,
    draws: Draws,  # B of them
) -> Tensor:  # (B, C, H, W) float32, channels last
    """Crop, flip and standardise one batch or more."""
    return standardise(crop(pixels, draws), pixels.channel)


def crop(pixels: Pixels, draws: Draws) -> Tensor:  # (B, H, W, C) uint8
    """Gather the cropped and flipped pixels directly from the unpadded set."""
    _, height, width, channels = pixels.images.shape
    device, pad = pixels.device, pixels.pad
    row = draws.down[:, None] + torch.arange(height, device=device)  # (B, H), in the padded image
    column = draws.right[:, None] + torch.arange(width, device=device)  # (B, W)
    # Flipping the crop reads its columns backwards; flipping before the crop mirrors the padded
    # image. Both are one subtraction here.
    mirrored = (
        (width + 2 * pad - 1) - column
        if pixels.channel is not None
        else 2 * draws.right[:, None] + (width - 1) - column
    )
    column = torch.where(draws.flip[:, None], mirrored, column)
    row, column = row - pad, column - pad
    inside_row, inside_column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    first = (draws.order[:, None] * height + inside_row) * width  # (B, H)
    flat = (first[:, :, None] + inside_column[:, None, :]).view(-1)
    found = pixels.images.view(-1, channels).index_select(0, flat)
    found = found.view(len(row), height, width, channels)
    if pixels.fill == "zero" and pad:
        inside = (row == inside_row)[:, :, None] & (column == inside_column)[:, None, :]
        found = found * inside[..., None]
    return found


def standardise(
    images: Tensor,  # (B, H, W, C) uint8
    channel: tuple[Tensor, Tensor] | None,
) -> Tensor:  # (B, C, H, W) float32, channels last
    """Standardise by the given channel scale and shift, or each image by its own mean.

    The result keeps the memory layout of the pixels, with which convolutions are fastest, on a CPU
    and on a card.
    """
    values = images.to(torch.float32)
    if channel is not None:
        return torch.addcmul(channel[1], values, channel[0]).permute(0, 3, 1, 2)
    flat = values.view(len(images), -1)
    variance, mean = torch.var_mean(flat, 1, correction=0, keepdim=True)
    # tf.image.per_image_standardization's floor, for images of one colour.
    deviation = variance.sqrt_().clamp_(min=1 / math.sqrt(flat.shape[1]))
    return flat.sub_(mean).div_(deviation).view(images.shape).permute(0, 3, 1, 2)


def plain(pixels: Pixels, indices: Tensor) -> Tensor:  # (B, C, H, W) float32, channels last
    """Return images for evaluation: standardised, neither cropped nor flipped."""
    return standardise(pixels.images.index_select(0, indices), pixels.channel)
