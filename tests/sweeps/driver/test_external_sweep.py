"""Sweeps of agents are driven as other sweeps are, without Ray: by what stands in the store."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.driver.external_driver import ExternalDriver
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.commands.agent_requests import (
    AgentReport,
    AgentReports,
    Ask,
    Handout,
    Leased,
    Tell,
)
from sweeps.store.store import Store
from tests.sweeps.stack import Stack, until

PATIENCE = 60.0
SPACE = {"x": {"kind": "float", "low": 0.0, "high": 1.0}}


class Agents:
    """A driver over a store, and the moves of agents."""

    def __init__(self, store: Store, home: Path) -> None:
        self.store = store
        self.home = home
        self.driver = self.another()
        self.sweep_id = ""

    def another(self) -> ExternalDriver:
        driver = ExternalDriver(self.store, self.home, "agents", 3000.0)
        driver._next_claim = 0.0
        return driver

    def submit(self, **fields: Any) -> None:
        spec = {
            "name": "outside",
            "training": "external",
            "base": {"seed": 0},
            "space": SPACE,
            "num_points": 4,
            "objective": {"metric": "loss"},
        }
        checked = SweepSpec.model_validate(spec | fields)
        sweep, _ = self.store.create_sweep(
            "sweep",
            checked.model_dump(mode="json"),
            name="outside",
            num_trials=checked.num_trials(),
        )
        self.sweep_id = sweep.id

    def sweep(self) -> Sweep:
        return self.store.get_sweep(self.sweep_id)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.driver._next_claim = self.driver._next_look = 0.0
            self.driver.turn()

    def until(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < end, self.sweep()
            self.turn()
            time.sleep(0.01)

    def finish(self) -> Sweep:
        self.until(lambda: self.sweep().state.is_finished())
        return self.sweep()

    def ask(self, count: int = 1, **options: Any) -> list[Leased]:
        (handout,) = self.store.serve_agents([Ask(self.sweep_id, "a", count, **options)])
        assert isinstance(handout, Handout)
        return handout.trials

    def report(self, lease: Leased, step: int, loss: float) -> Any:
        report = AgentReport(step, {"loss": loss}, 100)
        number = lease.trial.number
        (answer,) = self.store.serve_agents(
            [AgentReports(self.sweep_id, number, lease.lease, (report,))]
        )
        return answer

    def tell(self, lease: Leased, state: str = "complete", loss: float = 0.5) -> Any:
        metrics: dict[str, float | None] = {"loss": loss} if state == "complete" else {}
        number = lease.trial.number
        (answer,) = self.store.serve_agents(
            [Tell(self.sweep_id, number, lease.lease, TrialState(state), metrics=metrics)]
        )
        return answer


@pytest.fixture
def agents(sqlite_store: Store, tmp_path: Path) -> Iterator[Agents]:
    found = Agents(sqlite_store, tmp_path)
    yield found
    found.driver._analyst.shutdown(wait=True)


def test_agents_run_a_sweep_to_its_end(agents: Agents) -> None:
    agents.submit(replicates=2)
    agents.turn()
    leases = agents.ask(99)

    assert [one.trial.number for one in leases] == list(range(8))
    assert {one.trial.seed for one in leases} == {0, 1}
    assert leases[0].trial.config == leases[0].trial.params | {"seed": 0}
    for lease in leases:
        x = lease.trial.params["x"]
        assert agents.report(lease, 1, x).stop is False
        agents.tell(lease, loss=x)
    sweep = agents.finish()

    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done")
    assert sweep.best is not None
    assert sweep.best["mean"] == min(one.trial.params["x"] for one in leases)
    assert sweep.result is not None
    assert agents.ask() == []


def test_trials_are_kept_waiting_as_fast_as_agents_ask(agents: Agents) -> None:
    agents.submit(num_points=3000)
    agents.turn()
    asked = []
    for _ in range(5):
        agents.turn()
        asked.append(len(agents.ask(9999)))

    assert asked[0] == 32
    assert asked[-1] > 8 * asked[0]


def test_a_model_proposes_few_ahead_and_more_where_many_ask(agents: Agents) -> None:
    agents.submit(sampler="tpe", num_points=100)
    agents.turn()

    counts = []
    for _ in range(4):
        leases = agents.ask(99)
        counts.append(len(leases))
        agents.turn()

    assert counts == [1, 2, 4, 8]


def test_concurrency_bounds_what_waits(agents: Agents) -> None:
    agents.submit(num_points=50, concurrency=3)
    agents.turn()

    assert agents.sweep().trials["waiting"] >= 3
    assert len(agents.ask(9)) == 3


def test_asha_stops_points_that_agents_run(agents: Agents) -> None:
    agents.submit(scheduler={"kind": "asha", "min_steps": 2, "reduction_factor": 2})
    agents.turn()
    good, bad, *others = agents.ask(4)

    agents.report(good, 2, 0.1)
    agents.turn()
    assert agents.report(bad, 1, 0.9).stop is False
    agents.report(bad, 2, 0.9)
    agents.turn()

    answer = agents.report(bad, 3, 0.9)
    assert (answer.stop, answer.reason) == (True, "stopped early at step 2: place 2 of 2")
    assert agents.tell(bad).state == TrialState.PRUNED
    for lease in (good, *others):
        agents.tell(lease)
    sweep = agents.finish()
    assert (sweep.state, sweep.trials["pruned"]) == (SweepState.COMPLETE, 1)


def test_the_median_rule_ends_waiting_replicates_too(agents: Agents) -> None:
    scheduler = {"kind": "median", "min_steps": 1, "min_points": 2}
    agents.submit(scheduler=scheduler, replicates=2, num_points=3)
    agents.turn()
    leases = agents.ask(5)
    for lease, loss in zip(leases, (0.1, 0.1, 0.2, 0.2, 0.9), strict=True):
        agents.report(lease, 5, loss)
    agents.turn(2)

    states = [agents.store.trial(agents.sweep_id, n).state.value for n in (4, 5)]
    assert states == ["pruned", "pruned"]


def test_a_silent_agent_loses_its_trial_three_times(agents: Agents) -> None:
    agents.submit(num_points=1)
    agents.turn()
    for _ in range(3):
        (lease,) = agents.ask(lease_seconds=0.0)
        time.sleep(0.01)
        agents.turn()
        assert "has ended (lost: agent a was silent" in str(agents.report(lease, 1, 0.5))
    sweep = agents.finish()

    trial = agents.store.trial(agents.sweep_id, 0)
    assert (sweep.state, trial.state) == (SweepState.FAILED, TrialState.FAILED)
    assert trial.exit_cause.endswith("(attempt 3 of 3)")
    assert len(trial.attempts) == 3


def test_a_new_driver_goes_on_where_the_last_one_was(agents: Agents) -> None:
    agents.submit()
    agents.turn()
    first, *_ = agents.ask(2)
    agents.driver._leave()
    assert agents.sweep().state == SweepState.QUEUED
    agents.report(first, 1, 0.3)

    agents.driver = agents.another()
    agents.turn()
    assert agents.tell(first, loss=0.2).state == TrialState.COMPLETE
    assert agents.sweep().trials["running"] == 1
    assert [one.trial.number for one in agents.ask(9)] == [2, 3]


def test_pause_resume_and_cancel(agents: Agents) -> None:
    agents.submit()
    agents.turn()
    (lease,) = agents.ask()
    agents.store.request(agents.sweep_id, "pause")
    agents.until(lambda: agents.sweep().state == SweepState.PAUSED)

    assert agents.report(lease, 1, 0.5).reason == "paused"
    assert agents.ask() == []
    agents.store.resume(agents.sweep_id)
    agents.until(lambda: agents.sweep().state == SweepState.RUNNING)
    (again,) = agents.ask()
    assert again.trial.number == lease.trial.number
    agents.store.request(agents.sweep_id, "cancel")
    assert agents.finish().state == SweepState.CANCELLED
    assert agents.report(again, 1, 0.5).reason == "cancelled"
    assert agents.sweep().trials["cancelled"] == 4


def test_limits_of_the_sweep_and_of_a_trial(agents: Agents) -> None:
    agents.submit(budget={"trials": 3}, limits={"steps": 10}, num_points=9)
    agents.turn()
    leases = agents.ask(9)
    assert len(leases) == 3
    agents.report(leases[0], 11, 0.5)
    agents.turn(2)

    assert agents.report(leases[0], 12, 0.5).reason == "limit: 10 steps"
    for lease in leases[1:]:
        agents.tell(lease)
    sweep = agents.finish()
    assert (sweep.state, sweep.reason) == (
        SweepState.COMPLETE,
        "budget spent: 3 trials; 1 trial failed",
    )


def test_retry_and_extend_while_agents_run(agents: Agents) -> None:
    agents.submit(num_points=2)
    agents.turn()
    first, second = agents.ask(2)
    agents.tell(first, "failed")
    agents.turn()
    agents.store.retry(agents.sweep_id)
    agents.turn()
    (again,) = agents.ask()
    assert again.trial.number == first.trial.number
    spec = agents.sweep().spec
    agents.store.extend(agents.sweep_id, spec | {"num_points": 3}, num_trials=3, was=spec)
    for lease in (again, second):
        agents.tell(lease)
    agents.until(lambda: agents.sweep().trials["waiting"])
    (third,) = agents.ask(9)
    agents.tell(third)

    sweep = agents.finish()
    assert (sweep.state, sweep.trials["complete"]) == (SweepState.COMPLETE, 3)


def test_people_are_told_that_no_agent_asks(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.driver.external_sweep._LONELY", 0.0)
    agents.submit()
    agents.turn(2)
    reason = f"waiting for agents: ndsweep agent {agents.sweep_id} -- COMMAND"
    assert agents.sweep().reason == reason

    agents.ask()
    agents.turn()
    assert agents.sweep().reason == ""


def test_a_fault_in_one_sweep_ends_no_other(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.submit()
    broken = agents.sweep_id
    agents.submit()
    agents.turn()

    def fail() -> None:
        raise RuntimeError("broken")

    for _ in range(3):
        monkeypatch.setattr(agents.driver._sweeps[broken], "_refill", fail)
        agents.turn()
        agents.driver._next_claim = 0.0
        agents.turn()

    failed = agents.store.get_sweep(broken)
    assert failed.state == SweepState.FAILED
    assert "ended 3 times (RuntimeError: broken)" in failed.reason
    assert agents.driver.driven == [agents.sweep_id]


def test_the_process_needs_no_cluster_and_loads_neither_ray_nor_torch(
    agents: Agents, sqlite_url: str
) -> None:
    agents.submit(sampler="tpe", num_points=1)
    code = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from sweeps.driver.external_driver import ExternalDriver\n"
        "from sweeps.store.store import Store\n"
        "driver = ExternalDriver(Store(sys.argv[1]), Path(sys.argv[2]), 'me')\n"
        "driver.turn()\n"
        "assert len(driver.driven) == 1\n"
        "assert not {'ray', 'torch', 'mlflow'} & set(sys.modules), 'loaded'\n"
        "driver._leave()\n"
    )
    subprocess.run([sys.executable, "-c", code, sqlite_url, str(agents.home)], check=True)
    assert agents.sweep().trials["waiting"] == 1


def test_it_leaves_when_told(agents: Agents) -> None:
    agents.submit()
    stop = threading.Event()
    thread = threading.Thread(target=agents.driver.run, args=(stop,))
    thread.start()
    end = time.monotonic() + PATIENCE
    while not agents.sweep().trials["waiting"]:
        assert time.monotonic() < end
        time.sleep(0.02)
    stop.set()
    thread.join(PATIENCE)

    assert agents.sweep().state == SweepState.QUEUED


@pytest.mark.stack
def test_a_runner_without_a_cluster_drives_sweeps_of_agents(tmp_path: Path) -> None:
    stack = Stack(tmp_path, ["--lease", "3"])
    agents = Agents(stack.store, tmp_path)
    agents.submit(num_points=3)
    try:
        stack.start_runner()
        until(lambda: agents.sweep().trials["waiting"], "trials wait")
        (first, second) = agents.ask(2)
        (driver,) = _external_drivers(stack)
        driver.kill()
        agents.tell(first)
        until(lambda: _external_drivers(stack) not in ([], [driver]), "another driver starts")
        # Without its runner it leaves, and what agents have stays with them.
        (driver,) = _external_drivers(stack)
        assert stack.runner is not None
        stack.runner.kill()
        stack.runner.wait()
        until(lambda: not driver.is_running(), "an orphan ends")
        assert agents.sweep().trials["running"] == 1
        stack.start_runner()
        agents.tell(second)
        until(lambda: agents.sweep().trials["complete"] == 2, "endings are known")
        (third,) = agents.ask()
        agents.tell(third)
        until(lambda: agents.sweep().state.is_finished(), "the sweep ends")
        assert agents.sweep().state == SweepState.COMPLETE
        stack.stop_runner()
        assert _external_drivers(stack) == []
    finally:
        stack.kill_runner()
        for left in _external_drivers(stack):
            left.kill()
        stack.store.close()


def _external_drivers(stack: Stack) -> list[psutil.Process]:
    """Live processes that drive sweeps of agents in this store."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if is_alive and "sweeps.driver.external_driver" in words and str(stack.home) in words:
            found.append(process)
    return found
