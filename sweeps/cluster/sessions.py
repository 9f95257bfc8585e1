"""Processes of one session: those of a Ray node, whichever of them started which."""

import contextlib
import os
import signal
import time

import psutil

#: Seconds for processes to end when they are told to, and when they are killed.
STOP_LIMIT, KILL_LIMIT = 1.0, 5.0


def members(session: int) -> set[psutil.Process]:
    """The living processes of a session."""
    members = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    members.add(process)
    return members


def commands(session: int) -> list[str]:
    """The command lines of the living processes of a session."""
    lines = []
    for process in members(session):
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


def end_session(session: int) -> None:
    """End every process of a session, also those that others of it start meanwhile."""
    for how, seconds in ((signal.SIGTERM, STOP_LIMIT), (signal.SIGKILL, KILL_LIMIT)):
        told: set[psutil.Process] = set()
        end = time.monotonic() + seconds
        while alive := members(session):
            for process in alive - told:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(how)
            told |= alive
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        else:
            return
