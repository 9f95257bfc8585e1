"""Child processes that are restarted when they die and never outlive their parent. Linux only."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from worker.pauses import pauses

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36

#: Seconds before the first restart; doubled each time, up to the last.
FIRST_DELAY, LAST_DELAY = 0.5, 30.0
#: A child that lived this many seconds is healthy: its next restart is quick again.
HEALTHY_SECONDS = 30.0


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none escapes."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """For a child before its program runs: SIGTERM it as soon as its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request above
        os._exit(1)


def descendants(pid: int) -> set[int]:
    """Every living process below ``pid``, zombies left out."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return set()
    return {process.pid for process in below if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def reap() -> dict[int, int]:
    """Collect what ended: process id -> exit code (minus the signal that killed it)."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Signal processes; those that are gone already do not matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_descendants(seconds: float) -> None:
    """SIGKILL whatever still runs below this process, and see it gone.

    Raises RuntimeError if something is still there after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    # Not until none is seen: one whose parent ends while processes are listed is seen next time.
    while _has_children():
        living = descendants(os.getpid())
        if time.monotonic() > deadline:
            if living:
                raise RuntimeError(f"processes {sorted(living)} do not end after SIGKILL")
            return
        send(living, signal.SIGKILL)
        time.sleep(0.02)
        reap()


def _has_children() -> bool:
    """Whether any child, dead or alive, is yet to be collected."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@dataclass
class Child:
    """One program that should always run."""

    name: str
    argv: list[str]
    log_path: Path
    env: dict[str, str] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None
    restarts: int = 0
    _started: float = 0.0
    _not_before: float = 0.0
    _delays: Iterator[float] = field(default_factory=lambda: pauses(FIRST_DELAY, LAST_DELAY))

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start_if_due(self) -> None:
        """Start the program if it is not running and its pause is over."""
        if self.process is not None or time.monotonic() < self._not_before:
            return
        parent = os.getpid()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                env=os.environ | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self.pass_fds,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone
                preexec_fn=lambda: end_with_parent(parent),
            )
        self._started = time.monotonic()

    def note_end(self, code: int) -> None:
        """The program ended: what it left in its group goes too, and a restart is due later."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.returncode = code  # it was reaped with all others, not by Popen
        self.process = None
        if time.monotonic() - self._started > HEALTHY_SECONDS:
            self._delays = pauses(FIRST_DELAY, LAST_DELAY)
        self._not_before = time.monotonic() + next(self._delays)
        self.restarts += 1
