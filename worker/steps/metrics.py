"""Training metrics between two reports, kept without stalling the device.

A step only appends tensors. They are read every ``DRAIN_STEPS`` steps, at a report and at a
checkpoint; the sums do not depend on when that happens, so a resumed run reports the same numbers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

#: A NaN or infinite loss must be noticed within 100 steps.
DRAIN_STEPS = 50
_NOT_SAVED = ("_pending", "_first_pending", "_on_device", "_reads", "begin_read")


class StepRecord(NamedTuple):
    """What one step adds."""

    loss: float
    wrong: int
    images: int
    logit_squares: float
    logits: int


class PendingRead(Protocol):
    """Records of steps on their way from the device."""

    @property
    def is_done(self) -> bool:
        """Whether they are here."""

    def records(self) -> list[StepRecord]:
        """Those records, in order. Waits for them."""


class RunningMetrics:
    """Sums of loss, errors and logits since the last report; finds the first non-finite loss."""

    def __init__(self) -> None:
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._first_pending = 0
        self._on_device = 0
        #: Each with the step of its first record.
        self._reads: list[tuple[int, PendingRead]] = []
        #: Begins to read what steps have recorded on the device, those that ``add_device`` noted.
        self.begin_read: Callable[[], PendingRead] | None = None
        #: Step (from 0) at which the loss was first NaN or infinite.
        self.diverged_at: int | None = None
        self.seconds = 0.0
        self.reset()

    @property
    def is_open(self) -> bool:
        """Whether steps were taken since the last report."""
        return bool(self._pending or self._reads) or self._on_device > 0 or self.steps > 0

    def reset(self) -> None:
        """Start a new span after a report."""
        self.steps = 0
        self._loss = 0.0
        self._wrong = 0
        self._images = 0
        self._logit_squares = 0.0
        self._logits = 0
        self.seconds = 0.0

    def add(self, step: int, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Note one step. Reads nothing from a CUDA device."""
        if not self._pending:
            self._first_pending = step
        self._pending.append((loss, logits, labels))
        # On a CPU reading is free, so a divergence ends the run in the very step.
        if len(self._pending) >= DRAIN_STEPS or (
            loss.device.type == "cpu" and not math.isfinite(loss.item())
        ):
            self.drain()

    def add_device(self, step: int, waiting: int) -> None:
        """Note one step that recorded its numbers on the device, where ``waiting`` now wait.

        They are read in the background; only what is ``DRAIN_STEPS`` steps old is waited for.
        """
        if waiting == 1:
            self._first_pending = step
        self._on_device = waiting
        if waiting >= DRAIN_STEPS:
            self._finish_reads()
            self._begin_read()
        elif self._reads and self._reads[0][1].is_done:
            self._finish_reads()

    def drain(self) -> None:
        """Read what is pending. Steps from the first non-finite loss on are left out."""
        if self._on_device:
            self._begin_read()
        self._finish_reads()
        if self._pending:
            self._sum(self._first_pending, self._read_pending())
            self._pending.clear()

    def _begin_read(self) -> None:
        assert self.begin_read is not None
        self._reads.append((self._first_pending, self.begin_read()))
        self._on_device = 0

    def _finish_reads(self) -> None:
        for first, read in self._reads:
            self._sum(first, read.records())
        self._reads.clear()

    def _read_pending(self) -> list[StepRecord]:
        losses, logits, labels = zip(*self._pending, strict=True)
        values = torch.stack(losses).tolist()
        # One norm per batch: a sum over several would depend on when they were drained.
        norms = torch.stack(
            [torch.linalg.vector_norm(part, dtype=torch.float64) for part in logits]
        ).tolist()
        wrong = torch.stack(
            [(z.argmax(1) != y).sum() for z, y in zip(logits, labels, strict=True)]
        ).tolist()
        return [
            StepRecord(loss, bad, len(y), norm**2, z.numel())
            for loss, bad, norm, z, y in zip(values, wrong, norms, logits, labels, strict=True)
        ]

    def _sum(self, first_step: int, records: list[StepRecord]) -> None:
        if self.diverged_at is not None:
            return
        for index, record in enumerate(records):
            if not math.isfinite(record.loss):
                self.diverged_at = first_step + index
                break
            self.steps += 1
            self._loss += record.loss
            self._wrong += record.wrong
            self._images += record.images
            self._logit_squares += record.logit_squares
            self._logits += record.logits

    def metrics(self) -> dict[str, float]:
        """Means since the last report; empty when no finite step was taken."""
        if not self.steps:
            return {}
        found = {
            "train_loss": self._loss / self.steps,
            "train_error": self._wrong / self._images,
            "logit_rms": math.sqrt(self._logit_squares / self._logits),
        }
        if self.seconds > 0:
            found["images_per_second"] = self._images / self.seconds
        return found

    def state(self) -> dict[str, Any]:
        """For a checkpoint. Call ``drain`` first."""
        assert not self._pending
        assert not self._on_device
        assert not self._reads
        return {name: value for name, value in vars(self).items() if name not in _NOT_SAVED}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        vars(self).update(state)
