"""What a record keeps of the sums over every vector: means over layers, and over the network.

Sums of several steps are summed up together where that is worth it: on a device each of the thirty
small calls costs the host more than the device. N vectors of L layers; S sums of each vector.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndadam.dynamics.average_over_units import AverageOverUnits
from ndadam.dynamics.balance import DecaySplit
from ndadam.dynamics.flat_buffer import FlatBuffer

MEAN_SQUARES = ("effective_lr", "angular_update", "weight_norm")

#: The first sums of each vector: |dw|^2, |w|^2, dw . w, g . w, with w from before the step.
NUM_SUMS = 4
_MOST_STEPS = 16
_MOST_NUMBERS = 1 << 24  # 64 MB in float32


def quantities(with_split: bool) -> list[str]:
    """Recorded per layer, in order."""
    ratios = ["projection_ratio", "projection_ratio_on_w"] if with_split else []
    return [*MEAN_SQUARES, "radial_gradient", *ratios]


class Summary:
    """Makes records of sums, (S, N) of each step.

    With the split of SGD's steps four more sums come after the first four, those of
    ``DecaySplit.pairs`` and the learning rate; with shadow moments the square of their step last.
    """

    def __init__(
        self, rows: FlatBuffer, average: AverageOverUnits, *, with_split: bool, with_shadow: bool
    ) -> None:
        self._rows, self._average = rows, average
        self._with_split, self._with_shadow = with_split, with_shadow
        counts = torch.tensor(rows.counts, device="cpu")
        self._layer_index = torch.repeat_interleave(counts).to(rows.device)
        self._layer_counts = counts.to(rows.device, rows.dtype)
        #: Sums of each vector, S.
        self.num_sums = NUM_SUMS + 4 * with_split + with_shadow
        #: Numbers of a record.
        self.size = 1 + with_shadow + len(quantities(with_split)) * len(counts)

    @property
    def steps_at_once(self) -> int:
        """How many steps' sums to keep until they are summed up.

        One on the CPU, where calls are cheap, and where results must not depend in their last bit
        on how many are summed up together.
        """
        if self._rows.device.type == "cpu" or torch.are_deterministic_algorithms_enabled():
            return 1
        numbers = self.num_sums * self._rows.num_vectors
        return max(1, min(_MOST_STEPS, _MOST_NUMBERS // numbers))

    def of(self, sums: Tensor) -> Tensor:
        """Records, (..., size), of sums (..., S, N)."""
        each = sums.movedim(-2, 0)
        qq, ww, dw_w, gw = each[:NUM_SUMS]
        growth = 2 * dw_w + qq  # ||w_t||^2 - ||w_{t-1}||^2
        found = [_ratio(qq, ww), _squared_angle(qq, ww, growth), ww, _ratio(gw, ww)]
        if self._with_split:
            *dots, lr = each[NUM_SUMS : NUM_SUMS + 4]
            found += DecaySplit.ratios(dots, dw_w, lr)
        averages = [self._average.mean_square(qq, ww)]
        if self._with_shadow:
            averages.append(self._average.mean_square(each[-1], torch.ones_like(ww)))
        return torch.cat([torch.stack(averages, -1), self._layer_means(found)], -1)

    def _layer_means(self, found: Sequence[Tensor]) -> Tensor:
        """Means over the vectors of each layer of (..., N) quantities, (..., quantities x L)."""
        values = torch.stack(list(found), -2)
        sums = values.new_zeros(*values.shape[:-1], len(self._layer_counts))
        return (sums.index_add_(-1, self._layer_index, values) / self._layer_counts).flatten(-2)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b > 0, a / b, 0.0)


def _squared_angle(qq: Tensor, ww: Tensor, growth: Tensor) -> Tensor:
    """Square of the angle between w_{t-1} and w_t, radians^2, (..., N).

    From the chord between the unit vectors, because the cosine of a small angle has no digits left
    in float32.
    """
    before, after = ww.sqrt(), (ww + growth).clamp_min(0).sqrt()
    stretch = _ratio(growth, before + after)
    chord_sq = _ratio(qq - stretch.square(), before * after).clamp(0, 4)
    return (2 * torch.asin(chord_sq.sqrt() / 2)).square()
