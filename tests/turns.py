"""How long something takes on a machine that has other things to do, and at times does nothing."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

#: Seconds between two turns, and what a turn counts at most however late it comes.
_EVERY, _MOST = 0.05, 0.2
#: Niceness of processes that go first.
_FIRST = -15


class Turns:
    """Counts seconds while entered, but for those in which this process had no turn either.

    A virtual machine may be left without a processor for seconds. A thread that asks for a turn
    20 times a second then gets none, and a process beside it can have done nothing meanwhile.

    The processes that the time is for go before all others from then on, where that is permitted:
    what other tests do at that moment is not counted against them.
    """

    def __init__(self, processes: Iterable[int] = ()) -> None:
        self.seconds = 0.0
        self._processes = list(processes)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, name="turns", daemon=True)

    def __enter__(self) -> Self:
        for pid in self._processes:
            _put_first(pid)
        self._last = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(_EVERY)
            now = time.monotonic()
            self.seconds += min(now - self._last, _MOST)
            self._last = now


def _put_first(pid: int) -> None:
    """Every thread of a process has a niceness of its own."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _FIRST)
