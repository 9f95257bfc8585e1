"""How long something took on a machine that now and then does nothing at all."""

import threading
import time
from typing import Self

#: Seconds between two turns, and what a turn counts at most however late it comes.
_EVERY, _MOST = 0.05, 0.2


class Turns:
    """Counts seconds while entered, but for those in which this process had no turn either.

    A virtual machine may be left without a processor for seconds. A thread that asks for a turn
    20 times a second then gets none, and a process beside it can have done nothing meanwhile.
    Where processes merely share the processors it gets its turns, and every second counts.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, name="turns", daemon=True)

    def __enter__(self) -> Self:
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
