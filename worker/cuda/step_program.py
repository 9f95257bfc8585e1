"""The launches of one optimizer step of a ``WideResNet``, in the order a graph captures them."""

import torch
import triton
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from ndadam.networks.wide_resnet import WideResNet
from worker.config.train_config import TrainConfig
from worker.cuda import batch_kernels as kernels
from worker.cuda.fast_wide_resnet import FastWideResNet
from worker.cuda.step_inputs import DevicePlan, DeviceRecord
from worker.data.augment import Pixels, augment

#: Values of an image that one program of the augmenting kernel can hold.
_LARGEST_IMAGE = 16384
#: Logits that one program of the loss kernel holds.
_LOSS_TILE = 4096


class StepProgram:
    """One step after the other, each on the images that a plan points at; waits for nothing."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: WideResNet,
        optimizer: Optimizer,
        plan: DevicePlan,
        record: DeviceRecord,
        pixels: Pixels,
        batch_size: int,
    ) -> None:
        self._penalty = config.lambda_c or 0.0
        self._optimizer, self._plan, self._record = optimizer, plan, record
        self._pixels, self._batch_size = pixels, batch_size
        self._dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        self._network = FastWideResNet(model, self._dtype)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._batches: dict[int, tuple[Tensor, Tensor]] = {}
        self._kept: list[Tensor | None] = []

    def run(self, size: int) -> None:
        """The next step, on ``size`` images."""
        self.gradients(size)
        self.update()

    def gradients(self, size: int) -> None:
        """The next step without the optimizer's part of it."""
        self._plan.begin()
        images, labels = self.batch(size)
        for p in self._parameters:
            p.grad = None
        logits = self._network(images)
        torch.autograd.backward(logits, self.loss_gradient(logits.detach(), labels))
        for p in self._parameters:
            # torch's fused optimizers want the strides of the weight, also where they say nothing.
            if p.grad is not None and p.grad.stride() != p.stride():
                p.grad = torch.empty_like(p).copy_(p.grad)
        self._plan.end()
        self._record.end()

    def update(self) -> None:
        """The optimizer's part of the step whose gradients are there."""
        self._optimizer.step()

    def kept_gradients(self, size: int) -> None:
        """``gradients`` in tensors that stay, for an update that is not part of the graph."""
        self.gradients(size)
        found = [p.grad for p in self._parameters]
        if not self._kept:
            self._kept = [None if grad is None else torch.empty_like(grad) for grad in found]
        pairs = [(k, g) for k, g in zip(self._kept, found, strict=True) if k is not None]
        torch._foreach_copy_([k for k, _ in pairs], [g for _, g in pairs if g is not None])
        for p, kept in zip(self._parameters, self._kept, strict=True):
            p.grad = kept

    def logits(
        self,
        images: Tensor,  # (N, C, H, W) float32
    ) -> Tensor:  # (N, classes) float32
        """What the network, in evaluation mode, makes of standardised images."""
        return self._network(self._padded(images))

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """Images (size, in_channels, H, W) and labels (size,) of the step under way."""
        pixels = self._pixels
        _, height, width, channels = pixels.images.shape
        if height * width * channels > _LARGEST_IMAGE:
            draws = self._plan.batch_draws(size)
            return self._padded(augment(pixels, draws)), pixels.labels.index_select(0, draws.order)
        images, labels = self._buffers(size)
        scale, shift = pixels.channel or (None, None)
        kernels.augment[(size,)](
            pixels.images,
            pixels.labels,
            self._plan.draws,
            self._plan.position,
            scale,
            shift,
            images,
            labels,
            self._plan.draws.shape[1],
            self._batch_size,
            height,
            width,
            channels,
            images.shape[1],
            pixels.pad,
            pixels.fill == "zero",
            triton.next_power_of_2(height * width * channels),
            num_warps=4,
        )
        return images, labels

    def _buffers(self, size: int) -> tuple[Tensor, Tensor]:
        if size not in self._batches:
            _, height, width, _ = self._pixels.images.shape
            depth, device = self._network.in_channels, self._pixels.device
            # Kept between steps, since the kernel never writes the padding.
            images = torch.zeros(size, height, width, depth, dtype=self._dtype, device=device)
            labels = torch.zeros(size, dtype=torch.int64, device=device)
            self._batches[size] = images.permute(0, 3, 1, 2), labels
        return self._batches[size]

    def _padded(self, images: Tensor) -> Tensor:
        missing = self._network.in_channels - images.shape[1]
        images = functional.pad(images.to(self._dtype), (0, 0, 0, 0, 0, missing))
        return images.contiguous(memory_format=torch.channels_last)

    def loss_gradient(
        self,
        logits: Tensor,  # (size, classes) float32
        labels: Tensor,  # (size,) int64
    ) -> Tensor:
        """Gradient of the loss by the logits; what is reported of them goes to the record."""
        size, classes = logits.shape
        logits = logits.contiguous()
        gradient = torch.empty_like(logits)
        block_k = triton.next_power_of_2(classes)
        block_b = max(1, min(16, _LOSS_TILE // block_k))
        kernels.loss[(-(-size // block_b),)](
            logits,
            labels,
            gradient,
            self._record.table,
            self._record.row,
            size,
            classes,
            float(self._penalty),
            block_b,
            block_k,
            num_warps=4,
        )
        return gradient
