"""The host of a card: accepts clients, gives their runs turns, and sends them their reports."""

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

from worker.card_sharing.memory_ledger import MemoryLedger
from worker.card_sharing.protocol import Wire
from worker.card_sharing.round_robin import RoundRobin, Turns
from worker.card_sharing.stall_watchdog import TURN_LIMIT, Held, StallWatchdog
from worker.checkpoints.stop_file import StopFile
from worker.report import Report
from worker.training.trial import trial_turns

log = logging.getLogger(__name__)

#: Exit code of a host whose card failed.
DEVICE_LOST = 70
# Seconds.
#: Between polls of the clients while the card works; between two turns there is no wait.
_WHILE_WORKING, _WHILE_IDLE = 5e-4, 0.2


def serve(
    listener: socket.socket, device: str, idle_seconds: float, turn_limit: float = TURN_LIMIT
) -> int:
    """Host trials until there has been none for ``idle_seconds``; return the exit code.

    Does not return if a trial keeps its turn for ``turn_limit`` seconds: the process then ends.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    # Logs of runs go to their clients; the host's own file has warnings and errors only.
    logging.getLogger().handlers[0].setLevel(logging.WARNING)
    logging.getLogger("worker").setLevel(logging.INFO)
    # cuBLAS reads this when its first handle is made, which deterministic runs need.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    host = _Host(listener, torch.device(device), idle_seconds)
    watch = StallWatchdog(host.held, host.end_for, turn_limit)
    watch.start()
    try:
        host.run()
    except Exception:
        # A run cannot raise here, so the card or this program is broken: every client must be
        # told, and trained by another process.
        log.exception("the host of the card ends")
        return DEVICE_LOST
    finally:
        watch.end()
    return 0


class _Client:
    """The connection of one trial."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.task: dict[str, Any] | None = None
        #: Checkpoint folder; no two runs may write to the same.
        self.folder: str | None = None
        self.stop: Callable[[], bool] = lambda: False
        #: No more messages follow; the wire is closed once all is sent.
        self.is_done = False

    def accept(self, task: dict[str, Any]) -> None:
        """Take the trial's task."""
        self.task, self.folder = task, task["checkpoint_dir"]
        self.stop = StopFile(task["checkpoint_dir"], task.get("stopped_by", ""))
        self.wire.send({"accepted": os.getpid()})

    def end(self, message: dict[str, Any]) -> None:
        """Send the last message."""
        self.wire.send(message)
        self.is_done = True


class _Host:
    def __init__(self, listener: socket.socket, device: torch.device, idle_seconds: float) -> None:
        self._listener, self._idle_seconds = listener, idle_seconds
        self._runs = RoundRobin(device, on_report=self._on_report, on_end=self._on_end)
        self._memory = MemoryLedger(device)
        self._clients: dict[int, _Client] = {}
        #: Accepted, and not yet running.
        self._waiting: list[_Client] = []
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._logging_client: _Client | None = None
        self._thread = threading.get_ident()
        #: Log records of runs that are not yet sent to their clients.
        self._notes: deque[tuple[_Client, logging.LogRecord]] = deque()
        self._relay = _Relay(self)
        logging.getLogger("worker").addHandler(self._relay)

    def run(self) -> None:
        idle_since = time.monotonic()
        while self._clients or time.monotonic() - idle_since < self._idle_seconds:
            if self._clients:
                idle_since = time.monotonic()
            self._admit()
            has_worked = self._runs.turn()
            wait = 0.0 if has_worked else _WHILE_WORKING if self._runs.keys else _WHILE_IDLE
            self._poll_clients(wait)

    def held(self) -> list[Held]:
        """Whose turn it is; see ``RoundRobin.held``."""
        return self._runs.held()

    def end_for(self, key: Hashable) -> None:
        """End this process, since a trial keeps its turn. It is told; the other trials are lost."""
        frame = sys._current_frames().get(self._thread)
        place = "".join(traceback.format_stack(frame)) if frame else ""
        client = self._clients.get(cast(int, key))
        folder = client.folder if client is not None else "no longer here"
        text = f"the trial of {folder} kept the turn of all trials of its card, and ended with it"
        # Last, since the end of this file is the reason that the others report.
        log.error("%s%s", place, text)
        logging.shutdown()
        if client is not None:
            client.wire.send({"error": {"name": "TurnKept", "text": f"{place}TurnKept: {text}"}})
        os._exit(DEVICE_LOST)

    # --- Clients ------------------------------------------------------------------------------

    def _poll_clients(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._receive(cast("_Client", key.data))
        self._pass_notes_on()
        for client in list(self._clients.values()):
            if client.wire.has_unsent:
                client.wire.flush()
            if client.wire.is_closed or (client.is_done and not client.wire.has_unsent):
                self._disconnect(client)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        client = _Client(Wire(connection))
        self._clients[id(client)] = client
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _receive(self, client: _Client) -> None:
        try:
            for task in client.wire.receive():
                # An earlier attempt whose client is gone but not noticed yet: one run per folder.
                for other in list(self._clients.values()):
                    if other is not client and other.folder == task["checkpoint_dir"]:
                        self._disconnect(other)
                client.accept(task)
                self._waiting.append(client)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("client rejected: protocol version mismatch: %r", error)
            self._disconnect(client)

    def _admit(self) -> None:
        """Start the runs that fit into the card's memory, in order of arrival."""
        while self._waiting and self._memory.take(
            id(self._waiting[0]), self._waiting[0].task or {}
        ):
            client = self._waiting.pop(0)
            self._runs.add(id(client), partial(self._turns, client))
        for client in [waiting for waiting in self._waiting if waiting.stop()]:
            self._waiting.remove(client)
            client.end({"ended": True})

    def _disconnect(self, client: _Client) -> None:
        del self._clients[id(client)]
        if client in self._waiting:
            self._waiting.remove(client)
        self._runs.remove(id(client))
        self._memory.leave(id(client))
        self._selector.unregister(client.wire.connection)
        client.wire.close()

    # --- Runs ---------------------------------------------------------------------------------

    def _turns(self, client: _Client) -> Turns:
        """A client's run; records logged in its turns are sent to it."""
        assert client.task is not None
        self._memory.refuse_too_large(client.task)
        with closing(trial_turns(client.task)) as turns:
            while True:
                self._logging_client = client
                try:
                    item = next(turns)
                except StopIteration:
                    return
                finally:
                    self._logging_client = None
                yield item

    def _on_report(self, key: Hashable, report: Report) -> None:
        self._pass_notes_on()
        told = report.model_dump(mode="json")
        told["provenance"] = _of_host(report.provenance, self._memory.planned(key))
        self._client(key).wire.send({"report": told})

    def _on_end(self, key: Hashable, error: Exception | None) -> None:
        self._pass_notes_on()
        client = self._client(key)
        if error is None:
            client.end({"ended": True})
        else:
            name = type(error).__name__
            text = "".join(traceback.format_tb(error.__traceback__)) + f"{name}: {error}"
            client.end({"error": {"name": name, "text": text}})
        self._memory.leave(key)

    def _client(self, key: Hashable) -> _Client:
        return self._clients[cast(int, key)]

    def note(self, record: logging.LogRecord) -> None:
        """Keep a log record for the client whose run wrote it. From any thread."""
        client = self._logging_client
        if record.thread != self._thread:
            # The thread that writes checkpoints has no turn; its messages name the folder.
            text = record.getMessage()
            clients = [g for g in list(self._clients.values()) if f"{g.folder} " in text]
            client = clients[0] if clients else None
        if client is not None:
            self._notes.append((client, record))

    def _pass_notes_on(self) -> None:
        while self._notes:
            client, record = self._notes.popleft()
            client.wire.send({"log": [record.levelno, record.getMessage()]})


def _of_host(provenance: dict[str, Any], planned: int | None) -> dict[str, Any]:
    """Return provenance with memory renamed: the measured peak is of all trials together."""
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
