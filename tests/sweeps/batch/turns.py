"""Processes that train in short turns, so that a test sees them before they have ended.

A test that waits for training to get somewhere and then acts can come too late: between its look
and its act the training goes on, and on a disk that is slow to answer it goes on to its end. Here
every look is at processes that stand still, and they do so until the test lets them go on.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

PATIENCE = 480.0
#: Seconds: some ten steps of the small network.
_TURN = 0.06
#: Seconds between turns, for what is written meanwhile; longer where it is what is waited for.
SHORT, LONG = 0.02, 0.5


def wait_for(condition: Callable[[], Any]) -> Any:
    """What a condition answers once it is met."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@contextmanager
def standing_still(*processes: psutil.Process) -> Iterator[None]:
    """Let processes stand still in the block, and go on after it if they are still there."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def run_until(
    condition: Callable[[], Any], processes: Sequence[psutil.Process], *, rest: float = SHORT
) -> Any:
    """Give processes that stand still turns until a condition is met; they stand still again.

    Returns what the condition answered.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        for process in processes:
            process.resume()
        time.sleep(_TURN)
        for process in processes:
            process.suspend()
        time.sleep(rest)
    return found
