"""Trials that share a card, from the spec to the host process and back, on a real local Ray.

Ray is told of a card that is not there, and the trials train on the CPU in its stead.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.sweep_parts import import_path
from sweeps import cluster
from sweeps.capacity import ClusterShape
from sweeps.records import Attempt, Sweep, SweepState
from sweeps.store import Store
from tests.sweeps.sweep_cases import sweep_spec
from tests.worker.conftest import made_up_arrays
from worker.datasets import write_dataset

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 150.0
CARD = 24_564


class Stack:
    """A home with a store, a cluster with a card, a runner, and the hosts of that card."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(f"sqlite:///{home / 'store.db'}")
        self.store.migrate()

    def submit(self, steps: int) -> str:
        """Two trials that report every few steps, side by side on the card."""
        base = {"dataset": "colours", "depth": 10, "widen_factor": 1.0, "crop_pad": 1}
        base |= {"batch_size": 20, "steps": steps, "validation_fraction": 0.125}
        spec = sweep_spec(
            base=base | {"report_every": 20, "optimizer": "ndadam"},
            sampler="grid",
            num_points=None,
            space={"alpha_v": {"kind": "choice", "values": [0.01, 0.02]}},
            resources={"cpus": 1, "gpus": 1, "trials_per_gpu": 2},
        )
        sweep, _ = self.store.create_sweep(
            "sweep", spec.model_dump(mode="json"), name="s", num_trials=spec.num_trials()
        )
        return sweep.id

    def wait(self, sweep_id: str, until: Callable[[Sweep], bool]) -> Sweep:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            sweep = self.store.get_sweep(sweep_id)
            if until(sweep):
                return sweep
            time.sleep(0.05)
        logs = "\n".join(path.read_text()[-3000:] for path in self.home.glob("logs/**/*.log"))
        raise AssertionError(f"{sweep.state} {sweep.reason} {sweep.trials}\n{logs}")

    def wait_for_reports(self, sweep_id: str) -> int:
        """Wait until both trials have reported; the process that trains them."""
        hosts: dict[int, int] = {}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and len(hosts) < 2:
            for number, attempts in self.attempts(sweep_id).items():
                for attempt in attempts:
                    if attempt.provenance and attempt.finished_at is None:
                        hosts[number] = attempt.provenance["pid"]
            time.sleep(0.05)
        assert len(hosts) == 2, "both trials train at once"
        (host,) = set(hosts.values())
        return host

    def attempts(self, sweep_id: str) -> dict[int, Sequence[Attempt]]:
        numbers = [trial.number for trial in self.store.all_trials(sweep_id)]
        return {number: self.store.trial(sweep_id, number).attempts for number in numbers}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    data = tmp_path_factory.mktemp("data")
    write_dataset("colours", data, made_up_arrays(), classes=tuple("abcd"), source="made up")
    tool = tmp_path_factory.mktemp("bin") / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho {CARD}\n")
    tool.chmod(0o755)
    patch = pytest.MonkeyPatch()
    patch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    patch.setenv("PYTHONPATH", import_path())
    preload = "tests.sweeps.card_trainables"
    cluster.start(home, num_cpus=2, num_gpus=1, preload=preload)
    command = [sys.executable, "-m", "sweeps.runner", "--store", f"sqlite:///{home / 'store.db'}"]
    command += ["--home", str(home), "--data", str(data), "--trainable", f"{preload}:on_cpu"]
    stack = Stack(home)
    with (home / "runner.log").open("wb") as log:
        runner = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
    try:
        yield stack
        runner.terminate()
        assert runner.wait(PATIENCE) == 0
    finally:
        runner.kill()
        cluster.stop(home)
        patch.undo()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_size_of_the_card_is_known_to_whoever_submits(stack: Stack) -> None:
    known: int | None = None
    end = time.monotonic() + PATIENCE
    while known is None and time.monotonic() < end:
        for runner in stack.store.runners():
            if runner.info["cluster"]:
                known = ClusterShape.from_json(runner.info["cluster"]).card_bytes
        time.sleep(0.1)

    assert known == CARD * 2**20


def test_the_host_of_a_card_may_die_and_a_cancel_reaches_its_trials(stack: Stack) -> None:
    sweep_id = stack.submit(steps=600)
    host = stack.wait_for_reports(sweep_id)

    os.kill(host, signal.SIGKILL)
    sweep = stack.wait(sweep_id, lambda sweep: sweep.state.is_finished())

    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done")
    for first, second in stack.attempts(sweep_id).values():
        assert first.exit_cause.startswith("lost: HostLost: the host of the card's trials")
        assert second.exit_cause == "complete"
        assert second.provenance["pid"] != host

    cancelled = stack.submit(steps=10**6)
    host = stack.wait_for_reports(cancelled)
    began = time.monotonic()
    stack.store.request(cancelled, "cancel")
    sweep = stack.wait(cancelled, lambda sweep: sweep.state.is_finished())
    took = time.monotonic() - began

    assert sweep.state == SweepState.CANCELLED
    assert took < 15
    # It waits for the next trial, and goes with the cluster at the latest.
    assert is_running(host)
    cluster.stop(stack.home)
    assert not is_running(host)
