"""Optimizer steps as one CUDA graph: images, network, loss, gradients, record and update.

The host only launches the graph. What differs between steps is read on the device
(``worker.cuda.step_inputs``); what differs between trials (rates, decay, penalties, seeds) is data
too, so a second trial of the same network compiles nothing. What a measurement does around a step
is in its graph; steps around which something else is done have another. Where the host has a say in
every update, as in a closed loop, the update stays outside of the graph.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from ndadam.dynamics.effective_lr import Phase
from ndadam.networks.wide_resnet import WideResNet
from worker.config.train_config import TrainConfig
from worker.cuda.graph_evaluation import GraphEvaluation
from worker.cuda.graph_recorder import Graph, GraphRecorder
from worker.cuda.step_inputs import DevicePlan, DeviceRecord
from worker.cuda.step_program import StepProgram
from worker.data.augment import Pixels
from worker.data.run_length import Length
from worker.steps.metrics import RunningMetrics
from worker.steps.optimizers import LearningRates

#: Real steps taken before a capture: they create the optimizer's state and choose convolutions.
_WARM_STEPS = 3

#: Of steps that one graph holds: images, and what is done around them.
_Kind = tuple[int, Phase]


class Watch(Protocol):
    """What is measured around steps, by hooks of the optimizer."""

    @property
    def phase(self) -> Phase:
        """What is done around the next step."""

    def replayed(self) -> None:
        """Take note of a step in which no hook was called."""


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
        tally: RunningMetrics,
        calm: Callable[[], object],  # as ``GraphRecorder``
        dynamics: Watch,
        *,
        sets_rates: bool,  # the host, before each update
    ) -> None:
        self._length, self._tally, self._optimizer = length, tally, optimizer
        device = pixels.device
        self._record = DeviceRecord(num_classes, device)
        tally.begin_read = self._record.begin_read
        self._plan = DevicePlan(config, indices, length, rates, device, pixels.pad)
        self._program = StepProgram(
            config, model, optimizer, self._plan, self._record, pixels, length.batch_size
        )
        self._dynamics, self._rates = dynamics, rates
        self._warm: Counter[_Kind] = Counter()
        self._graphs: dict[_Kind, Graph] = {}
        self._sets_rates = sets_rates
        self._launches = self._program.kept_gradients if sets_rates else self._program.run
        self._recorder = GraphRecorder(calm)
        self._evaluation = GraphEvaluation(self._program.logits, self._recorder)

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        size = self._length.size_of(step)
        self._plan.seek(step)
        if self._sets_rates:
            self._launch(size, Phase.PASSED)
            self._rates.set(step)
            self._program.update()  # with all that hooks do
        elif self._launch(size, self._dynamics.phase):
            self._dynamics.replayed()
        self._tally.add_device(step, self._record.note(size))

    def _launch(self, size: int, phase: Phase) -> bool:
        """Launch a step; whether by a replay, in which no Python ran."""
        kind = size, phase
        if kind not in self._graphs:
            if self._warm[kind] < _WARM_STEPS:
                self._warm[kind] += 1
                if not self._sets_rates:
                    self._bind_rates()
                self._recorder.run_aside(partial(self._launches, size))
                return False
            self._graphs[kind] = self._recorder.record(partial(self._launches, size))
        self._graphs[kind].replay()
        return True

    def judge(self, pixels: Pixels, part: Tensor, found: Tensor) -> None:
        """Add the errors on held-out images ``part`` (N,) to ``found`` (2,)."""
        self._evaluation.judge(pixels, part, found)

    def _bind_rates(self) -> None:
        """Let the optimizer's groups read the plan; a loaded state gives them rates of its own."""
        for index, group in enumerate(self._optimizer.param_groups):
            group["lr"] = self._plan.current_rates[0, index]
