"""A trial's side of its card's host: finds or starts it, and receives the run's reports."""

import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from worker.card_sharing.process import IDLE
from worker.card_sharing.protocol import Wire, address_lock
from worker.card_sharing.stall_watchdog import TURN_LIMIT
from worker.errors import HostLost
from worker.report import Report
from worker.training.in_thread import SILENCE

_LOG = logging.getLogger(__name__)

#: A host may be ending just when a client connects.
_ATTEMPTS = 3
#: Seconds until a started host must listen; it loads nothing before.
_START_LIMIT = 60.0
_TOLD = 2000


class HostedError(RuntimeError):
    """What a trial raised in the host of its card, with its traceback there."""


def hosted_reports(
    task: dict[str, Any],
    address: Path,
    *,
    idle_seconds: float = IDLE,
    turn_limit: float = TURN_LIMIT,
) -> Generator[Report, None, None]:
    """Have a trial trained by the host at ``address`` and yield its reports: ``hosted_batches``."""
    limits = {"idle_seconds": idle_seconds, "turn_limit": turn_limit}
    with closing(hosted_batches(task, address, **limits)) as batches:
        for batch in batches:
            yield from batch


def hosted_batches(
    task: dict[str, Any],
    address: Path,
    *,
    idle_seconds: float = IDLE,
    turn_limit: float = TURN_LIMIT,
) -> Generator[list[Report], None, None]:
    """Have a trial trained by the host at ``address`` and yield its reports as they come.

    An empty batch says that none has come for ``SILENCE`` since the last one. A host is started if
    none listens, with these limits (``stall_watchdog``). Raises HostLost if the host ends during
    the trial. What the trial itself raised is raised as a HostedError of the same name. Closing the
    generator ends the run.
    """
    limits = ["--idle", str(idle_seconds), "--turn-limit", str(turn_limit)]
    owes_silence = False
    with closing(_enter(task, address, limits)) as wire:
        while True:
            if owes_silence and not wire.has_news(SILENCE):
                owes_silence = False
                yield []
            if (message := wire.read()) is None:
                break
            if "report" in message:
                yield [Report.model_validate(message["report"])]
                owes_silence = True
            elif "log" in message:
                _LOG.log(*message["log"])
            elif "error" in message:
                raise _error(**message["error"])
            else:
                return
    raise HostLost(f"the host of the card's trials has ended{_last_words(address)}")


def _enter(task: dict[str, Any], address: Path, limits: list[str]) -> Wire:
    """A wire to a host that has accepted the task. It may be compiling for another: no limit."""
    for _ in range(_ATTEMPTS):
        wire = Wire(_connect(address, task["device"], limits))
        wire.send(task)
        if wire.read() is not None:
            return wire
        wire.close()
    raise HostLost(f"no host stays at {address}{_last_words(address)}")


def _connect(address: Path, device: str, limits: list[str]) -> socket.socket:
    # Trials come in groups; one of them starts the host.
    with address_lock(address):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            _start(address, device, limits)
            connection.connect(str(address))
        return connection


def _start(address: Path, device: str, limits: list[str]) -> None:
    command = [sys.executable, "-m", "worker.card_sharing.process", "--address", str(address)]
    command += ["--device", device, *limits]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_LIMIT
    )
    if done.returncode:
        raise HostLost(f"the host of the card did not start: {done.stderr.strip()[-_TOLD:]}")


def _error(name: str, text: str) -> HostedError:
    """An error of the name it had in the host: it is told by its name."""
    error: HostedError = type(name, (HostedError,), {})(text)
    return error


def _last_words(address: Path) -> str:
    with contextlib.suppress(OSError):
        words = address.with_suffix(".log").read_text(errors="replace").strip()
        return f": {words[-_TOLD:]}" if words else ""
    return ""
