"""Detects a run that blocks the others of its process, and names it.

Runs that share a card take turns cooperatively. One that waits for a disk that does not answer, or
whose kernel never ends, would block all of them for ever without a message.
"""

import faulthandler
import threading
from collections.abc import Callable, Hashable, Sequence

#: Seconds that a turn, or what it put into the queue of the card, may take. A first turn reads the
#: images and compiles kernels, which takes some 20 of them; the slowest known disk needs 100 more.
TURN_LIMIT = 600.0
#: Looks at a turn before it counts as stuck. Looks are counted and not only seconds, so that a
#: process that was stopped for a while has not had a long turn.
_LOOKS = 10
#: Times the limit after which the process ends although this thread never got to look: something
#: then keeps Python's lock.
_BLIND = 2

#: A run and when its turn, or the oldest that the card works on, began.
Held = tuple[Hashable, float]


class StallWatchdog(threading.Thread):
    """Calls ``on_stuck``, once and in this thread, with the run that blocks the others."""

    def __init__(
        self,
        held: Callable[[], Sequence[Held]],  # called from this thread; the first to blame first
        on_stuck: Callable[[Hashable], None],
        limit: float = TURN_LIMIT,
    ) -> None:
        super().__init__(name="stall-watchdog", daemon=True)
        self._held, self._on_stuck, self._limit = held, on_stuck, limit
        self._is_over = threading.Event()

    def run(self) -> None:
        looks: dict[Held, int] = {}
        faulthandler.dump_traceback_later(_BLIND * self._limit, exit=True)
        while not self._is_over.wait(self._limit / _LOOKS):
            faulthandler.dump_traceback_later(_BLIND * self._limit, exit=True)
            now = self._held()
            looks = {held: looks.get(held, 0) + 1 for held in now}
            stuck = [held for held in now if looks[held] > _LOOKS]
            if stuck:
                self._on_stuck(stuck[0][0])
                break
        faulthandler.cancel_dump_traceback_later()

    def end(self) -> None:
        """Stop watching."""
        self._is_over.set()
