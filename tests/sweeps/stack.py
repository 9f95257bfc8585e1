"""A store with a real Ray cluster and a real runner, and patience for what they do."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.sweep_parts import import_path, submit
from sweeps import cluster
from sweeps.records import Attempt, Sweep, Trial
from sweeps.spec import SweepSpec
from sweeps.store import Store

ROOT = Path(__file__).parents[2]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 300.0


class Stack:
    """A home with a store, a cluster, and runners on demand."""

    def __init__(self, home: Path, options: Sequence[str]) -> None:
        self.home = home
        self.store = Store(f"sqlite:///{home / 'store.db'}")
        self.store.migrate()
        self.runner: subprocess.Popen[bytes] | None = None
        self._started = datetime.now(UTC)
        self._options = options

    def start_runner(self) -> None:
        command = [sys.executable, "-m", "sweeps.runner", "--store", self.store.url]
        command += ["--home", str(self.home), *self._options]
        with (self.home / "runner.log").open("ab") as log:
            self._started = datetime.now(UTC)
            self.runner = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def stop_runner(self) -> float:
        """SIGTERM, once it lives; the seconds it took to end."""
        assert self.runner is not None
        until(
            lambda: any(runner.at >= self._started for runner in self.store.runners()),
            "a sign of life of the runner",
        )
        began = time.monotonic()
        self.runner.terminate()
        assert self.runner.wait(PATIENCE) == 0
        self.runner = None
        return time.monotonic() - began

    def submit(self, spec: SweepSpec) -> str:
        """Queue a sweep; its id."""
        return submit(self.store, spec)

    def wait(self, sweep_id: str, until: Callable[[Sweep], bool], what: str) -> Sweep:
        """The sweep once it is so; with the logs where it never is."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            sweep = self.store.get_sweep(sweep_id)
            if until(sweep):
                return sweep
            time.sleep(0.05)
        logs = "\n".join(path.read_text()[-3000:] for path in self.home.glob("logs/**/*.log"))
        raise AssertionError(
            f"not {what} in {PATIENCE} s: {sweep.state} {sweep.reason} {sweep.trials}\n{logs}"
        )

    def finish(self, sweep_id: str) -> Sweep:
        return self.wait(sweep_id, lambda sweep: sweep.state.is_finished(), "finished")

    @contextlib.contextmanager
    def hold(self, first: int) -> Iterator[None]:
        """Let trials from a number on go no further than their first report while entered."""
        path = self.home / "hold"
        path.write_text(str(first))
        try:
            yield
        finally:
            path.unlink()

    def driver(self, sweep_id: str) -> int:
        """Process id of the driver of a sweep."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for runner in self.store.runners():
                for driver in runner.info["drivers"]:
                    if driver["sweep"] == sweep_id:
                        return int(driver["pid"])
            time.sleep(0.1)
        raise AssertionError(f"sweep {sweep_id} has no driver")

    def trials(self, sweep_id: str) -> list[Trial]:
        return list(self.store.all_trials(sweep_id))

    def attempts(self, sweep_id: str) -> dict[int, Sequence[Attempt]]:
        """Of each trial, by its number."""
        numbers = [trial.number for trial in self.trials(sweep_id)]
        return {number: self.store.trial(sweep_id, number).attempts for number in numbers}


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so; AssertionError with ``what`` if it never is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not in {PATIENCE:g} s: {what}"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def running_stack(home: Path, trainable: str, *options: str, num_gpus: int = 0) -> Iterator[Stack]:
    """Two CPUs and a runner that trains ``module:function``; at the end nothing of it is left."""
    patch = pytest.MonkeyPatch()
    # Workers import the tests' trainables.
    patch.setenv("PYTHONPATH", import_path())
    module = trainable.partition(":")[0]
    head = cluster.start(home, num_cpus=2, num_gpus=num_gpus, preload=module)
    stack = Stack(home, ["--trainable", trainable, *options])
    try:
        stack.start_runner()
        yield stack
        if stack.runner is not None:
            stack.stop_runner()
    finally:
        if stack.runner is not None:
            stack.runner.kill()
        cluster.stop(home)
        stack.store.close()
        patch.undo()
    assert cluster.running(home) is None
    assert not Path(head.folder).exists()
