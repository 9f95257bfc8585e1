"""Every service of docker-compose.yml, run as a plain process from the same file, together."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg
import pytest

from sweeps.cluster.free_port import free_port
from tests.postgres import start_postgres
from tests.project import compose_file
from worker.data.fetch import prepare_digits

pytestmark = pytest.mark.stack

#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 600.0
#: What all tests tell Ray about busy machines.
PATIENT = {
    "RAY_memory_monitor_refresh_ms",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S",
    "RAY_worker_register_timeout_seconds",
}
SPEC: dict[str, Any] = {
    "name": "compose",
    "base": {
        "dataset": "digits",
        "depth": 10,
        "widen_factor": 1.0,
        "optimizer": "ndadam",
        "flip": False,
        "batch_size": 32,
        "steps": 4,
        "report_every": 2,
    },
    "space": {"alpha_v": {"kind": "choice", "values": [0.02, 0.05]}},
    "sampler": "grid",
}


class Compose:
    """The services of the file on this machine: names, ports and volumes replaced, nothing else."""

    def __init__(self, folder: Path, database: Callable[[str], str]) -> None:
        self.folder = folder
        self.database = database
        self.ports = {"6379": free_port(), "5000": free_port(), "8000": free_port()}
        self.services: dict[str, Any] = compose_file.read()["services"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str) -> str:
        """``text`` of the file as it reads without containers."""
        # Volumes first: the database's own address has slashes of its own.
        text = re.sub(r"(?<![\w/.?:-])/(state|data|mlflow|secrets)\b", rf"{self.folder}/\1", text)
        text = re.sub(r"postgresql\+psycopg://[^/]+/(\w+)", lambda m: self.database(m[1]), text)
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return re.sub(r"\b(ray-head|mlflow)(?=:\d)", "127.0.0.1", text)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        service = self.services[name]
        environment = {key: self.here(value or "") for key, value in service["environment"].items()}
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in PATIENT or not name.startswith(("NDSWEEP_", "RAY_"))
        }
        kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.here(part) for part in service["command"]],
                env=kept | environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self.processes[name]

    def restart_ended(self) -> None:
        """What ``restart: unless-stopped`` does: a Ray node that came too early gives up once."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None and self.services[name]["restart"] == "unless-stopped":
                self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL everything of a service, as when its container is killed."""
        process = self.processes[name]
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            kill(child.pid)
        process.wait()

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        # Nodes whose container would end with them.
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if names_cluster(pid, str(self.ports["6379"])):
                kill(pid)

    def request(self, path: str, body: Any = None, token: str = "") -> httpx2.Response:
        return httpx2.request(
            "GET" if body is None else "POST",
            f"http://127.0.0.1:{self.ports['8000']}{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=60,
        )


def ended(compose: Compose, sweep: str, token: str) -> Any:
    """The sweep once it has ended."""
    compose.restart_ended()
    found = compose.request(f"/api/v1/sweeps/{sweep}", token=token).json()
    return found if found.get("state") in ("complete", "failed") else None


def names_cluster(pid: int, port: str) -> bool:
    """Whether a process belongs to the Ray cluster whose head listens on ``port``."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return "ray" in line and re.search(rf":{port}\b", line) is not None


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(what: str, ask: Callable[[], Any]) -> Any:
    """The first answer of ``ask`` that is true; asking may fail until then."""
    end = time.monotonic() + PATIENCE
    last: object = None
    while time.monotonic() < end:
        try:
            last = ask()
        except httpx2.HTTPError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.5)
    raise AssertionError(f"{what} within {PATIENCE} s; last answer: {last!r}")


@pytest.fixture
def compose() -> Iterator[Compose]:
    # Sockets have short paths only, so not pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="ndc-"))
    server = start_postgres(folder / "pg")
    address = server.get_uri()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        for name in ("ndsweep", "mlflow"):
            connection.execute(f"CREATE DATABASE {name}")

    def database(name: str) -> str:
        there = address.replace("/postgres?", f"/{name}?")
        return there.replace("postgresql://", "postgresql+psycopg://")

    for name in ("state", "data", "mlflow", "secrets/api", "secrets/ray", "secrets/database"):
        (folder / name).mkdir(parents=True)
    prepare_digits(folder / "data")
    services = Compose(folder, database)
    try:
        yield services
    finally:
        services.stop()
        for log in sorted(folder.glob("*.log")):  # pytest shows this when the test fails
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-15:], sep="\n")
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_services_of_the_file_train_a_sweep_together(compose: Compose):
    assert compose.start("token").wait(PATIENCE) == 0
    token = (compose.folder / "secrets" / "api" / "token").read_text().strip()
    for name in ("mlflow", "ray-head", "api"):
        compose.start(name)
    until("the API and its store answer", lambda: compose.request("/readyz").is_success)
    compose.start("ray-worker")
    compose.start("runner")

    refused = compose.request("/api/v1/sweeps")
    sweep = compose.request("/api/v1/sweeps", SPEC, token).json()
    finished = until(
        "the sweep is complete",
        lambda: ended(compose, sweep["id"], token),
    )
    mirrored = until(
        "MLflow has the sweep",
        lambda: ((ended(compose, sweep["id"], token) or {}).get("mirror") or {}).get("url"),
    )

    assert refused.status_code == 401
    assert (finished["state"], finished["reason"]) == ("complete", "all done")
    assert finished["trials"]["complete"] == 2
    assert mirrored.startswith(f"http://127.0.0.1:{compose.ports['5000']}/#/experiments/")

    # The head of the cluster dies in the middle of a sweep, and its container starts again.
    long = SPEC | {"base": SPEC["base"] | {"steps": 300, "report_every": 10}}
    sweep = compose.request("/api/v1/sweeps", long, token).json()
    where = f"/api/v1/sweeps/{sweep['id']}"
    until("it trains", lambda: compose.request(where, token=token).json()["trials"]["running"])
    compose.kill("ray-head")
    finished = until("it goes on", lambda: ended(compose, sweep["id"], token))

    assert (finished["state"], finished["reason"]) == ("complete", "all done")
    assert finished["trials"]["complete"] == 2
    for name in ("mlflow", "ray-head", "ray-worker", "api", "runner"):
        assert compose.processes[name].poll() is None, f"{name} has ended"
