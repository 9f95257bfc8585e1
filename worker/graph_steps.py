"""Optimizer steps as one CUDA graph: images, network, loss, gradients, update and record.

The host only launches the graph. What differs between steps is read on the device
(``worker.device_plan``); what differs between trials (rates, decay, penalties, seeds) is data too,
so a second trial of the same network compiles nothing.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from ndadam.wide_resnet import WideResNet
from worker.augment import Pixels
from worker.config import TrainConfig
from worker.device_plan import DevicePlan, DeviceRecord
from worker.length import Length
from worker.optimizers import LearningRates
from worker.step_program import StepProgram
from worker.tally import Tally

#: Real steps taken before a capture: they create the optimizer's state and choose convolutions.
_WARM_STEPS = 3


class GraphSteps:
    """Takes the steps of a run on a card by replaying a graph of them."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: WideResNet,
        optimizer: Optimizer,
        rates: LearningRates,
        pixels: Pixels,
        indices: Tensor,  # (N,) int64: the training images, on the CPU
        length: Length,
        num_classes: int,
        tally: Tally,
    ) -> None:
        self._length, self._tally, self._optimizer = length, tally, optimizer
        device = pixels.device
        self._record = DeviceRecord(num_classes, device)
        tally.begin_read = self._record.begin_read
        self._plan = DevicePlan(config, indices, length, rates, device, pixels.pad)
        self._program = StepProgram(
            config, model, optimizer, self._plan, self._record, pixels, length.batch_size
        )
        self._warm: dict[int, int] = {}
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._stream: torch.cuda.Stream | None = None

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        size = self._length.size_of(step)
        self._plan.seek(step)
        if size in self._graphs:
            self._graphs[size].replay()
        elif self._warm.get(size, 0) < _WARM_STEPS:
            self._bind_rates()
            self._run_aside(size)
            self._warm[size] = self._warm.get(size, 0) + 1
        else:
            self._graphs[size] = self._capture(size)
            self._graphs[size].replay()
        self._tally.add_device(step, self._record.note(size))

    def logits(self, images: Tensor) -> Tensor:
        """What the network, in evaluation mode, makes of standardised images (N, C, H, W)."""
        return self._program.logits(images)

    def _bind_rates(self) -> None:
        """Let the optimizer's groups read the plan; a loaded state gives them rates of its own."""
        for index, group in enumerate(self._optimizer.param_groups):
            group["lr"] = self._plan.current_rates[0, index]

    def _run_aside(self, size: int) -> None:
        """A step outside of a graph, on the stream that captures."""
        current = torch.cuda.current_stream()
        if self._stream is None:
            # A graph cannot be captured on the default stream. A run that was given a stream of its
            # own stays on it, since memory once used on a stream is kept for that stream.
            is_own = current != torch.cuda.default_stream()
            self._stream = current if is_own else torch.cuda.Stream()  # type: ignore[no-untyped-call]
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
