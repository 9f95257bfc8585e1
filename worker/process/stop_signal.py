"""Signals that ask a process to stop: Ctrl-C (SIGINT) and SIGTERM.

Only the main thread may set handlers; in any other thread Python raises ValueError.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


def set_by_signals(
    event: threading.Event, numbers: Sequence[signal.Signals] = STOP_SIGNALS
) -> threading.Event:
    """Have signals set ``event`` from now until the process ends. Returns the event."""
    for number in numbers:
        signal.signal(number, lambda *_: event.set())
    return event


@contextmanager
def handled(
    handler: Handler, numbers: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[dict[int, Any]]:
    """Call ``handler`` for signals while entered. Yields the handlers that come back afterwards."""
    before: dict[int, Any] = {}
    for number in numbers:
        before[number] = signal.signal(number, handler)
    try:
        yield before
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


@contextmanager
def stop_requested(*, once: bool = False) -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set while entered, instead of ending the process.

    With ``once``, each signal sets it once: the second Ctrl-C acts as it would outside.
    """
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        event.set()
        if once:
            signal.signal(number, before[number])

    with handled(note) as before:
        yield event
