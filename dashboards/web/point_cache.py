"""A cache of values computed from every point of a sweep, valid until a trial changes state.

A page of a sweep draws ten plots, and each of them looks at all points; a sweep of 10,000 is read
and analysed once for all of them. Few sweeps are kept, so memory does not grow with what is viewed.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sweeps.records import Point, Sweep
from sweeps.store.store import Store

T = TypeVar("T")

#: Results kept, over all sweeps: a page needs about three.
MOST_KEPT = 12


class Kept:
    """A few values by key; the least recently used is dropped first.

    Equal questions at the same time are answered by one computation.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._busy: dict[tuple[Any, ...], threading.Lock] = {}

    def get(self, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """Return the value of ``key``, computed if it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast("T", self._values[key])
            mine = self._busy.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                if key in self._values:
                    return cast("T", self._values[key])
            try:
                value = compute()
            finally:
                with self._lock:
                    self._busy.pop(key, None)
            with self._lock:
                self._values[key] = value
                while len(self._values) > self._most:
                    self._values.popitem(last=False)
        return value


_KEPT = Kept()


def kept(store: Store, sweep: Sweep, what: str, compute: Callable[[], T]) -> T:
    """Return ``compute()``, or what it returned since a trial of the sweep last changed state."""
    # Means and best points move only when a trial ends, and then a count moves too.
    moment = (sweep.state, sweep.num_trials, tuple(sorted(sweep.trials.items())), sweep.started_at)
    return _KEPT.get((id(store), sweep.id, what, moment), compute)


def all_points(store: Store, sweep: Sweep) -> list[Point]:
    """Every point of a sweep. Shared: callers must not change it."""
    return kept(store, sweep, "points", lambda: store.all_points(sweep.id))
