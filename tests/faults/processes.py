"""Finds, kills and counts the processes of a service under test. Only its own, by their ids."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.supervision.processes import descendants
from sweeps.cluster import sessions

#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 300.0


def command_line(pid: int) -> str:
    """The command line of a process; "" if it is gone or a zombie."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    return ""


def below(parent: int, text: str) -> list[int]:
    """Processes below one whose command line holds a text, oldest first."""
    return sorted((pid for pid in descendants(parent) if text in command_line(pid)), key=_born)


def in_session(session: int, text: str = "") -> list[int]:
    """Processes of a session whose command line holds a text, oldest first."""
    members = (process.pid for process in sessions.members(session))
    return sorted((pid for pid in members if text in command_line(pid)), key=_born)


def _born(pid: int) -> tuple[int, int]:
    """When a process began, then its number; numbers alone begin again at some time.

    A child that has yet to become its own program looks like its parent, and is younger.
    """
    with contextlib.suppress(OSError, IndexError):
        # After the name in parentheses: state, and 18 others before the clock ticks since boot.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), pid
    return sys.maxsize, pid


def kill(pid: int) -> None:
    """SIGKILL one process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(
    condition: Callable[[], object], what: str, seconds: float = PATIENCE, every: float = 0.02
) -> None:
    """Wait until something is so; AssertionError with ``what`` if it never is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds:g} s: {what}"
        time.sleep(every)
