"""Room for what a step computes once per weight vector, kept from one step to the next."""

from typing import NamedTuple

import torch
from torch import Tensor

_MOST_KEPT = 32  # sets of parameters that have been stepped together


class VectorNumbers(NamedTuple):
    """One number per weight vector of several parameters, N in all; scratch."""

    flat: Tensor  # (N,)
    parts: list[Tensor]  # views into ``flat``, each in the shape of one second moment (V, 1)
    ones: list[Tensor]  # (V,) for each parameter, never written; on the CPU only


class KeptNumbers:
    """The scratch of one optimizer. Making views anew at each step costs more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], VectorNumbers] = {}

    def like(self, exp_avg_sqs: list[Tensor]) -> VectorNumbers:
        """Room for second moments of one type on one device; what it holds is overwritten."""
        if not exp_avg_sqs[0].is_cpu:
            # Not kept: memory allocated in a CUDA graph capture belongs to the graph.
            return new_numbers(exp_avg_sqs)
        key = (exp_avg_sqs[0].dtype, *[x.shape for x in exp_avg_sqs])
        known = self._kept.get(key)
        if known is None:
            if len(self._kept) == _MOST_KEPT:
                self._kept.clear()
            known = self._kept[key] = new_numbers(exp_avg_sqs)
        return known


def new_numbers(exp_avg_sqs: list[Tensor]) -> VectorNumbers:
    """Room for second moments of one type on one device."""
    counts = [x.numel() for x in exp_avg_sqs]
    flat = exp_avg_sqs[0].new_empty(sum(counts))
    parts = [
        part.view(x.shape) for part, x in zip(torch.split(flat, counts), exp_avg_sqs, strict=True)
    ]
    ones = [flat.new_ones(count) for count in counts] if flat.is_cpu else []
    return VectorNumbers(flat, parts, ones)
