"""A port for a program that is started now and listens in a while, such as Ray."""

import contextlib
import secrets
import socket
from pathlib import Path

#: Behind the ports that Ray gives its workers.
_FIRST_PORT = 20_000
_PORT_TRIES = 100


def free_port() -> int:
    """A port for a program that binds it seconds later: nothing listens on it yet.

    The system gives it to nobody who asks for any port, as Ray's processes do many times meanwhile,
    and Ray to none of its workers.
    """
    last = _first_given_port()
    for _ in range(_PORT_TRIES if last > _FIRST_PORT else 0):
        port = _FIRST_PORT + secrets.randbelow(last - _FIRST_PORT)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("", port))
            return port
    with socket.socket() as free:
        free.bind(("", 0))
        given: int = free.getsockname()[1]
        return given


def _first_given_port() -> int:
    """The first of the ports that this machine gives to whoever asks for any."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
