"""Several runs in one thread of one process, each on a stream of the card of its own.

The thread only fills queues: a turn launches a few steps (replays of a graph), and the next run has
its turn while the card works on them. Nothing waits for the card while another run could go on.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import torch

from worker.card_sharing.stall_watchdog import Held
from worker.errors import DeviceLost
from worker.report import Report
from worker.steps.turns import Turn

Turns = Generator[Report | Turn, None, None]

#: Turns of one run that the card may have before it. Enough for it to work on while another run
#: reads its report or draws its next epoch; each is work that a cancelled trial still does. With
#: more than ``worker.steps.metrics.DRAIN_STEPS`` steps in them, losses would be waited for.
DEPTH = 3


class RoundRobin:
    """Gives runs their turns in order; an error in one run does not affect another."""

    def __init__(
        self,
        device: torch.device,
        *,
        on_report: Callable[[Hashable, Report], None],
        on_end: Callable[[Hashable, Exception | None], None],
        depth: int = DEPTH,
    ) -> None:
        """``on_end`` is called with None for a run that returned, else with what it raised."""
        self._depth = depth
        self._device, self._on_report, self._on_end = device, on_report, on_end
        self._running: deque[_Running] = deque()
        self._free: list[_Lane] = []
        #: Whose turn it is, and since when.
        self._turn: Held | None = None

    @property
    def keys(self) -> list[Hashable]:
        """Keys of the runs that have not ended."""
        return [running.key for running in self._running]

    def held(self) -> list[Held]:
        """Return whose turn it is and since when; then the run the card has worked for the longest.

        The latter comes with the time at which the card last finished any turn: while it
        finishes turns, no run is blocked. From any thread.
        """
        turn = self._turn
        lanes = [(run.lane.since, run.key) for run in list(self._running)]
        queued = [(since, key) for since, key in lanes if since is not None]
        found = [turn] if turn else []
        if queued:
            found.append((min(queued, key=_since)[1], max(queued, key=_since)[0]))
        return found

    def add(self, key: Hashable, start: Callable[[], Turns]) -> None:
        """Add a run. ``start`` is called in its first turn; what it raises ends this run."""
        lane = self._free.pop() if self._free else _Lane(self._device)
        self._running.append(_Running(key, start, lane))

    def remove(self, key: Hashable) -> None:
        """Abort a run immediately without reporting; unknown keys are ignored."""
        for running in list(self._running):
            if running.key == key:
                self._drop(running)

    def turn(self) -> bool:
        """Give one run its turn. Returns False if all wait for the card, or there is none.

        Raises DeviceLost if a run broke the card for all.
        """
        for _ in range(len(self._running)):
            running = self._running[0]
            self._running.rotate(-1)
            if running.lane.waiting() < (1 if running.settles else self._depth):
                self._give_turn(running)
                return True
        return False

    def _give_turn(self, running: "_Running") -> None:
        self._turn = running.key, monotonic()
        try:
            with running.lane.in_use():
                item = running.next()
        except StopIteration:
            self._end(running, None)
        except Exception as error:
            self._end(running, error)
        else:
            running.settles = item is Turn.SETTLE
            if isinstance(item, Report):
                self._on_report(running.key, item)
        self._turn = None

    def _end(self, running: "_Running", error: Exception | None) -> None:
        self._drop(running)
        self._on_end(running.key, error)

    def _drop(self, running: "_Running") -> None:
        self._turn = running.key, monotonic()
        self._running.remove(running)
        # What the run holds may only be freed when the card no longer works on it.
        running.lane.settle()
        with running.lane.in_use():
            running.close()
        self._free.append(running.lane)
        self._turn = None


def _since(lane: tuple[float, Hashable]) -> float:
    return lane[0]


class _Running:
    """A run that has not ended."""

    def __init__(self, key: Hashable, start: Callable[[], Turns], lane: "_Lane") -> None:
        self.key, self.lane, self.settles = key, lane, False
        self._start: Callable[[], Turns] | None = start
        self._turns: Turns | None = None

    def next(self) -> Report | Turn:
        if self._turns is None:
            assert self._start is not None
            self._turns = self._start()
        return next(self._turns)

    def close(self) -> None:
        if self._turns is not None:
            self._turns.close()
        self._turns = self._start = None


class _Lane:
    """A stream of the card, with a mark behind every turn in its queue. On a CPU nothing queues."""

    def __init__(self, device: torch.device) -> None:
        is_card = device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(device) if is_card else None  # type: ignore[no-untyped-call]
        self._marks: deque[Any] = deque()
        #: When the card began with the oldest turn that it has not finished.
        self.since: float | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Launch on this stream."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        self._marks.append(self._stream.record_event())
        if self.since is None:
            self.since = monotonic()

    def waiting(self) -> int:
        """Turns that the card has not finished."""
        while self._marks and self._marks[0].query():
            self._marks.popleft()
            self.since = monotonic() if self._marks else None
        return len(self._marks)

    def settle(self) -> None:
        """Wait for the card. Raises DeviceLost if it will not work again in this process."""
        self._marks.clear()
        if self._stream is not None:
            try:
                self._stream.synchronize()
            except RuntimeError as error:
                raise DeviceLost(f"the card gave up: {error}") from error
        self.since = None
