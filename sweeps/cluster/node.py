"""This machine's node of a Ray cluster whose head is elsewhere: joined, and joined again.

A driver reaches Ray through a node on its own machine. That node offers nothing to trials. Ray ends
it when the head goes; ``python -m sweeps.cluster.node --address HEAD:PORT`` then ends too, and
whoever keeps it (``JoinedNode``) starts it again until the head is back.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sweeps.cluster.sessions import commands, end_session
from worker.pauses import pauses
from worker.process.stop_signal import set_by_signals

#: Bytes of shared memory; reports and configs are small.
_OBJECT_STORE = 100_000_000
# Seconds.
_JOIN_LIMIT = 120.0
_LOOK = 0.5
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 5.0
#: After which a node that ended is started again at once: it had joined.
_LASTED = 30.0


class JoinedNode:
    """Keeps a node of a cluster on this machine. For one thread."""

    def __init__(self, address: str, home: Path, command: list[str] | None = None) -> None:
        """``address`` is the head's, HOST:PORT; its output goes into the logs of ``home``."""
        self._command = command or [
            *(sys.executable, "-m", "sweeps.cluster.node"),
            *("--address", address, "--parent", str(os.getpid())),
        ]
        self._log = home / "logs" / "ray.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._pauses = pauses(_FIRST_PAUSE, _LAST_PAUSE)
        self._started_at = self._next_start = 0.0

    def keep(self) -> bool:
        """Start the node if it does not run and it is time; say whether it has ended since."""
        now = time.monotonic()
        if self._process is not None:
            if self._process.poll() is None:
                return False
            if now - self._started_at > _LASTED:
                self._pauses = pauses(_FIRST_PAUSE, _LAST_PAUSE)
            self._next_start = now + next(self._pauses)
            self._process = None
            return True
        if now >= self._next_start:
            self._started_at = now
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as output:
                # A session of its own: a signal to the runner's terminal does not reach it.
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        return False

    @property
    def exit_code(self) -> int | None:
        """None while it lives; 0 where it was never started."""
        return 0 if self._process is None else self._process.poll()

    def terminate(self) -> None:
        """Ask it to leave the cluster and end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it. What is left of the node ends with its container, or with ``serve``."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()


#: How long Ray's processes call a head that does not answer, in place of a minute. One that was
#: started again knows none of them.
IMPATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}


def join(address: str, stop: Callable[[], bool]) -> int:
    """Run a node of a cluster until ``stop()``, which is 0, or until it ends by itself: 1."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}"]
    command += ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={_OBJECT_STORE}"]
    command += ["--disable-usage-stats", "--include-log-monitor=false"]
    starter = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=IMPATIENT | os.environ,
        start_new_session=True,
    )
    end = time.monotonic() + _JOIN_LIMIT
    try:
        while starter.poll() is None and time.monotonic() < end and not stop():
            time.sleep(_LOOK)
        if starter.poll() == 0:
            while not stop():
                if not any("raylet/raylet" in line for line in commands(starter.pid)):
                    return 1
                time.sleep(_LOOK)
        return 0 if stop() else 1
    finally:
        end_session(starter.pid)
        starter.wait()


def main(arguments: list[str] | None = None) -> int:
    """Keep a node of a cluster on this machine until SIGTERM; exit code 1 if the node ends."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--address", required=True, help="HOST:PORT of the cluster's head")
    parser.add_argument("--parent", type=int, help="process id of the runner, to leave with it")
    options = parser.parse_args(arguments)
    # Given, because it may have died before this line.
    parent = options.parent or os.getppid()
    ended = set_by_signals(threading.Event())
    return join(options.address, lambda: ended.is_set() or os.getppid() != parent)


if __name__ == "__main__":
    sys.exit(main())
