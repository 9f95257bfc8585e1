"""What a fused step updates, remembered so that the next step is told at once to be like it.

Looking at every parameter for every reason not to fuse it takes the host about as long as the step
of twenty layers takes the device. Most steps differ from the last in gradients and rates alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import Tensor

from ndadam.fused.launch import FusedGroup

_STRIDED = {torch.strided}


@dataclass(slots=True)
class _Planned:
    """One parameter group of the optimizer, as it was."""

    group: dict[str, Any]  # the optimizer's own
    params: list[Tensor]  # all of it
    idle: list[Tensor]  # those without a gradient, or without elements
    states: list[dict[str, Tensor]]  # of the others
    choice: tuple[object, ...]
    step: FusedGroup | None  # None where all are idle

    def still_describes(self, group: dict[str, Any]) -> bool:
        """Whether the group holds what it held, and the same of it has gradients."""
        return (
            group is self.group
            and _same(group["params"], self.params)
            and _choice(group) == self.choice
            and all([p.grad is None or p.numel() == 0 for p in self.idle])
        )


class FusedPlan:
    """The parameters of a step that was fused as a whole, their state and where all of it lies.

    Args:
        param_groups: The optimizer's groups.
        state: The optimizer's state.
        steps: By position of its group, what the fused step updated.
    """

    def __init__(
        self,
        param_groups: Sequence[dict[str, Any]],
        state: Mapping[Tensor, dict[str, Tensor]],
        steps: Mapping[int, FusedGroup],
    ) -> None:
        self._states = list(state.values())
        self._planned: list[_Planned] = []
        for index, group in enumerate(param_groups):
            step = steps.get(index)
            stepped = [] if step is None else list(step.params)
            moved = set(stepped)
            idle = [p for p in group["params"] if p not in moved]
            states = [state[p] for p in stepped]
            planned = _Planned(group, list(group["params"]), idle, states, _choice(group), step)
            self._planned.append(planned)
        #: Of everything but the gradients, as ``FusedStep`` lists them.
        self.addresses = self._addresses()

    def next_step(
        self,
        param_groups: Sequence[dict[str, Any]],
        state: Mapping[Tensor, dict[str, Tensor]],
    ) -> dict[int, FusedGroup] | None:
        """What to update now, by position of its group; None when more has changed than numbers.

        It has the gradients of now, and still the rates of the last step.
        """
        if len(param_groups) != len(self._planned) or not _same(state.values(), self._states):
            return None
        steps = {}
        for index, (planned, group) in enumerate(zip(self._planned, param_groups, strict=True)):
            if not planned.still_describes(group):
                return None
            step = planned.step
            if step is None:
                continue
            grads = [grad for p in step.params if (grad := p.grad) is not None]
            # Sparse ones are refused elsewhere.
            if len(grads) < len(step.params) or {grad.layout for grad in grads} != _STRIDED:
                return None
            step.grads = grads
            steps[index] = step
        return steps if self._addresses() == self.addresses else None

    def _addresses(self) -> list[int]:
        addresses: list[int] = []
        for planned in self._planned:
            if planned.step is not None:
                states = planned.states
                addresses += [p.data_ptr() for p in planned.step.params]
                addresses += [state["exp_avg"].data_ptr() for state in states]
                addresses += [state["exp_avg_sq"].data_ptr() for state in states]
                addresses += [state["step"].data_ptr() for state in states]
        return addresses


def _choice(group: dict[str, Any]) -> tuple[object, ...]:
    """What decides how a group is updated; decay on vectors is refused."""
    vector_dim = group["vector_dim"]
    decays = vector_dim is not None and group["weight_decay"] != 0
    return vector_dim, decays, group["fused"], group["foreach"]


def _same(values: Iterable[Any], others: Sequence[Any]) -> bool:
    """Whether both hold the same objects in the same order."""
    values = list(values)
    return len(values) == len(others) and all(map(is_, values, others))
