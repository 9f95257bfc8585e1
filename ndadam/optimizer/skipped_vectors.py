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
        by_device: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
        for pair in zip(counts, broken, strict=True):
            by_device.setdefault(pair[0].device, []).append(pair)
        for pairs in by_device.values():
            # Converted together: on a device each of many calls would be a launch.
            flat = torch.cat([mark.flatten() for _, mark in pairs]).to(torch.float32)
            parts = flat.split_with_sizes([count.numel() for count, _ in pairs])
            marks = [p.view(count.shape) for p, (count, _) in zip(parts, pairs, strict=True)]
            torch._foreach_add_([count for count, _ in pairs], marks)

    def total(self, p: Tensor) -> int:
        """Skipped steps of all vectors of ``p``; waits for its device."""
        counts = self._counts.get(p)
        return 0 if counts is None else int(counts.sum())
