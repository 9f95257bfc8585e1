"""Writes checkpoints in a thread, so that a card continues training while the disk is slow."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from worker.checkpoints import checkpoint


class CheckpointWriter:
    """Writes the checkpoints of one run in sequence."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def begin(self, folder: Path, step: int, state: dict[str, Any]) -> None:
        """Start to write the current ``state``; waits only for the previous checkpoint.

        The state may change as soon as this returns.
        """
        self.finish()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "checkpoint")
        copy = _copied(state)
        self._under_way = self._pool.submit(_write, folder, step, copy, _here())

    def finish(self) -> None:
        """Wait until the checkpoint is on the disk; raises its errors, except a full disk."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def close(self) -> None:
        """Finish and end the thread."""
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
    """Copy a value to memory that no step writes to. Waits for no device.

    Copies from a card are queued behind earlier steps, into pinned memory that the card writes to
    directly.
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
    """Record an event that the current stream passes after the copies; None without a card."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
