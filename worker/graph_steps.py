"""Optimizer steps as one CUDA graph: images, network, loss, gradients, update and record.

The host only launches the graph. What differs between steps is read on the device
(``worker.device_plan``); what differs between trials (rates, decay, penalties, seeds) is data too,
so a second trial of the same network compiles nothing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import triton
from torch import Tensor, nn
from torch.optim import Optimizer

from worker import batch_kernels as kernels
from worker.augment import Pixels, augment
from worker.config import TrainConfig
from worker.device_plan import DevicePlan
from worker.fast_wide_resnet import FastWideResNet, is_fast
from worker.length import Length
from worker.optimizers import LearningRates
from worker.tally import DRAIN_STEPS, StepRecord, Tally

#: Real steps taken before a capture: they create the optimizer's state and choose convolutions.
_WARM_STEPS = 3
#: Values of an image that one program of the augmenting kernel can hold.
_LARGEST_IMAGE = 16384


class StepProgram:
    """The launches of one step, for batches of one size; what is captured is a call of it."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: nn.Module,
        optimizer: Optimizer,
        plan: DevicePlan,
        pixels: Pixels,
        autocast: Callable[[], AbstractContextManager[object]],
        batch_size: int,
    ) -> None:
        self._penalty = config.lambda_c or 0.0
        self._model, self._optimizer, self._plan = model, optimizer, plan
        self._pixels, self._autocast = pixels, autocast
        self._batch_size = batch_size
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        self._fast = FastWideResNet(model, dtype) if is_fast(model) else None
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._images: dict[int, tuple[Tensor, Tensor]] = {}
        self._dtype = dtype if self._fast is not None else torch.float32

    def run(self, size: int) -> None:
        """One step on the ``size`` images that the plan points at."""
        self._plan.begin()
        images, labels = self._batch(size)
        for p in self._parameters:
            p.grad = None
        if self._fast is not None:
            logits = self._fast(images)
        else:
            with self._autocast():
                logits = self._model(images)
            logits = logits.float()
        torch.autograd.backward(logits, self._loss_gradient(logits.detach(), labels))
        for p in self._parameters:
            if p.grad is not None and p.grad.stride() != p.stride():
                p.grad = torch.empty_like(p).copy_(p.grad)
        self._optimizer.step()
        self._plan.end()

    def _batch(self, size: int) -> tuple[Tensor, Tensor]:
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
            self._plan.counters,
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
        if size not in self._images:
            _, height, width, channels = self._pixels.images.shape
            depth = channels if self._fast is None else self._fast.in_channels
            device = self._pixels.device
            # Kept between steps, since the kernel never writes the padding.
            images = torch.zeros(size, height, width, depth, dtype=self._dtype, device=device)
            labels = torch.zeros(size, dtype=torch.int64, device=device)
            self._images[size] = images.permute(0, 3, 1, 2), labels
        return self._images[size]

    def _padded(self, images: Tensor) -> Tensor:
        if self._fast is None:
            return images
        missing = self._fast.in_channels - images.shape[1]
        images = nn.functional.pad(images.to(self._dtype), (0, 0, 0, 0, 0, missing))
        return images.contiguous(memory_format=torch.channels_last)

    def _loss_gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        size, classes = logits.shape
        logits = logits.contiguous()
        gradient = torch.empty_like(logits)
        block_k = triton.next_power_of_2(classes)
        block_b = max(1, min(16, 4096 // block_k))
        kernels.loss[(-(-size // block_b),)](
            logits,
            labels,
            gradient,
            self._plan.record,
            self._plan.counters,
            size,
            classes,
            float(self._penalty),
            block_b,
            block_k,
            num_warps=4,
        )
        return gradient


class GraphSteps:
    """Takes the steps of a run on a card by replaying a graph of them."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: nn.Module,
        optimizer: Optimizer,
        rates: LearningRates,
        pixels: Pixels,
        indices: Tensor,  # (N,) int64: the training images, on the CPU
        length: Length,
        num_classes: int,
        autocast: Callable[[], AbstractContextManager[object]],
        tally: Tally,
    ) -> None:
        self._length, self._tally, self._optimizer = length, tally, optimizer
        device = pixels.device
        self._plan = DevicePlan(config, indices, length, rates, device, DRAIN_STEPS, pixels.pad)
        self._program = StepProgram(
            config, model, optimizer, self._plan, pixels, autocast, length.batch_size
        )
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._warm: dict[int, int] = {}
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._sizes: list[int] = []
        self._num_classes = num_classes
        tally.read_device = self._read

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        size = self._length.size_of(step)
        self._plan.seek(step)
        if size in self._graphs:
            self._graphs[size].replay()
        elif self._warm.get(size, 0) < _WARM_STEPS:
            self._run_aside(size)
            self._warm[size] = self._warm.get(size, 0) + 1
        else:
            self._graphs[size] = self._capture(size)
            self._graphs[size].replay()
        self._sizes.append(size)
        self._tally.add_device(step, len(self._sizes))

    def _run_aside(self, size: int) -> None:
        """A step outside of a graph, on the stream that captures."""
        self._bind_rates()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._program.run(size)
        current.wait_stream(self._stream)

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other in self._graphs.values()), None)
        # Only this thread must not disturb the capture: others may train on the card as well.
        with torch.cuda.graph(
            graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            self._program.run(size)
        return graph

    def _bind_rates(self) -> None:
        """Let the optimizer's groups read the plan; a loaded state gives them rates of its own."""
        for index, group in enumerate(self._optimizer.param_groups):
            group["lr"] = self._plan.current_rates[0, index]

    def _read(self) -> list[StepRecord]:
        """What the steps since the last call recorded. Waits for the device."""
        table = self._plan.record[: len(self._sizes)].tolist()
        self._plan.rows_done()
        records = [
            StepRecord(loss, int(wrong), size, squares, size * self._num_classes)
            for (loss, wrong, squares), size in zip(table, self._sizes, strict=True)
        ]
        self._sizes.clear()
        return records
