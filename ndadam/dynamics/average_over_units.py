"""Which vectors enter the network's average effective learning rate, and in which units.

N vectors, U units: an invariant vector is a unit of its own, vectors that are invariant only
together are one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndadam.dynamics.flat_buffer import FlatBuffer
from ndadam.invariance.probe import ProbeResult, unit_index
from ndadam.invariance.residual_streams import parameters_of


class AverageOverUnits:
    """Root mean square over units of sqrt(sum ||dw||^2 / sum ||w||^2).

    With a ``probe`` only invariant and jointly invariant vectors count (all, when it found none),
    in the units that it judged. Without one every vector counts, those of one residual channel
    together.
    """

    def __init__(
        self,
        rows: FlatBuffer,
        residual_groups: Sequence[Sequence[tuple[Tensor, int]]] | None,
        probe: ProbeResult | None,
    ) -> None:
        spans = None
        if probe is not None:  # its classes are of the units that it judged
            _refuse_other_models(rows, probe)
            residual_groups, spans = parameters_of(probe.streams, rows.vectors), probe.spans
        units, num_units = unit_index(rows.vectors, residual_groups or [], spans)
        counted = torch.ones(rows.num_vectors, dtype=torch.bool, device="cpu")
        if probe is not None:
            classes = [name for v in rows.vectors for name in probe.classes[v.layer]]
            joint = torch.tensor([name == "jointly_invariant" for name in classes], device="cpu")
            alone = torch.arange(rows.num_vectors, device="cpu") + num_units
            units = torch.where(joint, units, alone)
            invariant = torch.tensor([name == "invariant" for name in classes], device="cpu")
            if bool((joint | invariant).any()):
                counted = joint | invariant
        #: Which vectors count, (N,).
        self.counted = counted.to(rows.device)
        _, units = torch.unique(units, return_inverse=True)
        self._units = units.to(rows.device)
        self._num_units = int(units.max()) + 1
        # 1 / (number of counted units) for these, 0 for the others: (U,).
        weights = torch.zeros(self._num_units, dtype=rows.dtype, device="cpu")
        weights[units[counted]] = 1.0
        self._weights = (weights / weights.sum()).to(rows.device)

    def mean_square(self, qq: Tensor, ww: Tensor) -> Tensor:
        """Mean over counted units of sum ||dw||^2 / sum ||w||^2, from (..., N) each: (...)."""
        shape = (2, *qq.shape[:-1], self._num_units)
        sums = torch.zeros(shape, dtype=qq.dtype, device=qq.device)
        sums.index_add_(-1, self._units, torch.stack([qq, ww]))
        ratio = torch.where(sums[1] > 0, sums[0] / sums[1], 0.0)
        return (ratio * self._weights).sum(-1)


def _refuse_other_models(rows: FlatBuffer, probe: ProbeResult) -> None:
    if not isinstance(probe, ProbeResult):
        raise TypeError(f"probe must be what ndadam.probe returns, got {type(probe).__name__}")
    for v in rows.vectors:
        judged = len(probe.classes.get(v.layer, ()))
        if judged != v.count:
            raise ValueError(
                f"probe must be of this model: {v.layer} ({v.name}) has {v.count} weight vectors, "
                f"and the probe has classes of {judged}"
            )
