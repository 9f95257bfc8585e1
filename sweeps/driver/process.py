"""A driver as its runner sees it: a process that is started ahead of need and given one sweep.

Its exit codes stand here, since the runner reads them and must not load Ray.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from sweeps.cluster.capacity import ClusterShape
from sweeps.records import Claim

#: Between two starts of the process for sweeps of agents.
_RESTART_SECONDS = 3.0


@dataclass(frozen=True)
class DriverSettings:
    """What every driver of a runner is told."""

    store_url: str
    home: Path
    data_home: str | None = None
    #: "module:function" to run instead of training.
    trainable: str | None = None

    def command(self) -> list[str]:
        """The command line of a driver that waits for its sweep.

        The store's URL may hold a password, and everybody on a machine sees command lines.
        """
        command = [sys.executable, "-m", "sweeps.driver.driver", "--home", str(self.home)]
        command += [] if self.data_home is None else ["--data", self.data_home]
        command += [] if self.trainable is None else ["--trainable", self.trainable]
        return command

    def environment(self) -> dict[str, str]:
        """What its processes are told beside their command line."""
        return {STORE_URL: self.store_url}


#: Environment variable that tells a process its store.
STORE_URL = "NDSWEEP_STORE_URL"


def add_store(parser: argparse.ArgumentParser) -> None:
    """Have a process take its store from the environment, or from an option that ``ps`` shows."""
    known = os.environ.get(STORE_URL)
    words = f"URL of the store, if not in {STORE_URL}; others on the machine see it here"
    parser.add_argument("--store", default=known, required=known is None, help=words)


class DriverProcess:
    """A running driver, with or without its sweep."""

    def __init__(self, settings: DriverSettings) -> None:
        logs = settings.home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.claim: Claim | None = None
        self.renewed_at = time.monotonic()
        self.started_at = time.monotonic()
        self._shape: ClusterShape | None = None
        #: When it last said what the cluster looks like, on the monotonic clock.
        self.shape_at = 0.0
        self._head: str | None = None
        #: Whether it has yet to find a cluster that listens.
        self.is_waiting = True
        with (logs / "drivers.log").open("ab") as output:
            # A session of its own: a signal to the runner's terminal does not reach it.
            self._process = subprocess.Popen(
                settings.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=os.environ | settings.environment(),
                start_new_session=True,
                text=True,
            )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._process.poll()

    @property
    def shape(self) -> ClusterShape | None:
        """The cluster as this driver last saw it; None until it is connected."""
        return self._shape

    def has_lost(self, head: str | None) -> bool:
        """Whether ``head``, the local one as recorded now, took the place of the one it called."""
        return None not in (head, self._head) and head != self._head

    def give(self, claim: Claim) -> None:
        """Give it the sweep that it will drive."""
        self.claim = claim
        line = {"sweep": claim.sweep_id, "token": claim.token, "owner": claim.owner}
        # If it has died already, its exit code tells.
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()

    def terminate(self) -> None:
        """Ask it to stop its trials, leave its sweep and end; it takes seconds."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.close()

    def close(self) -> None:
        """Free the pipes of one that has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _listen(self, lines: IO[str] | None) -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in lines or ():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        if "head" in said:
            self._head = said["head"]
        else:
            self._shape = ClusterShape.from_json(said)
            self.shape_at = time.monotonic()
        self.is_waiting = False


class ExternalProcess:
    """The process that drives all sweeps of agents: started while there are any."""

    def __init__(self, settings: DriverSettings, lease_seconds: float) -> None:
        self._settings = settings
        self._lease = lease_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._next_start = 0.0

    def keep(self, is_wanted: Callable[[], bool]) -> None:
        """Start it if it does not run and is wanted, no sooner than seconds after it last ended."""
        if self.exit_code is None or time.monotonic() < self._next_start or not is_wanted():
            return
        self._next_start = time.monotonic() + _RESTART_SECONDS
        logs = self._settings.home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sweeps.driver.external_driver"]
        command += ["--home", str(self._settings.home), "--lease", str(self._lease)]
        command += ["--parent", str(os.getpid())]
        with (logs / "drivers.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=output,
                env=os.environ | self._settings.environment(),
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it lives; 0 where it was never started."""
        return 0 if self._process is None else self._process.poll()

    def terminate(self) -> None:
        """Ask it to leave its sweeps and end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._process.poll() is None:
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Stoppable(Protocol):
    """A process that is asked to end, and then made to."""

    @property
    def exit_code(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def stop_all(drivers: Sequence[Stoppable], seconds: float) -> None:
    """Stop processes together; what has not ended after ``seconds`` is killed."""
    for driver in drivers:
        driver.terminate()
    end = time.monotonic() + seconds
    for driver in drivers:
        while driver.exit_code is None and time.monotonic() < end:
            time.sleep(0.05)
        driver.kill()


def describe(drivers: Sequence[DriverProcess]) -> list[dict[str, Any]]:
    """Drivers as JSON values, for the runner's sign of life."""
    return [
        {"pid": driver.pid, "sweep": driver.claim.sweep_id}
        for driver in drivers
        if driver.claim is not None
    ]


#: A fault of its own; the store was away; the cluster did not answer; another driver has the sweep.
FAULT, NO_STORE, NO_CLUSTER, TAKEN = 70, 74, 75, 76
#: Ray ends a process so, without a word to it, whose node or cluster has gone.
ENDED_BY_RAY = 1
