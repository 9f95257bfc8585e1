"""Counts, for each parameter, the steps that its weight vectors sat out for a broken gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor


class SkippedVectors:
    """One count per weight vector, on the device of its parameter: counting waits for nothing."""

    def __init__(self) -> None:
        self._counts: dict[Tensor, Tensor] = {}

    def counts_of(self, p: Tensor, exp_avg_sq: Tensor) -> Tensor:
        """The counts of the vectors of ``p``, (V, 1) float32; made with the first need of them."""
        counts = self._counts.get(p)
        if counts is None or counts.shape != exp_avg_sq.shape:
            counts = self._counts[p] = torch.zeros_like(exp_avg_sq, dtype=torch.float32)
        return counts

    def add(self, counts: Sequence[Tensor], broken: Sequence[Tensor]) -> None:
        """Count one step for each vector that is marked in ``broken`` (V, 1)."""
        marks = [mark.to(torch.float32) for mark in broken]
        torch._foreach_add_(list(counts), marks)

    def total(self, p: Tensor) -> int:
        """Skipped steps of all vectors of ``p``; waits for its device."""
        counts = self._counts.get(p)
        return 0 if counts is None else int(counts.sum())
