"""Checkpoints written beside the steps: a card goes on training while its disk is slow."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from worker.checkpoints import checkpoint


class CheckpointWriter:
    """Writes the checkpoints of one run, one after the other."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def begin(self, folder: Path, step: int, state: dict[str, Any]) -> None:
        """Write what ``state`` is now; waits for the checkpoint before, and for no other.

        The state may change as soon as this returns.
        """
        self.finish()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "checkpoint")
        copy = _copied(state)
        self._under_way = self._pool.submit(_write, folder, step, copy, _here())

    def finish(self) -> None:
        """Wait until what was begun is on the disk; raises what went wrong, a full disk apart."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def close(self) -> None:
        """``finish``, for good."""
        try:
            self.finish()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None


def _write(folder: Path, step: int, state: dict[str, Any], copied: torch.cuda.Event | None) -> None:
    if copied is not None:
        copied.synchronize()
    checkpoint.save(folder, step, state)


def _copied(value: Any) -> Any:
    """The same in memory that no step writes to. Waits for no device.

    Copies off a card are queued behind the steps before them, into memory that it can write to by
    itself.
    """
    if isinstance(value, Tensor):
        if value.is_cuda:
            return torch.empty_like(value, device="cpu", pin_memory=True).copy_(
                value, non_blocking=True
            )
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return value


def _here() -> torch.cuda.Event | None:
    """Passed by the current stream once the copies have been made; None where there is no card."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
