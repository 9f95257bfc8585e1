"""What the host of a card does: takes guests in, gives them turns, passes on what they say."""

import logging
import os
import selectors
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import closing
from functools import partial
from typing import Any, cast

import torch

from worker.card_sharing.memory_ledger import Room
from worker.card_sharing.protocol import Wire
from worker.card_sharing.round_robin import SideBySide, Turns
from worker.card_sharing.turn_watch import TURN_LIMIT, Held, TurnWatch
from worker.checkpoints.stop_file import StopFile
from worker.report import Report
from worker.training.trial import trial_turns

log = logging.getLogger(__name__)

#: Of a host whose card gave up.
DEVICE_LOST = 70
# Seconds.
#: Between looks at guests while the card works; between two turns there is no wait.
_WHILE_WORKING, _WHILE_IDLE = 5e-4, 0.2


def serve(
    listener: socket.socket, device: str, idle_seconds: float, turn_limit: float = TURN_LIMIT
) -> int:
    """Host trials until there has been none for so long; the exit code.

    Does not return when a trial keeps the turn for ``turn_limit`` seconds: the process then ends.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    # What runs log goes to their guests; the host's own file is for what goes wrong.
    logging.getLogger().handlers[0].setLevel(logging.WARNING)
    logging.getLogger("worker").setLevel(logging.INFO)
    # cuBLAS reads this when its first handle is made, which deterministic runs need.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    host = _Host(listener, torch.device(device), idle_seconds)
    watch = TurnWatch(host.held, host.end_for, turn_limit)
    watch.start()
    try:
        host.run()
    except Exception:
        # A run cannot raise here, so the card or this program is broken: every guest must know,
        # and be trained by another process.
        log.exception("the host of the card ends")
        return DEVICE_LOST
    finally:
        watch.end()
    return 0


class _Guest:
    """A trial, as the host sees it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.task: dict[str, Any] | None = None
        #: What no two runs may write to.
        self.folder: str | None = None
        self.stop: Callable[[], bool] = lambda: False
        #: Nothing more will be said; the wire is closed once all is sent.
        self.is_done = False

    def accept(self, task: dict[str, Any]) -> None:
        """Take the trial's task."""
        self.task, self.folder = task, task["checkpoint_dir"]
        self.stop = StopFile(task["checkpoint_dir"], task.get("stopped_by", ""))
        self.wire.send({"accepted": os.getpid()})

    def end(self, message: dict[str, Any]) -> None:
        """Say the last word."""
        self.wire.send(message)
        self.is_done = True


class _Host:
    def __init__(self, listener: socket.socket, device: torch.device, idle_seconds: float) -> None:
        self._listener, self._idle_seconds = listener, idle_seconds
        self._runs = SideBySide(device, on_report=self._on_report, on_end=self._on_end)
        self._room = Room(device)
        self._guests: dict[int, _Guest] = {}
        #: Accepted, and not yet running.
        self._waiting: list[_Guest] = []
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._speaker: _Guest | None = None
        self._thread = threading.get_ident()
        #: What runs have logged and their guests have not been told.
        self._notes: deque[tuple[_Guest, logging.LogRecord]] = deque()
        self._relay = _Relay(self)
        logging.getLogger("worker").addHandler(self._relay)

    def run(self) -> None:
        idle_since = time.monotonic()
        while self._guests or time.monotonic() - idle_since < self._idle_seconds:
            if self._guests:
                idle_since = time.monotonic()
            self._admit()
            has_worked = self._runs.turn()
            wait = 0.0 if has_worked else _WHILE_WORKING if self._runs.keys else _WHILE_IDLE
            self._look_at_guests(wait)

    def held(self) -> list[Held]:
        """Whose turn it is; see ``SideBySide.held``."""
        return self._runs.held()

    def end_for(self, key: Hashable) -> None:
        """End this process: a trial keeps the turn. It hears so; the others are lost with us."""
        frame = sys._current_frames().get(self._thread)
        place = "".join(traceback.format_stack(frame)) if frame else ""
        guest = self._guests.get(cast(int, key))
        folder = guest.folder if guest is not None else "no longer here"
        text = f"the trial of {folder} kept the turn of all trials of its card, and ended with it"
        # Last, for this is what the others are told.
        log.error("%s%s", place, text)
        logging.shutdown()
        if guest is not None:
            guest.wire.send({"error": {"name": "TurnKept", "text": f"{place}TurnKept: {text}"}})
        os._exit(DEVICE_LOST)

    # --- Guests -------------------------------------------------------------------------------

    def _look_at_guests(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._welcome()
            else:
                self._hear(cast("_Guest", key.data))
        self._pass_notes_on()
        for guest in list(self._guests.values()):
            if guest.wire.has_unsent:
                guest.wire.flush()
            if guest.wire.is_closed or (guest.is_done and not guest.wire.has_unsent):
                self._see_off(guest)

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        guest = _Guest(Wire(connection))
        self._guests[id(guest)] = guest
        self._selector.register(connection, selectors.EVENT_READ, guest)

    def _hear(self, guest: _Guest) -> None:
        try:
            for task in guest.wire.receive():
                # An earlier attempt whose guest has not been missed yet: one run to a folder.
                for other in list(self._guests.values()):
                    if other is not guest and other.folder == task["checkpoint_dir"]:
                        self._see_off(other)
                guest.accept(task)
                self._waiting.append(guest)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("a guest is turned away, it speaks another language: %r", error)
            self._see_off(guest)

    def _admit(self) -> None:
        """Start the runs that the card has room for, in the order in which they came."""
        while self._waiting and self._room.take(id(self._waiting[0]), self._waiting[0].task or {}):
            guest = self._waiting.pop(0)
            self._runs.add(id(guest), partial(self._turns, guest))
        for guest in [waiting for waiting in self._waiting if waiting.stop()]:
            self._waiting.remove(guest)
            guest.end({"ended": True})

    def _see_off(self, guest: _Guest) -> None:
        del self._guests[id(guest)]
        if guest in self._waiting:
            self._waiting.remove(guest)
        self._runs.remove(id(guest))
        self._room.leave(id(guest))
        self._selector.unregister(guest.wire.connection)
        guest.wire.close()

    # --- Runs ---------------------------------------------------------------------------------

    def _turns(self, guest: _Guest) -> Turns:
        """A guest's run; what is logged in its turns is told to it."""
        assert guest.task is not None
        self._room.refuse_too_large(guest.task)
        with closing(trial_turns(guest.task)) as turns:
            while True:
                self._speaker = guest
                try:
                    item = next(turns)
                except StopIteration:
                    return
                finally:
                    self._speaker = None
                yield item

    def _on_report(self, key: Hashable, report: Report) -> None:
        self._pass_notes_on()
        told = report.model_dump(mode="json")
        told["provenance"] = _of_host(report.provenance, self._room.planned(key))
        self._guest(key).wire.send({"report": told})

    def _on_end(self, key: Hashable, error: Exception | None) -> None:
        self._pass_notes_on()
        guest = self._guest(key)
        if error is None:
            guest.end({"ended": True})
        else:
            name = type(error).__name__
            text = "".join(traceback.format_tb(error.__traceback__)) + f"{name}: {error}"
            guest.end({"error": {"name": name, "text": text}})
        self._room.leave(key)

    def _guest(self, key: Hashable) -> _Guest:
        return self._guests[cast(int, key)]

    def note(self, record: logging.LogRecord) -> None:
        """Keep what a run logs for its guest. From any thread."""
        guest = self._speaker
        if record.thread != self._thread:
            # Whoever writes checkpoints names the folder, and has no turn.
            text = record.getMessage()
            guests = [g for g in list(self._guests.values()) if f"{g.folder} " in text]
            guest = guests[0] if guests else None
        if guest is not None:
            self._notes.append((guest, record))

    def _pass_notes_on(self) -> None:
        while self._notes:
            guest, record = self._notes.popleft()
            guest.wire.send({"log": [record.levelno, record.getMessage()]})


def _of_host(provenance: dict[str, Any], planned: int | None) -> dict[str, Any]:
    """Provenance with memory by its right name: what was measured is all trials' together."""
    found = dict(provenance)
    if "peak_memory_bytes" in found:
        found["host_peak_memory_bytes"] = found.pop("peak_memory_bytes")
        if planned is not None:
            found["planned_memory_bytes"] = planned
    return found


class _Relay(logging.Handler):
    def __init__(self, host: _Host) -> None:
        super().__init__(logging.INFO)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        self._host.note(record)
