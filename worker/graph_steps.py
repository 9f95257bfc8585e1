"""Optimizer steps as one CUDA graph: images, network, loss, gradients, record and update.

The host only launches the graph. What differs between steps is read on the device
(``worker.device_plan``); what differs between trials (rates, decay, penalties, seeds) is data too,
so a second trial of the same network compiles nothing. Where somebody looks at every update, as a
measurement does, the update stays outside of the graph: the host calls the optimizer and its hooks.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.optim import Optimizer

from ndadam.wide_resnet import WideResNet
from worker.augment import Pixels
from worker.config import TrainConfig
from worker.device_plan import DevicePlan, DeviceRecord
from worker.graph_evaluation import GraphEvaluation
from worker.graph_recorder import Graph, GraphRecorder
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
        calm: Callable[[], object],  # as ``GraphRecorder``
        *,
        calls_optimizer: bool,  # in each step, and not in the graph
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
        self._graphs: dict[int, Graph] = {}
        self._calls_optimizer = calls_optimizer
        self._launches = self._program.kept_gradients if calls_optimizer else self._program.run
        self._recorder = GraphRecorder(calm)
        self._evaluation = GraphEvaluation(self._program.logits, self._recorder)

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        size = self._length.size_of(step)
        self._plan.seek(step)
        if size in self._graphs:
            self._graphs[size].replay()
        elif self._warm.get(size, 0) < _WARM_STEPS:
            self._bind_rates()
            self._recorder.run_aside(partial(self._launches, size))
            self._warm[size] = self._warm.get(size, 0) + 1
        else:
            self._graphs[size] = self._recorder.record(partial(self._launches, size))
            self._graphs[size].replay()
        if self._calls_optimizer:
            self._program.update()
        self._tally.add_device(step, self._record.note(size))

    def judge(self, pixels: Pixels, part: Tensor, found: Tensor) -> None:
        """Add the errors on held-out images ``part`` (N,) to ``found`` (2,)."""
        self._evaluation.judge(pixels, part, found)

    def _bind_rates(self) -> None:
        """Let the optimizer's groups read the plan; a loaded state gives them rates of its own."""
        for index, group in enumerate(self._optimizer.param_groups):
            group["lr"] = self._plan.current_rates[0, index]
