"""Listening sockets: on the port that was asked for, or on the next free one."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from service.settings import SettingsError

#: Ports tried after the usual one before giving up.
TRIES = 100

Taken = TypeVar("Taken")


def listen(host: str, port: int | None, usual: int) -> socket.socket:
    """Listen on ``port``; where None, on ``usual`` or the next free port above it.

    Raises SettingsError, with one sentence, for a port in use or an address that is not ours.
    """
    return _first(host, port, usual, _bind)


@contextlib.contextmanager
def claimed_port(host: str, port: int | None, usual: int) -> Iterator[int]:
    """A port that nobody listens on, and that no other service of this machine takes while entered.

    For a program that binds its port late, and again whenever it is restarted: another service's
    would take it meanwhile, and be sent what is meant for this one. Raises as ``listen`` does.
    """
    number, holder = _first(host, port, usual, _claim)
    with holder:
        yield number


def _first(host: str, port: int | None, usual: int, take: Callable[[str, int], Taken]) -> Taken:
    """What ``take`` makes of ``port``; where None, of the first from ``usual`` on not in use."""
    if port is not None:
        return take(host, port)
    for candidate in range(usual, min(usual + TRIES, 65536)):
        try:
            return take(host, candidate)
        except PortInUse:
            continue
    raise SettingsError(f"no port from {usual} to {usual + TRIES - 1} is free on {host}")


def _claim(host: str, port: int) -> tuple[int, socket.socket]:
    """A port that can be bound, and a name that a process holds until it ends, however it does."""
    with _bind(host, port) as found:
        number: int = found.getsockname()[1]
    holder = socket.socket(socket.AF_UNIX)
    if sys.platform != "linux":
        # Names of sockets without a file are Linux's.
        return number, holder
    try:
        holder.bind(f"\0ndsweep-port-{number}")
    except OSError as error:
        holder.close()
        raise PortInUse(
            f"port {number} on {host} belongs to another service of this machine; choose another "
            "one"
        ) from error
    return number, holder


class PortInUse(SettingsError):
    """Somebody else listens there."""


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(f"host {host!r} is not an address: {error.strerror}") from error
    server = socket.socket(family, kind, proto)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(2048)
    except OSError as error:
        server.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use; choose another one or stop what uses it"
            ) from error
        reason = os.strerror(error.errno or 0)
        raise SettingsError(f"cannot listen on port {port} of {host}: {reason}") from error
    return server


def address(host: str, port: int) -> str:
    """URL by which this machine reaches a service that listens on ``host``."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    if ":" in reachable and not reachable.startswith("["):
        reachable = f"[{reachable}]"
    return f"http://{reachable}:{port}"
