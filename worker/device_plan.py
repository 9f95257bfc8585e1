"""What a replayed step reads instead of arguments: one epoch of draws and rates, on the device."""

import torch
from torch import Tensor

from worker.augment import Draws, draw_epoch
from worker.config import TrainConfig
from worker.length import Length
from worker.optimizers import LearningRates

#: Numbers per step in ``DevicePlan.record``: loss, wrong predictions, sum of squared logits.
RECORDED = 3


class DevicePlan:
    """Buffers that stay where they are for the life of a run, and counters that a step advances.

    A step reads its images from ``draws`` and its learning rates from ``rates``, both at
    ``counters[0]``, and writes what is reported to the row ``counters[1]`` of ``record``.
    """

    def __init__(
        self,
        config: TrainConfig,
        indices: Tensor,  # (N,) int64, on the CPU
        length: Length,
        rates: LearningRates,
        device: torch.device,
        record_rows: int,
        pad: int,
    ) -> None:
        self._indices, self._length, self._source = indices, length, rates
        self._seed, self._flip, self._pad = config.seed, config.flip, pad
        self._epoch = -1
        self._position = -1
        groups = len(rates.at(0))
        #: Order, rows down, columns right and flips of an epoch, (4, N) int32.
        self.draws = torch.zeros(4, len(indices), dtype=torch.int32, device=device)
        self.rates = torch.zeros(length.steps_per_epoch, groups, device=device)
        #: Of the step under way, (1, groups); the optimizer's groups hold its elements.
        self.current_rates = torch.zeros(1, groups, device=device)
        self.counters = torch.zeros(2, dtype=torch.int64, device=device)
        self.record = torch.zeros(record_rows, RECORDED, dtype=torch.float64, device=device)

    def seek(self, step: int) -> None:
        """Make the next step taken on the device step ``step``. Waits for nothing."""
        epoch, position = divmod(step, self._length.steps_per_epoch)
        if epoch != self._epoch:
            self._load(epoch)
            self._epoch = epoch
        if position != self._position:
            self.counters[:1].fill_(position)
        self._position = position + 1

    def rows_done(self) -> None:
        """Begin the record anew, once it has been read."""
        self.record.zero_()
        self.counters[1:].zero_()

    def begin(self) -> None:
        """First part of a step: its learning rates."""
        torch.index_select(self.rates, 0, self.counters[:1], out=self.current_rates)

    def end(self) -> None:
        """Last part of a step."""
        self.counters.add_(1)

    def batch_draws(self, size: int) -> Draws:
        """The draws of the step under way, as ``worker.augment`` takes them."""
        start = self.counters[:1] * self._length.batch_size
        position = start + torch.arange(size, device=self.counters.device)
        order, down, right, flip = self.draws.index_select(1, position).long()
        return Draws(order, down, right, flip.bool())

    def _load(self, epoch: int) -> None:
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
        rates = torch.tensor([self._source.at(step) for step in steps], dtype=torch.float32)
        _upload(self.draws, table.to(torch.int32))
        _upload(self.rates, rates)


def _upload(target: Tensor, values: Tensor) -> None:
    if target.is_cuda:
        # The allocator of pinned memory does not hand it out again before the copy has ended.
        values = values.pin_memory()
    target.copy_(values, non_blocking=True)
