"""Messages between a host and its clients: lines of JSON over a local socket."""

import contextlib
import fcntl
import hashlib
import json
import os
import select
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16
#: Linux refuses socket paths of more than 107 bytes.
_LONGEST = 60


class Wire:
    """Sends and receives messages; never waits when the socket does not block."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""
        self._unsent = b""
        self._read_ahead: list[dict[str, Any]] = []
        #: Whether the other side has gone.
        self.is_closed = False

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, or keep the part that the other side has no room for yet."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what was kept."""
        while self._unsent and not self.is_closed:
            try:
                sent = self.connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.is_closed = True
                return
            self._unsent = self._unsent[sent:]

    def receive(self) -> list[dict[str, Any]]:
        """Messages that have come, at least one unless the other side has gone or has no more."""
        messages: list[dict[str, Any]] = []
        while not messages and not self.is_closed:
            try:
                part = self.connection.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self.is_closed = not part
            *lines, self._received = (self._received + part).split(b"\n")
            messages = [json.loads(line) for line in lines]
        return messages

    def read(self) -> dict[str, Any] | None:
        """The next message, of a socket that blocks; None when the other side has gone."""
        if not self._read_ahead:
            self._read_ahead = self.receive()
        return self._read_ahead.pop(0) if self._read_ahead else None

    def has_news(self, seconds: float) -> bool:
        """Wait until ``read`` has something to return; False if nothing has come for so long."""
        looks = select.poll()  # unlike select, with any number of open files
        looks.register(self.connection, select.POLLIN)
        return bool(self._read_ahead or looks.poll(1000 * seconds))

    def close(self) -> None:
        self.is_closed = True
        self.connection.close()


def host_address(key: str) -> Path:
    """Where the host of a key listens: a socket in a folder that only this user may enter.

    ``key`` names the card, its machine's cluster and whatever else must differ between hosts.
    """
    parent = tempfile.gettempdir()
    folder = Path(parent if len(parent) < _LONGEST else "/tmp") / f"ndsweep-hosts-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} must belong to this user alone; remove it")
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.sock"


@contextlib.contextmanager
def address_lock(address: Path) -> Iterator[None]:
    """Held by whoever starts a host, and by a host that gives its address up."""
    # One for all hosts: it is held for half a second, and a file for each would be left.
    with (address.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
