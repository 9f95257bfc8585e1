"""A whole service of real processes, a second Ray node beside it, and ways to hurt them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from benchmarks.sweep.parts import import_path
from service.client.client import Client, ServiceError
from service.contract.outputs import SweepOut
from service.supervision.home import Endpoints, read_endpoints
from sweeps.cluster import head as cluster
from sweeps.cluster.free_port import free_port
from sweeps.records import Sweep
from sweeps.store.store import Store
from tests.faults import workload
from tests.faults.nodes import OPEN, Node
from tests.faults.processes import PATIENCE, below, command_line, in_session, is_alive, kill, until
from tests.turns import Turns
from worker.data.fetch import prepare_digits

ROOT = Path(__file__).parents[2]
#: A Tune trial in a worker, as Ray titles its process.
WORKER = "ray::ImplicitFunc"

Victim = Literal["api", "runner", "driver", "worker", "mlflow", "node"]


class Service:
    """``serve`` on a home of its own, in processes of its own."""

    def __init__(self, home: Path, data: Path, *, nodes: int = 1, store_url: str = "") -> None:
        self.home, self.data = home, data
        home.mkdir(parents=True, exist_ok=True)
        data.mkdir(parents=True, exist_ok=True)
        prepare_digits(data)
        self.before = shared_memory()
        self.port = free_port()
        self._environment = os.environ | {
            "PYTHONPATH": import_path(),
            "NDSWEEP_HOME": str(home),
            "NDSWEEP_DATA": str(data),
            "NDSWEEP_PORT": str(self.port),
            "NDSWEEP_MLFLOW_PORT": str(free_port()),
            "NDSWEEP_STORE_URL": store_url or f"sqlite:///{home / 'store.db'}",
            "OMP_NUM_THREADS": "1",
            **(OPEN if nodes else {}),
        }
        self.client = Client(f"http://127.0.0.1:{self.port}")
        self.store = Store(self._environment["NDSWEEP_STORE_URL"])
        self.nodes: list[Node] = []
        self.process = self._start()
        try:
            until(self.is_ready, "the API answers")
            until(lambda: self.shape() is not None, "the runner sees a cluster")
            for _ in range(nodes):
                self.nodes.append(Node(home))
            until(lambda: len(self.shape() or []) == 1 + nodes, "every node has joined")
        except BaseException:
            self._end()
            raise

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self.home / "serve.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.serve"],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        return self.client.is_ready()

    @property
    def endpoints(self) -> Endpoints:
        found = read_endpoints(self.home)
        assert found is not None
        return found

    def shape(self) -> list[Any] | None:
        """The machines that the newest runner sees."""
        for runner in self.store.runners(15.0):
            if runner.info.get("cluster"):
                return list(runner.info["cluster"]["nodes"])
        return None

    # --- Sweeps -------------------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> SweepOut:
        """POST a sweep, as a client that repeats itself until it has an answer."""
        key = uuid.uuid4().hex
        return patiently(lambda: self.client.submit(spec, idempotency_key=key))

    def sweep(self, sweep_id: str) -> Sweep:
        return self.store.get_sweep(sweep_id)

    def phases(self, sweep_id: str) -> list[str]:
        """What its trials do at this moment."""
        found = []
        for path in self.home.glob(f"checkpoints/{sweep_id}/*/phase"):
            with contextlib.suppress(OSError, ValueError):
                pid, _, phase = path.read_text().partition(" ")
                if is_alive(int(pid)):
                    found.append(phase)
        return found

    @contextlib.contextmanager
    def held(self, phase: str, first: int = 0) -> Iterator[None]:
        """Let trials from a number on stand still in a phase while entered."""
        workload.hold(self.home, phase, first)
        try:
            yield
        finally:
            workload.release(self.home)

    # --- Faults -------------------------------------------------------------------------------

    def pids(self, victim: Victim, sweep_id: str | None = None) -> list[int]:
        """Processes of one kind; of the driver, that of a sweep if it has one."""
        serve = self.process.pid
        match victim:
            case "api":
                return below(serve, "-m service.api")
            case "runner":
                return below(serve, "-m sweeps.driver.runner")
            case "mlflow":
                return below(serve, "-m mlflow server")[:1]
            case "driver":
                own = self._drivers_of(sweep_id)
                return own or below(serve, "-m sweeps.driver.driver")
            case "worker":
                return self.workers() or self.workers("ray::IDLE")
            case "node":
                return [node.raylet() for node in self.nodes]

    def _drivers_of(self, sweep_id: str | None) -> list[int]:
        alive = set(below(self.process.pid, "-m sweeps.driver.driver"))
        return [
            driver["pid"]
            for runner in self.store.runners(30.0)
            for driver in runner.info["drivers"]
            if driver["sweep"] == sweep_id and driver["pid"] in alive
        ]

    def workers(self, title: str = WORKER) -> list[int]:
        """Ray workers, on both nodes, whose process title begins so."""
        head = cluster.running(self.home)
        sessions = [node.session for node in self.nodes] + ([head.session] if head else [])
        found = [pid for session in sessions for pid in in_session(session, title)]
        return [pid for pid in found if command_line(pid).startswith(title)]

    def hurt(self, victim: Victim, sweep_id: str | None = None) -> None:
        """SIGKILL one process of a kind. A node comes back, as an operator would start it."""
        if victim == "node":
            node = self.nodes.pop()
            node.kill()
            self.nodes.append(Node(self.home))
            return
        kill(self.one(victim, sweep_id))

    def one(self, victim: Victim, sweep_id: str | None = None) -> int:
        """A process of a kind, once there is one."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = self.pids(victim, sweep_id)
            return bool(found)

        until(is_there, f"there is a {victim}")
        return found[0]

    def terminate(self, pid: int) -> float:
        """SIGTERM one process; the seconds until it is gone."""
        with Turns([self.process.pid, *below(self.process.pid, "")]) as turns:
            os.kill(pid, signal.SIGTERM)
            until(lambda: not is_alive(pid), f"{command_line(pid)[:80]} ends")
        return turns.seconds

    # --- End ----------------------------------------------------------------------------------

    def stop(self) -> float:
        """SIGTERM of the whole; the seconds it took. Nothing of it may be left."""
        head = cluster.running(self.home)
        everything = below(self.process.pid, "")
        code, took = self._end()
        left = [command_line(pid) for pid in everything if command_line(pid)]
        assert (code, left) == (0, [])
        assert head is None or not Path(head.folder).exists()
        # Other programs map what they have just made, and take away what they no longer map.
        until(lambda: shared_memory() <= self.before, "shared memory is as it was", every=0.1)
        return took

    def _end(self) -> tuple[int, float]:
        """SIGTERM, and SIGKILL of all that goes on for ever; the exit code and the seconds."""
        for node in self.nodes:
            node.stop()
        everything = below(self.process.pid, "")
        with Turns([self.process.pid, *everything]) as turns:
            self.process.terminate()
            try:
                code = self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                for pid in [self.process.pid, *everything]:
                    kill(pid)
                code = self.process.wait()
        self.client.close()
        self.store.close()
        return code, turns.seconds


def shared_memory() -> set[str]:
    """What lies in shared memory, but for what is not the service's.

    That is databases, folders, which are no memory, and what a living process maps or gave its
    number to: those of a service that has stopped do not live, and other programs of the machine
    come and go.
    """
    mapped = _mapped_memory()
    return {
        found.name
        for found in os.scandir("/dev/shm")
        if found.is_file()
        and not found.name.startswith("PostgreSQL")
        and found.inode() not in mapped
        and not any(map(_lives, _PIDS.findall(found.name)))
    }


def _mapped_memory() -> set[int]:
    """Inodes, not names: who makes a semaphore maps it under another, which is then deleted."""
    found: set[int] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found.update(map(int, re.findall(r" (\d+) +/dev/shm/", maps.read_text())))
    return found


#: Numbers that stand alone in a name; those within random letters are no process ids.
_PIDS = re.compile(r"(?<![0-9A-Za-z])\d{3,9}(?![0-9A-Za-z])")


def _lives(number: str) -> bool:
    return bool(command_line(int(number)))


def patiently(ask: Any, seconds: float = PATIENCE) -> Any:
    """Ask a service until it answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (ServiceError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
