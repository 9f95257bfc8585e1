"""Learning rate, momentum and decay of each weight vector, read from the optimizer's groups."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ndadam.dynamics.flat_buffer import FlatBuffer


class GroupSettings:
    """Follows ``optimizer.param_groups`` for the vectors in ``rows``, without host syncs.

    N vectors hold P elements; ``spans`` are runs of layers in the same group.
    """

    def __init__(self, optimizer: Optimizer, rows: FlatBuffer) -> None:
        self.optimizer = optimizer
        self.rows = rows
        group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self.spans = list(_spans([group_of[v.parameter] for v in rows.vectors], rows))
        self._filled: dict[str, tuple[Tensor, list[Any]]] = {}
        self._num_known = len(optimizer.param_groups)

    def warn_of_new_groups(self) -> None:
        """Say once of each group that came later that its weight vectors are not measured."""
        groups = self.optimizer.param_groups
        new = range(self._num_known, len(groups))
        self._num_known = len(groups)
        # Biases and scales, which have one dimension, are measured nowhere.
        held = [i for i in new if any(p.dim() > 1 for p in groups[i]["params"])]
        if held:
            warnings.warn(
                f"param_groups[{held[0]}] was added to the optimizer after EffectiveLR was attached"
                " and is not measured; detach() it and attach a new one to measure all groups",
                stacklevel=2,
            )

    def groups(self) -> list[dict[str, Any]]:
        """The parameter group of each span."""
        return [self.optimizer.param_groups[group] for group, _, _ in self.spans]

    def per_vector(self, key: str) -> Tensor:
        """The value of ``key`` for each vector, (N,); refilled only where it has changed."""
        if key not in self._filled:
            self._filled[key] = (self.rows.per_vector(), [None] * len(self.spans))
        values, last = self._filled[key]
        for i, (group, _, vectors) in enumerate(self.spans):
            value = self.optimizer.param_groups[group][key]
            if isinstance(value, Tensor):
                values[vectors] = value.to(values.dtype)
            elif value != last[i]:
                values[vectors].fill_(value)
                last[i] = value
        return values

    @property
    def is_plain_sgd(self) -> bool:
        """Whether the update is buf <- mu buf + g + lambda w, w <- w - lr buf, with lambda > 0."""
        return isinstance(self.optimizer, torch.optim.SGD) and all(
            group["weight_decay"] > 0
            and not group["nesterov"]
            and not group["maximize"]
            and group["dampening"] == 0
            for group in self.groups()
        )


def _spans(groups: list[int], rows: FlatBuffer) -> Iterator[tuple[int, slice, slice]]:
    """(group, its elements, its vectors) for each run of layers in one group."""
    first = element = vector = 0
    next_element = next_vector = 0
    for i, group in enumerate(groups):
        next_element += rows.sizes[i]
        next_vector += rows.counts[i]
        if i + 1 == len(groups) or groups[i + 1] != group:
            yield groups[first], slice(element, next_element), slice(vector, next_vector)
            first, element, vector = i + 1, next_element, next_vector
