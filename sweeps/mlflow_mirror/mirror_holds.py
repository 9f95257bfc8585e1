"""What MLflow refuses waits longer each time and is given up in the end: it costs nobody else."""

import time
from collections.abc import Callable
from dataclasses import dataclass

# Seconds.
_FIRST, _LAST = 1.0, 60.0
#: Refusals in a row before something counts as never accepted.
MAX_REFUSALS = 6

#: A sweep's id, or an attempt's.
Key = str | int


@dataclass
class _Hold:
    refusals: int
    until: float


class Holds:
    """Which sweeps and attempts are not to be sent for now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[Key, _Hold] = {}

    def refused(self, key: Key) -> bool:
        """Hold something back after a refusal; say whether it is to be given up instead."""
        count = self._held[key].refusals + 1 if key in self._held else 1
        if count >= MAX_REFUSALS:
            del self._held[key]
            return True
        pause = min(_FIRST * 2 ** (count - 1), _LAST)
        self._held[key] = _Hold(count, self._clock() + pause)
        return False

    def wait(self, key: Key, seconds: float) -> None:
        """Hold something back for a time, whatever came before."""
        self._held[key] = _Hold(0, self._clock() + seconds)

    def accepted(self, key: Key) -> None:
        """It was sent: what came before is forgotten."""
        self._held.pop(key, None)

    def sweeps(self) -> list[str]:
        """Sweeps that wait, with all that belongs to them."""
        return [key for key in self._waiting() if isinstance(key, str)]

    def attempts(self) -> list[int]:
        """Attempts that wait."""
        return [key for key in self._waiting() if isinstance(key, int)]

    def _waiting(self) -> list[Key]:
        now = self._clock()
        return [key for key, hold in self._held.items() if hold.until > now]
