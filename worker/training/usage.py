"""What a trial uses of its machine: a thread that looks at the process and its card now and then.

One process trains all trials of a shared card, so that what is measured of it is divided by their
number at that moment. Imports no torch.
"""

import logging
import threading
import time
from collections.abc import Generator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import psutil

from worker.report import Series, Usage
from worker.training.cards import CardReading, Cards

if TYPE_CHECKING:
    from worker.report import Report
    from worker.steps.turns import Turn

_LOG = logging.getLogger(__name__)

#: Seconds between two looks.
PERIOD = 5.0
#: Seconds that a trial waits at its end for a last look.
_PATIENCE = 1.0
#: Looks of one stored value; doubled each time that so many values have been stored, so that a
#: trial of a week has some thousands of them.
_WINDOW, _VALUES = 1, 720
_MEGA, _HOUR = 1e6, 3600.0

#: Meters of the trials that this process trains.
_running: set["Meter"] = set()
_lock = threading.Lock()


class Meter:
    """Measures one attempt at a trial until it is closed."""

    def __init__(
        self, *, on_card: bool, cards: Cards | None = None, period: float = PERIOD
    ) -> None:
        """``cards``: where to read; default: those that this process sees, if ``on_card``."""
        self._cards = (cards or Cards()) if on_card else None
        self._period = period
        self._process = psutil.Process()
        self._samples = _Samples(period)
        self._totals: dict[str, float] = {"seconds": 0.0}
        self._at = time.monotonic()
        self._cpu_seconds = self._cpu()
        self._before: list[CardReading] = []
        self._has_news = False
        self._mutex = threading.Lock()
        self._over, self._asked, self._looked = (threading.Event() for _ in range(3))
        with _lock:
            _running.add(self)
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    def take(self, *, look: bool = False) -> Usage | None:
        """Return what was measured since the last call, and the totals; None without news.

        ``look``: measure the time up to now first, since the attempt ends.
        """
        if look:
            self._looked.clear()
            self._asked.set()
            self._looked.wait(_PATIENCE)
        with self._mutex:
            if not self._has_news:
                return None
            self._has_news = False
            return Usage(totals=dict(self._totals), samples=self._samples.take())

    def close(self) -> None:
        """Stop measuring. Waits a second at most: a driver that hangs must not hold a trial up."""
        self._over.set()
        self._asked.set()
        with _lock:
            _running.discard(self)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        """Everything that asks the system or a driver happens in this thread."""
        if self._cards is not None:
            self._before = self._cards.read()
        due = time.monotonic() + self._period
        while not self._over.is_set():
            is_asked = self._asked.wait(max(0.0, due - time.monotonic()))
            self._asked.clear()
            if self._over.is_set():
                break
            try:
                self._measure(is_asked)
            except Exception as error:  # a number that is missing stops no training
                _LOG.debug("usage was not measured: %s", error)
            if is_asked:
                self._looked.set()
            while due <= time.monotonic():
                due += self._period
        if self._cards is not None:
            self._cards.close()

    def _measure(self, ends: bool) -> None:
        now, cpu = time.monotonic(), self._cpu()
        memory = float(self._process.memory_info().rss) / _MEGA
        cards = self._cards.read() if self._cards is not None else []
        with _lock:
            sharing = max(1, len(_running))
        seconds, self._at = now - self._at, now
        busy, self._cpu_seconds = (cpu - self._cpu_seconds) / sharing, cpu
        found = {"process_memory_usage_megabytes": memory}
        if seconds > 0:
            found["process_cpu_utilization_percentage"] = 100 * busy * sharing / seconds
        with self._mutex:
            self._add("seconds", seconds)
            self._add("cpu_hours", busy / _HOUR)
            self._raise("memory_megabytes", memory)
            self._raise("sharing", float(sharing))
            for number, card in enumerate(cards):
                before = self._before[number] if number < len(self._before) else None
                self._take_card(card, before, seconds / sharing, seconds)
                found |= {f"gpu_{number}_{name}": value for name, value in _shown(card).items()}
            self._samples.add(found, ends=ends)
            self._has_news = True
        self._before = cards

    def _take_card(
        self, card: CardReading, before: CardReading | None, share: float, seconds: float
    ) -> None:
        """Add one card: ``share`` of the ``seconds`` since the last look is the trial's."""
        self._add("gpu_hours", share / _HOUR)
        if card.utilization is not None:
            self._add("gpu_measured_hours", share / _HOUR)
            self._add("gpu_busy_hours", share * card.utilization / 100 / _HOUR)
        memory = card.process_memory if card.process_memory is not None else card.memory
        if memory is not None:
            self._raise("gpu_memory_megabytes", memory / _MEGA)
        joules = _joules(card, before, seconds)
        if joules is not None and seconds > 0:
            self._add("energy_watt_hours", joules * share / seconds / _HOUR)

    def _cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _add(self, name: str, value: float) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + value

    def _raise(self, name: str, value: float) -> None:
        self._totals[name] = max(self._totals.get(name, 0.0), value)


class _Samples:
    """Values since the last ``take``, each a mean over a window of looks."""

    def __init__(self, period: float) -> None:
        self._period, self._window = period, _WINDOW
        self._looks: list[dict[str, float]] = []
        self._stored = 0
        self._parts: dict[str, list[Series]] = {}

    def add(self, found: dict[str, float], *, ends: bool) -> None:
        self._looks.append(found)
        if len(self._looks) < self._window and not ends:
            return
        at, every = round(time.time() * 1000), round(self._period * self._window * 1000)
        for name in dict.fromkeys(name for look in self._looks for name in look):
            values = [look[name] for look in self._looks if name in look]
            self._append(name, at, every, sum(values) / len(values))
        self._looks = []
        self._stored += 1
        if self._stored == _VALUES:
            self._stored, self._window = 0, 2 * self._window

    def take(self) -> dict[str, list[Series]]:
        parts, self._parts = self._parts, {}
        return parts

    def _append(self, name: str, at: int, every: int, value: float) -> None:
        parts = self._parts.setdefault(name, [])
        if parts and parts[-1].every == every:
            expected = parts[-1].start + every * len(parts[-1].values)
            if abs(at - expected) <= every / 4:
                parts[-1].values.append(value)
                return
        # A gap: another window, a look that came late, or a value that was not measured.
        parts.append(Series(start=at, every=every, values=[value]))


def _shown(card: CardReading) -> dict[str, float]:
    """A reading under the names that MLflow has for it."""
    found: dict[str, float | None] = {
        "utilization_percentage": card.utilization,
        "power_usage_watts": card.power,
        "memory_usage_megabytes": None if card.memory is None else card.memory / _MEGA,
        "process_memory_usage_megabytes": (
            None if card.process_memory is None else card.process_memory / _MEGA
        ),
    }
    if card.memory is not None and card.memory_total:
        found["memory_usage_percentage"] = 100 * card.memory / card.memory_total
    if card.power is not None and card.power_limit:
        found["power_usage_percentage"] = 100 * card.power / card.power_limit
    return {name: value for name, value in found.items() if value is not None}


def _joules(card: CardReading, before: CardReading | None, seconds: float) -> float | None:
    """Energy since the look before: from the card's counter, or else from its power."""
    if before is not None and card.energy is not None and before.energy is not None:
        used = card.energy - before.energy
        if used >= 0:  # else the driver was loaded again, and counts from 0
            return used
    if card.power is None:
        return None
    earlier = before.power if before is not None and before.power is not None else card.power
    return (card.power + earlier) / 2 * seconds


def with_usage(
    items: Generator["list[Report] | Turn", None, None], device: str, **options: Any
) -> Generator["list[Report] | Turn", None, None]:
    """Yield a trial's batches and turns, the last report of each batch with the trial's usage.

    ``options`` go to ``Meter``.
    """
    with closing(items), closing(Meter(on_card=device == "cuda", **options)) as meter:
        for item in items:
            if isinstance(item, list) and item:
                usage = None
                with suppress(Exception):  # see ``Meter._look``
                    usage = meter.take(look=item[-1].status != "running")
                if usage is not None:
                    item[-1] = item[-1].model_copy(update={"usage": usage})
            yield item
