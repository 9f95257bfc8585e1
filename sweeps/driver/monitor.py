"""What a driver keeps an eye on while Tune runs: people's wishes, its result, a stop that hangs."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from sweeps.driver.dispatcher import Dispatcher
from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import Claim
from sweeps.store.store import Store

log = logging.getLogger(__name__)

# Seconds.
_PERIOD = 1.0
#: Between two refreshes of a sweep's result.
_RESULT = 5.0
#: How long trials may look for a worker before people are told that they do.
_STARVED = 5.0
#: Between the end of the trials' grace and the end of the sweep, whatever Tune still does.
_LAST_MOMENT = 1.5

_PLACING = "waiting for Ray: there is room, and it has yet to place a worker there"


class Watcher:
    """Looks after a sweep once a second, from a thread of its own."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        dispatcher: Dispatcher,
        *,
        leaving: threading.Event,
        analyse: Callable[[], dict[str, Any] | None],
        no_room: Callable[[], str],
        machines: Callable[[], str],
        on_lost: Callable[[LeaseLost], None],
        on_last_moment: Callable[[], None],
    ) -> None:
        """``no_room`` says why no trial fits on the cluster now, "" if one does; ``machines`` which
        machines get no trials and why, "" if all do. ``on_lost`` is called if another driver has
        the sweep, ``on_last_moment`` when a stop takes too long.
        """
        self._store = store
        self._claim = claim
        self._dispatcher = dispatcher
        self._leaving = leaving
        self._analyse = analyse
        self._no_room = no_room
        self._machines = machines
        self._on_lost = on_lost
        self._on_last_moment = on_last_moment
        self._over = threading.Event()
        # Held where a result is written: none may come after the last one.
        self._result_turn = threading.Lock()
        # What people have been told, and what they are to be told.
        self._reason = self._to_say = ""
        self._grace_over_at: float | None = None
        self._fed_at = time.monotonic()
        self._has_starved = False
        self._next_result = 0.0
        self._result_told = (0, False)

    def start(self) -> None:
        """Start looking."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more: the sweep is about to be given back, with its last result."""
        with self._result_turn:
            self._over.set()

    def say(self, reason: str) -> None:
        """Let people know what the sweep waits for; "" = nothing. Said again until it is heard."""
        self._to_say = reason
        self._tell()

    def _tell(self) -> None:
        reason = "; ".join(filter(None, (self._to_say, self._machines())))
        if reason != self._reason:
            with contextlib.suppress(StoreUnavailable, LeaseLost):
                self._store.set_reason(self._claim, reason)
                self._reason = reason

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._look()
            except StoreUnavailable as error:
                log.warning("%s; trying again", error)
            except LeaseLost as error:
                if not self._over.is_set():
                    self._on_lost(error)
            except Exception:
                log.exception("the watch goes on")
            if self._is_last_moment() and not self._over.is_set():
                log.warning("trials did not stop in time; leaving them")
                self._on_last_moment()
                return
            self._pause()

    def _is_last_moment(self) -> bool:
        if self._grace_over_at is None and self._dispatcher.is_grace_over:
            self._grace_over_at = time.monotonic()
        over_at = self._grace_over_at
        return over_at is not None and time.monotonic() - over_at > _LAST_MOMENT

    def _pause(self) -> None:
        """Wait a period, less if this process is told to leave."""
        end = time.monotonic() + _PERIOD
        was_leaving = self._leaving.is_set()
        while time.monotonic() < end and not self._over.wait(0.1):
            if self._leaving.is_set() and not was_leaving:
                return

    def _look(self) -> None:
        if self._leaving.is_set():
            self._dispatcher.stop("leave")
        wish = self._store.requested(self._claim)
        if wish != "none":
            self._dispatcher.stop("cancel" if wish == "delete" else wish)
        self._look_for_starvation()
        self._tell()
        self._refresh_result()

    def _look_for_starvation(self) -> None:
        now = time.monotonic()
        if not self._dispatcher.is_starved:
            self._fed_at = now
            if self._has_starved:
                self._has_starved = False
                self.say("")
        elif now - self._fed_at > _STARVED:
            self._has_starved = True
            self.say(self._awaited())

    def _awaited(self) -> str:
        """What trials that were handed out wait for: their workers, or room for one."""
        starting = self._dispatcher.workers_starting
        if starting:
            which = "a worker is" if starting == 1 else f"{starting} workers are"
            return f"{which} starting: Python, torch and what they train are imported"
        reason = self._no_room()
        return f"waiting for resources: {reason}" if reason else _PLACING

    def _refresh_result(self) -> None:
        now = time.monotonic()
        # A match has a first result before a trial has ended: the closed form.
        told = self._dispatcher.told, self._dispatcher.result is not None
        if now < self._next_result or told == self._result_told:
            return
        result = self._analyse()
        with self._result_turn:
            if result is not None and not self._over.is_set():
                self._store.set_result(self._claim, result)
        self._result_told = told
        # A result that takes long to find out is found out less often.
        self._next_result = time.monotonic() + max(_RESULT, 20 * (time.monotonic() - now))
