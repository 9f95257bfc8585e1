"""The state of a run between two steps, which a checkpoint must restore."""

import logging
import math
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ndadam.cuda import HAS_TRITON
from ndadam.networks.wide_resnet import WideResNet
from worker.checkpoints import checkpoint
from worker.checkpoints.background_writer import CheckpointWriter
from worker.config.part_declarations import has_own_loop, takes_images
from worker.config.train_config import TrainConfig
from worker.data.augment import Pixels
from worker.data.batches import BatchStream
from worker.data.device_data import RunData, load_run_data
from worker.data.own_data import OwnBatches, OwnData, facts_of, load_own_data
from worker.data.run_length import run_length
from worker.networks.build import build_network
from worker.report import Measurement, Report, Status
from worker.steps.device import autocast, wake_autograd
from worker.steps.eager_steps import EagerSteps
from worker.steps.evaluation import evaluate
from worker.steps.metrics import RunningMetrics
from worker.steps.optimizers import LearningRates, build_optimizer, set_mode
from worker.steps.own_steps import OwnMetrics, OwnParts, OwnSteps, build_parts
from worker.steps.turns import Turn
from worker.training.plain_loop import plain_loop
from worker.training.provenance import of_parts, peak_memory_bytes, provenance
from worker.training.weight_dynamics import Dynamics, follow_curve

_LOG = logging.getLogger(__name__)


class Stopped(Exception):
    """``stop`` returned True during an evaluation; the report has not been given."""


class Steps(Protocol):
    """Interface of the classes that take a run's optimizer steps."""

    def take(self, step: int) -> None:
        """Take step ``step`` (from 0)."""

    def judge(self, pixels: Pixels, part: Tensor, found: Tensor) -> None:
        """Add the errors on held-out images ``part`` (N,) to ``found`` (2,); see ``Judge``."""


def _steps_in_graph(config: TrainConfig, model: nn.Module, device: torch.device) -> bool:
    """Whether steps can be replayed from a graph.

    They are not replayed if results must be bitwise equal, for other networks, which may run code
    on the host that a graph cannot contain, and for other data, losses and augmentations.
    """
    if device.type != "cuda" or config.deterministic or not HAS_TRITON or has_own_loop(config):
        return False
    from worker.cuda.fast_wide_resnet import is_fast  # not earlier: it loads Triton

    return is_fast(model)


class Run:
    """One training run: its network, optimizer, data and the values for its next report."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        home: Path,
        device: torch.device,
        measurement: Measurement | None,
        stop: Callable[[], bool],
        *,
        replay_steps: bool = True,
    ) -> None:
        self.config, self.device, self._stop = config, device, stop
        wake_autograd(device)
        torch.manual_seed(config.seed)
        is_registered = "dataset" in config.parts()
        self.data: RunData | OwnData = (
            load_own_data(config, device) if is_registered else load_run_data(config, home, device)
        )
        self.length = run_length(config, len(self.data.train_indices))
        info, self.facts = self.data.info, facts_of(self.data)
        measured = measurement.model_dump_json() if measurement else "nothing"
        #: Key that a checkpoint of this run must have.
        self.key = f"{config.key()} seed {config.seed} on {info.checksum[:16]} measuring {measured}"
        #: The key in checkpoints of 0.1.0, which did not record their images.
        self.older_key = f"{config.key()} seed {config.seed} measuring {measured}"
        self.model = build_network(
            config, self.facts.outputs, self.facts.shape[0], device, self.facts
        )
        in_graph = replay_steps and _steps_in_graph(config, self.model, device)
        self.optimizer = build_optimizer(config, self.model, capturable=in_graph)
        self._stream = self._batches()
        #: Of packages: what takes another loop than that of images; None without.
        self._own = build_parts(config, self.facts, device) if has_own_loop(config) else None
        loss = self._own.loss if self._own is not None else functional.cross_entropy
        first = self._stream.batch(0)
        self._follow = follow_curve(config, self.model, self.optimizer, first, loss)
        self._rates = LearningRates(config, self.optimizer, self.length, self._follow)
        self._autocast = partial(autocast, config, device)
        self._report_every = config.report_every or self.length.steps_per_epoch
        self.tally = (
            RunningMetrics()
            if self._own is None
            else OwnMetrics(self._own, is_images=takes_images(config))
        )
        self.dynamics = Dynamics(config, self.model, self.optimizer, measurement, first, loss)
        #: Writes checkpoints in a thread; only on a card, since a CPU would gain no time.
        self.writer = CheckpointWriter()
        #: Takes the steps, without the measurements around them.
        self.steps: Steps = (
            self._own_steps(self._own)
            if self._own is not None
            else self._graph_steps()
            if in_graph
            else self._eager_steps()
        )
        #: Optimizer steps done.
        self.step = 0
        self._last_metrics: dict[str, float] = {}
        self._saves_aside = device.type == "cuda"
        self._provenance = provenance(device, info) | of_parts(config.parts())
        if line := plain_loop(config, self.model, device):
            self._provenance["plain_loop"] = line
            _LOG.info(line)
        self._owes_provenance = True

    def _batches(self) -> BatchStream | OwnBatches:
        data = self.data
        if isinstance(data, OwnData):
            return OwnBatches(self.config, data, self.length)
        return BatchStream(self.config, data.train, data.train_indices, self.length)

    def _own_steps(self, parts: OwnParts) -> OwnSteps:
        return OwnSteps(
            self.config,
            self.model,
            self.optimizer,
            self._rates,
            self._stream,
            self._autocast,
            self.tally,
            parts,
        )

    def _eager_steps(self) -> Steps:
        assert isinstance(self._stream, BatchStream)
        return EagerSteps(
            self.config,
            self.model,
            self.optimizer,
            self._rates,
            self._stream,
            self._autocast,
            self.tally,
        )

    def _graph_steps(self) -> Steps:
        from worker.cuda.graph_steps import GraphSteps  # not earlier: it loads Triton

        assert isinstance(self.model, WideResNet)
        assert isinstance(self.data, RunData)
        return GraphSteps(
            self.config,
            self.model,
            self.optimizer,
            self._rates,
            self.data.train,
            self.data.train_indices,
            self.length,
            self.data.info.num_classes,
            self.tally,
            self.writer.finish,
            self.dynamics,
            # The optimizers of packages cannot be captured: the host calls them after each replay.
            sets_rates=self._follow is not None or "optimizer" in self.config.parts(),
        )

    def take_step(self) -> None:
        """Take one optimizer step."""
        step = self.step
        self.dynamics.before_step(step, self._next_report(step))
        self.steps.take(step)
        self.dynamics.after_step()
        self.step = step + 1

    def is_report_due(self) -> bool:
        """Whether a report is due after the steps done so far."""
        if self.tally.diverged_at is not None:
            return True
        return self._is_report_step(self.step) and self.tally.is_open

    def report(self) -> Generator[Turn, None, Report]:
        """Make the report that is due. Raises Stopped when ``stop`` interrupts its evaluation."""
        self.tally.drain()
        if self.tally.diverged_at is None:
            held_out = yield from self._evaluate()
            if held_out is not None:
                return self._finish_report(held_out)
            # The loss of the last batch was finite, but the weights after its step are not.
            self.tally.diverged_at = self.step - 1
        at = self.tally.diverged_at + 1
        metrics = self._last_metrics | self.tally.metrics()
        return self._make_report(at, "diverged", metrics, diverged_at_step=at)

    def _finish_report(self, held_out: dict[str, float]) -> Report:
        done = self.step == self.length.num_steps
        metrics = self.tally.metrics() | held_out | self.dynamics.metrics()
        if done:
            metrics |= self.dynamics.final_metrics()
        if self._follow is not None:
            metrics["alpha_v"] = self._follow.last_rate
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        report = self._make_report(self.step, "complete" if done else "running", metrics)
        self._last_metrics = metrics
        self.tally.reset()
        return report

    def _make_report(
        self,
        step: int,
        status: Status,
        metrics: dict[str, float],
        diverged_at_step: int | None = None,
    ) -> Report:
        found: dict[str, Any] = {}
        if self._owes_provenance or status != "running":
            peak = peak_memory_bytes(self.device)
            found = self._provenance | {"peak_memory_bytes": peak} | self.dynamics.provenance()
            self._owes_provenance = False
        return Report(
            step=step,
            num_steps=self.length.num_steps,
            status=status,
            metrics=metrics,
            series=self.dynamics.take_series(),
            diverged_at_step=diverged_at_step,
            provenance=found,
        )

    def _next_report(self, step: int) -> int:
        """Return the number of steps at the first report after ``step``."""
        every = self._report_every
        return min((step // every + 1) * every, self.length.num_steps)

    def _is_report_step(self, step: int) -> bool:
        return step % self._report_every == 0 or step == self.length.num_steps

    def _evaluate(self) -> Generator[Turn, None, dict[str, float] | None]:
        """Evaluate errors on held-out images; None when the network's outputs are not finite."""
        data = self.data
        found: dict[str, float] = {}
        spans: list[tuple[str, Any, Tensor]] = []
        if len(data.validation_indices):
            spans.append(("validation_error", data.train, data.validation_indices))
        if self.config.test_evaluation == "curve" or self.step == self.length.num_steps:
            spans.append(("test_error", data.test, data.test_indices))
        # What some optimizers evaluate with are other weights than those that they step with.
        set_mode(self.optimizer, "eval")
        try:
            for name, pixels, indices in spans:
                values = yield from self._errors(name, pixels, indices)
                if values is None:
                    return None
                found |= values
        finally:
            if self.step < self.length.num_steps:
                set_mode(self.optimizer, "train")
        return found

    def _errors(
        self, name: str, pixels: Any, indices: Tensor
    ) -> Generator[Turn, None, dict[str, float] | None]:
        """Evaluate on one set; None when the network's outputs are not finite."""
        if isinstance(self.steps, OwnSteps):
            measured = yield from self.steps.evaluate(pixels, indices, self._stop)
            if measured is None:
                raise Stopped
            prefix = name.removesuffix("error")
            values = {prefix + metric: value for metric, value in measured.metrics.items()}
            return values if measured.is_finite else None
        result = yield from evaluate(self.model, self.steps.judge, pixels, indices, self._stop)
        if result is None:
            raise Stopped
        return {name: result.error} if result.is_finite else None

    def save(self, folder: Path | None, *, wait: bool = True) -> None:
        """Write a checkpoint of the current state.

        A run on a card that does not ``wait`` continues while it is written.
        """
        if folder is None:
            return
        self.tally.drain()
        state = {
            "config_key": self.key,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "tally": self.tally.state(),
            "dynamics": self.dynamics.state(),
            "last_metrics": self._last_metrics,
            "follow": self._follow.state_dict() if self._follow is not None else None,
            "generator": torch.get_rng_state(),
        }
        if self._own is not None:
            state["loss"] = self._own.state
        if self.device.type == "cuda":
            state["cuda_generator"] = torch.cuda.get_rng_state(self.device)
        if wait or not self._saves_aside:
            self.writer.finish()
            checkpoint.save(folder, self.step, state)
        else:
            self.writer.begin(folder, self.step, state)

    def resume(self, state: dict[str, Any] | None) -> None:
        """Restore a checkpoint's state, or start at step 0 without one."""
        if state is None:
            return
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        captured = [group.get("capturable") for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        # The checkpoint does not decide how this run takes its steps.
        for group, capturable in zip(self.optimizer.param_groups, captured, strict=True):
            if capturable is not None:
                group["capturable"] = capturable
        self.tally.load(state["tally"])
        self.dynamics.load(state["dynamics"])
        self._last_metrics = state["last_metrics"]
        if self._own is not None:
            self._own.load(state["loss"])
        if self._follow is not None:
            self._follow.load_state_dict(state["follow"])
        torch.set_rng_state(state["generator"])
        if self.device.type == "cuda" and "cuda_generator" in state:
            torch.cuda.set_rng_state(state["cuda_generator"], self.device)
