"""Pauses between attempts at something that fails for a while."""

from collections.abc import Iterator


def pauses(first: float, last: float) -> Iterator[float]:
    """Seconds to wait before each further attempt, without end: doubled each time, up to ``last``.

    For a new series of failures, begin a new one.
    """
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, last)
