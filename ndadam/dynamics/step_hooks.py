"""Calls two functions around each step of an optimizer, in copies as in the original."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

#: Called with the optimizer and the arguments of its step.
Hook = Callable[[Optimizer, Any, Any], None]


def refuse_no_optimizer(optimizer: Any) -> None:
    """Raise TypeError unless it is torch's or a subclass of it."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}"
        )


class StepHooks:
    """Registers ``before`` and ``after`` with ``optimizer`` until ``remove``.

    A copied or unpickled optimizer has no hooks, so a copy of these registers itself with the copy
    of the optimizer: what measures would go on as before and see nothing.
    """

    def __init__(self, optimizer: Optimizer, before: Hook, after: Hook) -> None:
        self._optimizer, self._before, self._after = optimizer, before, after
        self._handles = self._register()

    def remove(self) -> None:
        """Call nothing any more. May be said twice."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _register(self) -> list[RemovableHandle]:
        return [
            self._optimizer.register_step_pre_hook(self._before),
            self._optimizer.register_step_post_hook(self._after),
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": bool(self._handles)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._handles = self._register() if state["_handles"] else []
