"""A store with a real Ray cluster and a real runner, and patience for what they do."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from benchmarks.sweep.parts import import_path, submit
from sweeps.cluster import head as cluster
from sweeps.records import Attempt, Sweep, Trial
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store

ROOT = Path(__file__).parents[2]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 300.0
#: Between two looks at something that is waited for.
LOOK = 0.05


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
        command = [sys.executable, "-m", "sweeps.driver.runner", "--store", self.store.url]
        command += ["--home", str(self.home), *self._options]
        with (self.home / "runner.log").open("ab") as log:
            self._started = datetime.now(UTC)
            self.runner = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def stop_runner(self) -> float:
        """SIGTERM, once it lives; the seconds it took to end, see ``seconds_until``."""
        runner = self.runner
        assert runner is not None
        until(
            lambda: any(runner.at >= self._started for runner in self.store.runners()),
            "a sign of life of the runner",
        )
        runner.terminate()
        took = self.seconds_until(lambda: runner.poll() is not None, "the runner ends")
        self.runner = None
        assert runner.returncode == 0
        return took

    def kill_runner(self) -> None:
        """End the runner, if there is one, and every driver that it started."""
        runner, self.runner = self.runner, None
        if runner is None or runner.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for driver in psutil.Process(runner.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    driver.kill()
        runner.kill()
        runner.wait()

    def clear(self) -> None:
        """Make the stack as a test finds it, whatever the one before left: a runner, no sweep."""
        if self.runner is None or self.runner.poll() is not None:
            self.start_runner()
        left = [sweep for sweep in self.store.list_sweeps().items if not sweep.state.is_finished()]
        for sweep in left:
            self.store.request(sweep.id, "cancel")
        for sweep in left:
            self.finish(sweep.id)

    def seconds_until(self, condition: Callable[[], object], what: str) -> float:
        """How long it takes until something is so, in seconds of a machine that does only that.

        Each look writes to the disk, as what is waited for does: where that, or a turn on a CPU,
        takes longer than usual, it takes longer for both.
        """
        looks, end = 0, time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not in {PATIENCE:g} s: {what}"
            time.sleep(LOOK)
            with (self.home / "look").open("wb", buffering=0) as file:
                file.write(b"look")
                os.fsync(file.fileno())
            looks += 1
        return looks * LOOK

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
            time.sleep(LOOK)
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
        time.sleep(LOOK)


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def running_stack(home: Path, trainable: str, *options: str, num_gpus: int = 0) -> Iterator[Stack]:
    """Two CPUs and a runner that trains ``module:function``; at the end nothing of it is left."""
    stack = Stack(home, ["--trainable", trainable, *options])
    with pytest.MonkeyPatch.context() as patch:
        # Workers import the tests' trainables.
        patch.setenv("PYTHONPATH", import_path())
        patch.setattr(cluster, "_START_LIMIT", PATIENCE)
        try:
            module = trainable.partition(":")[0]
            head = cluster.start(home, num_cpus=2, num_gpus=num_gpus, preload=module)
            stack.start_runner()
            yield stack
            if stack.runner is not None:
                stack.stop_runner()
        finally:
            stack.kill_runner()
            cluster.stop(home)
            stack.store.close()
    assert cluster.running(home) is None
    assert not Path(head.folder).exists()
