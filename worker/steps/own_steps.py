"""The plain loop for data, losses, augmentations and metrics that packages register."""

import math
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ndadam import logit_penalty
from worker.config.part_declarations import DataFacts, Task
from worker.config.train_config import FieldError, TrainConfig
from worker.data.own_data import held_out
from worker.steps.evaluation import BATCH
from worker.steps.metrics import RunningMetrics, StepRecord
from worker.steps.optimizers import LearningRates
from worker.steps.turns import STEPS_PER_TURN, Turn

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]


class BatchSource(Protocol):
    """What has the batch of every step."""

    def batch(self, step: int) -> Batch:
        """Return inputs and targets of step ``step`` (from 0)."""


def _same_shape(outputs: Tensor, targets: Tensor) -> None:
    # Torch would broadcast (B, 1) against (B,), and learn something else.
    if outputs.shape != targets.shape:
        raise FieldError(
            "network",
            "network must return as many numbers as there are targets: outputs have shape "
            f"{tuple(outputs.shape)}, targets {tuple(targets.shape)}",
        )


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    _same_shape(outputs, targets)
    return F.mse_loss(outputs, targets)


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    _same_shape(outputs, targets)
    return F.binary_cross_entropy_with_logits(outputs, targets)


_LOSSES: dict[Task, Loss] = {
    "classification": F.cross_entropy,
    "regression": _squared_error,
    "multilabel": _binary_cross_entropy,
}


def wrong_and_count(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """Return how many targets a network misses, and of how many; of a regression none of none."""
    if task == "classification":
        return (outputs.argmax(1) != targets).sum(), targets.numel()
    if task == "multilabel":
        return ((outputs > 0) != (targets > 0.5)).sum(), targets.numel()
    return outputs.new_zeros((), dtype=torch.int64), 0


@dataclass(frozen=True)
class OwnParts:
    """The loss of a run, what is done to its batches and what is measured on held-out data."""

    task: Task
    loss: Loss
    is_own_loss: bool
    augment: Callable[[Tensor, Tensor], Batch] | None
    metrics: dict[str, Callable[[Tensor, Tensor], Any]] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold of the loss."""
        return self.loss.state_dict() if isinstance(self.loss, nn.Module) else {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore ``state``."""
        if isinstance(self.loss, nn.Module):
            self.loss.load_state_dict(state)


def build_parts(config: TrainConfig, facts: DataFacts, device: torch.device) -> OwnParts:
    """Build the registered loss, augmentation and metrics of a resolved config."""
    parts = config.parts()
    loss, augment = _LOSSES[facts.task], None
    if own := parts.get("loss"):
        loss = _callable(own.title, own.call(config, facts), "loss")
        if isinstance(loss, nn.Module):
            if any(True for _ in loss.parameters()):
                raise FieldError(
                    "loss",
                    f"{own.title} must have no parameters of its own: make them buffers, or part "
                    "of the network",
                )
            loss.to(device)
    if one := parts.get("augmentation"):
        augment = _callable(one.title, one.call(config, facts), "augmentation")
    metrics = {part.name: part.function for part in parts.values() if part.field == "metrics"}
    return OwnParts(facts.task, loss, own is not None, augment, metrics)


def _callable(title: str, made: Any, where: str) -> Any:
    if not callable(made):
        raise FieldError(where, f"{title} must return a function, got {type(made).__name__}")
    return made


class OwnMetrics(RunningMetrics):
    """Sums since the last report, for targets of any task."""

    def __init__(self, parts: OwnParts, *, is_images: bool) -> None:
        self._task, self._is_own_loss, self._is_images = parts.task, parts.is_own_loss, is_images
        super().__init__()

    def _read_pending(self) -> list[StepRecord]:
        losses = torch.stack([loss for loss, _, _ in self._pending]).tolist()
        outputs = [part for _, part, _ in self._pending]
        norms = torch.stack(
            [torch.linalg.vector_norm(part, dtype=torch.float64) for part in outputs]
        ).tolist()
        missed = [wrong_and_count(self._task, z, y) for _, z, y in self._pending]
        wrong = torch.stack([count for count, _ in missed]).tolist()
        return [
            StepRecord(loss, bad, max(of, len(z)), norm**2, z.numel())
            for loss, bad, (_, of), norm, z in zip(
                losses, wrong, missed, norms, outputs, strict=True
            )
        ]

    def metrics(self) -> dict[str, float]:
        found = super().metrics()
        if not found:
            return found
        if self._task == "regression" or self._is_own_loss:
            found["loss"] = found.pop("train_loss")
        if self._task == "regression":
            del found["train_error"], found["logit_rms"]
        if not self._is_images and "images_per_second" in found:
            found["examples_per_second"] = found.pop("images_per_second")
        return found

    def state(self) -> dict[str, Any]:
        unsaved = ("_task", "_is_own_loss", "_is_images")
        return {name: value for name, value in super().state().items() if name not in unsaved}


class OwnSteps:
    """Takes the steps of a run in a plain loop, and evaluates it."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: nn.Module,
        optimizer: Optimizer,
        rates: LearningRates,
        source: BatchSource,
        autocast: Callable[[], AbstractContextManager[object]],
        tally: RunningMetrics,
        parts: OwnParts,
    ) -> None:
        self._lambda_c = config.lambda_c
        self._model, self._optimizer, self._rates = model, optimizer, rates
        self._source, self._autocast, self._tally, self._parts = source, autocast, tally, parts

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        inputs, targets = self._source.batch(step)
        changed, aims = inputs, targets
        if self._parts.augment is not None:
            changed, aims = self._parts.augment(inputs, targets)
        self._rates.set(step)
        self._optimizer.zero_grad(set_to_none=True)
        outputs = self._outputs(changed)
        loss = self._parts.loss(outputs, aims)
        if self._lambda_c is not None:
            loss = loss + logit_penalty(outputs, self._lambda_c)
        torch.autograd.backward(loss)
        self._optimizer.step()
        # Errors count against the targets as they are, not against mixed ones.
        self._tally.add(step, loss.detach(), outputs.detach(), targets)

    def _outputs(self, inputs: Tensor) -> Tensor:
        with self._autocast():
            outputs: Tensor = self._model(inputs)
        # The loss needs float32 at least.
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))

    def judge(self, pixels: Any, part: Tensor, found: Tensor) -> None:
        raise NotImplementedError  # ``evaluate`` is called instead

    def evaluate(
        self, data: Any, indices: Tensor, stop: Callable[[], bool]
    ) -> Generator[Turn, None, "OwnEvaluation | None"]:
        """Evaluate on examples (N,) of ``data``; None when ``stop`` said so between two batches."""
        model, task = self._model, self._parts.task
        model.eval()
        found = OwnEvaluation(task)
        try:
            for number, part in enumerate(torch.split(indices, BATCH[indices.device.type]), 1):
                if stop():
                    return None
                # Not around the loop: others have their turn in between.
                with torch.no_grad():
                    inputs, targets = held_out(data, part)
                    outputs = self._outputs(inputs)
                    found.add(self._parts.loss(outputs, targets), outputs, targets)
                if number % STEPS_PER_TURN == 0:
                    yield Turn.NEXT
        finally:
            model.train()
        yield Turn.SETTLE
        found.measure(self._parts.metrics)
        return found


class OwnEvaluation:
    """What one pass over held-out examples found."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._losses: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []
        #: By the metric's name, without the set's.
        self.metrics: dict[str, float] = {}
        self.is_finite = True

    def add(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """Note one batch."""
        self._losses.append(loss.detach().float() * len(outputs))
        self._outputs.append(outputs)
        self._targets.append(targets)

    def measure(self, own: dict[str, Callable[[Tensor, Tensor], Any]]) -> None:
        """Compute every metric of the set; without them where an output is not finite."""
        outputs, targets = torch.cat(self._outputs), torch.cat(self._targets)
        self.is_finite = bool(torch.isfinite(outputs).all())
        if not self.is_finite:
            return
        self.metrics["loss"] = float(torch.stack(self._losses).sum()) / len(outputs)
        wrong, count = wrong_and_count(self._task, outputs, targets)
        if count:
            self.metrics["error"] = int(wrong) / count
        for name, function in own.items():
            self.metrics[name] = float(function(outputs, targets))
        self.metrics = {n: v for n, v in self.metrics.items() if math.isfinite(v)}
