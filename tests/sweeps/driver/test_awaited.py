"""What people are told that a sweep waits for, while its trials have no worker."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeps.cluster.capacity import ClusterShape, NodeShape
from sweeps.cluster.fair_share import View
from sweeps.cluster.machines import Machines
from sweeps.driver.driver import Driver
from sweeps.records import Demand
from sweeps.store.store import Store
from tests.sweeps.match.match_simulation import match_spec
from tests.sweeps.store_cases import LEASE
from tests.sweeps.sweep_cases import sweep_spec

FULL, ROOM = ClusterShape((NodeShape(0, 0),)), ClusterShape((NodeShape(1, 0),))


@pytest.fixture
def driver(sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver that handed two trials out long ago, on a cluster of two full CPUs."""
    monkeypatch.setattr("sweeps.driver.monitor._STARVED", -1.0)
    spec = sweep_spec(num_points=2).model_dump(mode="json")
    sqlite_store.create_sweep("sweep", spec, name="s", num_trials=2)
    claim = sqlite_store.claim("runner-1", LEASE)
    assert claim is not None
    asked = SimpleNamespace(answer=lambda: None)
    machines = Machines(tmp_path, ask=lambda name, expected: asked)
    driver = Driver(sqlite_store, claim, tmp_path, machines=machines)
    assert driver._dispatcher.next()
    assert driver._dispatcher.next()
    return driver


def told(driver: Driver, free: ClusterShape, *others: int) -> str:
    """The sweep's reason after one look, with so many trials running of each other sweep."""
    mine = driver._claim.sweep_id
    demands = [Demand(mine, 1, 0, None, 2, 0, 0)]
    demands += [Demand(f"other{i}", 1, 0, None, 0, n, 0) for i, n in enumerate(others)]
    driver._view = lambda: View(ClusterShape((NodeShape(2, 0),)), free, demands)  # type: ignore[method-assign]
    driver._watcher._look()
    return driver._store.get_sweep(mine).reason


def test_workers_that_are_starting_are_named(driver: Driver) -> None:
    driver._dispatcher.workers_starting = 2

    reason = told(driver, FULL, 3)

    assert reason == "2 workers are starting: Python, torch and what they train are imported"


def test_other_sweeps_are_named_only_if_there_are_any(driver: Driver) -> None:
    asked = "waiting for resources: a trial asks for 1 CPU, and 0 CPUs are free; "

    assert told(driver, FULL, 1, 2) == f"{asked}other sweeps have 3 trials running"
    assert told(driver, FULL, 1) == f"{asked}other sweeps have 1 trial running"
    assert told(driver, FULL) == (
        f"{asked}no other sweep has a trial running, so another program holds the rest"
    )


def test_with_room_it_is_ray_that_is_waited_for(driver: Driver) -> None:
    assert told(driver, ROOM) == (
        "waiting for Ray: there is room, and it has yet to place a worker there"
    )


def test_the_reason_goes_with_the_first_worker(driver: Driver) -> None:
    driver._dispatcher.workers_starting = 1
    assert told(driver, FULL).startswith("a worker is starting")
    driver._dispatcher.started(next(iter(driver._dispatcher._running)))

    assert told(driver, FULL) == ""


def test_machines_that_get_no_trials_are_named_whether_or_not_a_trial_runs(driver: Driver) -> None:
    of_all = {"Alive": True, "Resources": {"CPU": 1.0}}
    nodes = [of_all | {"NodeID": name, "NodeManagerHostname": name} for name in ("a", "b")]
    driver._machines.look(nodes, own="a")
    driver._machines.refuse("b", [("home", "/srv is not the runner's NDSWEEP_HOME there")])
    note = "machine b is not used: /srv is not the runner's NDSWEEP_HOME there"
    driver._dispatcher.workers_starting = 1

    assert told(driver, FULL).endswith(f" train are imported; {note}")
    driver._dispatcher.started(next(iter(driver._dispatcher._running)))
    assert told(driver, FULL) == note
    driver._machines.look(nodes[:1], own="a")
    assert told(driver, FULL) == ""


def test_a_match_has_its_closed_form_before_a_trial_has_ended(
    sqlite_store: Store, tmp_path: Path
) -> None:
    spec = match_spec().model_dump(mode="json")
    sqlite_store.create_sweep("match", spec, name="m", num_trials=None)
    claim = sqlite_store.claim("runner-1", LEASE)
    assert claim is not None
    driver = Driver(sqlite_store, claim, tmp_path)
    assert driver._dispatcher.next()
    driver._watcher._look()

    result = sqlite_store.get_sweep(claim.sweep_id).result
    assert result is not None
    assert (result["stage"], result["progress"], result["cost"]) == ("source", 0.0, [])
    (row,) = [row for row in result["criteria"] if row["chosen"]]
    assert row["closed_form"] == pytest.approx(0.0447, rel=0.05)
