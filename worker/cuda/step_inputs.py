"""What replayed steps read in place of arguments, and where they write what is reported."""

from typing import NamedTuple

import torch
from torch import Tensor

from worker.config.train_config import TrainConfig
from worker.data.augment import Draws, draw_epoch
from worker.data.run_length import Length
from worker.steps.metrics import DRAIN_STEPS, StepRecord
from worker.steps.optimizers import LearningRates


class DevicePlan:
    """One epoch of draws and learning rates, in buffers that stay where they are.

    Attributes:
        draws: Order, rows down, columns right and flips of an epoch, (4, N) int32.
        rates: Learning rates of its steps, (steps, groups) float32.
        current_rates: Those of the step under way, (1, groups); the optimizer reads them here.
        position: The step under way, counted within the epoch, (1,) int64.
    """

    def __init__(
        self,
        config: TrainConfig,
        indices: Tensor,  # (N,) int64, on the CPU
        length: Length,
        rates: LearningRates,
        device: torch.device,
        pad: int,
    ) -> None:
        self._indices, self._length, self._rate_source = indices, length, rates
        self._seed, self._flip, self._pad = config.seed, config.flip, pad
        self._epoch = -1
        #: What the next epoch's buffers will hold, worked out while this one is trained on.
        self._ahead: _Epoch | None = None
        #: What ``position`` is once the steps launched so far are done.
        self._next_position = -1
        groups = len(rates.at(0))
        self.draws = torch.zeros(4, len(indices), dtype=torch.int32, device=device)
        self.rates = torch.zeros(length.steps_per_epoch, groups, device=device)
        self.current_rates = torch.zeros(1, groups, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def seek(self, step: int) -> None:
        """Make the next step taken on the device step ``step``. Waits for nothing."""
        epoch, position = divmod(step, self._length.steps_per_epoch)
        if epoch != self._epoch:
            self._load(epoch)
            self._epoch = epoch
        elif position == self._length.steps_per_epoch // 2 and self._has(epoch + 1):
            # Here the host is many steps ahead of the card. Between two epochs, where a report
            # waits for the card, this work would leave it idle.
            self._ahead = self._draw(epoch + 1)
        if position != self._next_position:
            self.position.fill_(position)
        self._next_position = position + 1

    def begin(self) -> None:
        """First part of a step: its learning rates."""
        torch.index_select(self.rates, 0, self.position, out=self.current_rates)

    def end(self) -> None:
        """Last part of a step."""
        self.position.add_(1)

    def batch_draws(self, size: int) -> Draws:
        """The draws of the step under way, as ``worker.data.augment`` takes them."""
        first = self.position * self._length.batch_size
        places = first + torch.arange(size, device=first.device)
        order, down, right, flip = self.draws.index_select(1, places).long()
        return Draws(order, down, right, flip.bool())

    def _has(self, epoch: int) -> bool:
        return epoch * self._length.steps_per_epoch < self._length.num_steps

    def _load(self, epoch: int) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.epoch != epoch:
            ahead = self._draw(epoch)
        # The allocator of pinned memory does not hand it out again before the copy has ended.
        self.draws.copy_(ahead.draws, non_blocking=True)
        self.rates.copy_(ahead.rates, non_blocking=True)

    def _draw(self, epoch: int) -> "_Epoch":
        drawn = draw_epoch(
            self._indices,
            self._pad,
            self._flip,
            seed=self._seed,
            epoch=epoch,
            device=torch.device("cpu"),
        )
        table = torch.stack([drawn.order, drawn.down, drawn.right, drawn.flip.long()])
        first = epoch * self._length.steps_per_epoch
        steps = range(first, first + self._length.steps_per_epoch)
        rates = torch.tensor([self._rate_source.at(step) for step in steps], dtype=torch.float32)
        draws = table.to(torch.int32)
        if self.draws.is_cuda:
            draws, rates = draws.pin_memory(), rates.pin_memory()
        return _Epoch(epoch, draws, rates)


class _Epoch(NamedTuple):
    """What ``DevicePlan`` holds of one epoch, on the host."""

    epoch: int
    draws: Tensor  # (4, N) int32
    rates: Tensor  # (steps, groups) float32


class DeviceRecord:
    """What steps record on the device until the host asks for it.

    Attributes:
        table: Loss, wrong predictions and sum of squared logits of each step, (steps, 3) float64.
        row: Where the step under way writes, (1,) int64.
    """

    def __init__(self, num_classes: int, device: torch.device) -> None:
        self._num_classes = num_classes
        self._sizes: list[int] = []
        self.table = torch.zeros(DRAIN_STEPS, 3, dtype=torch.float64, device=device)
        self.row = torch.zeros(1, dtype=torch.int64, device=device)

    def note(self, size: int) -> int:
        """Note that a step on ``size`` images was launched. Returns how many wait to be read."""
        self._sizes.append(size)
        return len(self._sizes)

    def end(self) -> None:
        """Last part of a step."""
        self.row.add_(1)

    def begin_read(self) -> "RecordRead":
        """Begin to read what the steps since the last call recorded. Waits for nothing."""
        read = RecordRead(self.table, self._sizes, self._num_classes)
        self._sizes = []
        # In the order of the stream: after the copy, before the next step.
        self.table.zero_()
        self.row.zero_()
        return read


class RecordRead:
    """A copy of the record's rows on its way to the host."""

    def __init__(self, table: Tensor, sizes: list[int], num_classes: int) -> None:
        self._sizes, self._num_classes = sizes, num_classes
        on_card = table.is_cuda
        self._rows = torch.empty(table.shape, dtype=table.dtype, pin_memory=on_card)
        self._rows.copy_(table, non_blocking=True)
        self._copied = torch.cuda.Event() if on_card else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record()

    @property
    def is_done(self) -> bool:
        """Whether the rows are here."""
        return self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def records(self) -> list[StepRecord]:
        """The steps' records, in order. Waits for them."""
        if self._copied is not None:
            self._copied.synchronize()
        rows = self._rows[: len(self._sizes)].tolist()
        return [
            StepRecord(loss, int(wrong), size, squares, size * self._num_classes)
            for (loss, wrong, squares), size in zip(rows, self._sizes, strict=True)
        ]
