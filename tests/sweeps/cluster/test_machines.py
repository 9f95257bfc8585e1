"""Which machines of a cluster get trials: those that differ in nothing from their driver's."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.cluster.capacity import ClusterShape, NodeShape, can_run
from sweeps.cluster.machines import ASK_AGAIN, AWAY, SILENT, Machines
from sweeps.driver import ray_tune
from sweeps.driver.ray_tune import _PlaceOnMachines, _WarmWorkerScheduler
from tests.sweeps.sweep_cases import sweep_spec
from worker.data.fetch import prepare_digits
from worker.data.machine_check import Difference

OTHER_CODE: list[Difference] = [("code", "its code is another")]
NO_DATA: list[Difference] = [("data", "it has no digits")]


class Asked:
    """A machine that was asked, until a test says what it answers."""

    def __init__(self, node: str, expected: Mapping[str, Any]) -> None:
        self.node, self.expected = node, dict(expected)
        self.says: list[Difference] | None = None
        self.is_lost = False

    def answer(self) -> list[Difference] | None:
        if self.is_lost:
            raise LookupError(self.node)
        return self.says


class Cluster:
    """A driver on machine ``own``, and what it asks others; time is moved by hand."""

    def __init__(self, home: Path, data: Path) -> None:
        self.asked: list[Asked] = []
        self.now = 100.0
        self.alive = ["own"]
        self.machines = Machines(home, str(data), ask=self._ask, clock=lambda: self.now)

    def _ask(self, node: str, expected: Mapping[str, Any]) -> Asked:
        self.asked.append(Asked(node, expected))
        return self.asked[-1]

    def look(self, seconds: float = 1.0) -> list[str]:
        """Let time pass; the machines that get trials then."""
        self.now += seconds
        self.machines.look([node(name) for name in self.alive], "own")
        return self.machines.admitted()


def node(name: str) -> dict[str, Any]:
    """A machine as Ray tells of it."""
    host = {"NodeManagerHostname": f"host-{name}", "NodeManagerAddress": "10.0.0.7"}
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": 2.0}, **host}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    data = tmp_path / "data"
    data.mkdir()
    prepare_digits(data)
    return Cluster(tmp_path / "home", data)


def test_the_drivers_own_machine_is_not_asked(cluster: Cluster) -> None:
    assert cluster.look() == ["own"]
    assert cluster.asked == []
    assert cluster.machines.note() == ""


def test_a_machine_that_offers_nothing_is_not_asked(cluster: Cluster) -> None:
    head = node("head") | {"Resources": {"memory": 1e9}}
    cluster.machines.look([head, node("own")], "own")

    assert cluster.asked == []
    assert cluster.machines.note() == ""
    assert cluster.machines.admitted() == ["own"]


def test_a_machine_gets_trials_once_it_has_answered(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")

    assert cluster.look() == ["own"]
    assert cluster.look() == ["own"]
    (asked,) = cluster.asked
    asked.says = []

    assert cluster.look() == ["gpu7", "own"]
    cluster.look(10 * ASK_AGAIN)
    assert len(cluster.asked) == 1


def test_a_machine_that_differs_is_named_and_gets_none_until_it_is_put_right(
    cluster: Cluster,
) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.asked[0].says = OTHER_CODE

    assert cluster.look() == ["own"]
    named = "machine host-gpu7 (10.0.0.7) is not used: its code is another"
    assert cluster.machines.note() == named
    assert cluster.machines.is_refused("gpu7")
    cluster.look()
    assert len(cluster.asked) == 1

    cluster.look(ASK_AGAIN)
    assert len(cluster.asked) == 2
    assert cluster.machines.note() == named
    cluster.asked[1].says = []
    assert cluster.look() == ["gpu7", "own"]
    assert cluster.machines.note() == ""


def test_a_machine_that_does_not_answer_is_named_within_ten_seconds(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    assert cluster.machines.note() == ""

    assert SILENT < 10
    for _ in range(4):
        assert cluster.look(SILENT / 4) == ["own"]
    assert cluster.machines.note() == (
        "machine host-gpu7 (10.0.0.7) is not used yet: it was asked what is installed there and "
        "has not answered"
    )


def test_a_head_that_does_not_answer_is_named(cluster: Cluster) -> None:
    cluster.look()
    assert cluster.machines.note() == ""
    cluster.now += AWAY

    assert cluster.machines.note() == ("waiting for Ray: the head of the cluster does not answer")
    cluster.look()
    assert cluster.machines.note() == ""


def test_a_lost_answer_is_asked_for_again(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.asked[0].is_lost = True

    assert cluster.look() == ["own"]
    assert len(cluster.asked) == 1
    cluster.look(ASK_AGAIN)
    cluster.asked[1].says = []

    assert cluster.look() == ["gpu7", "own"]


def test_a_machine_that_left_and_came_back_is_asked_anew(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.asked[0].says = OTHER_CODE
    cluster.look()
    cluster.alive.remove("gpu7")
    cluster.look()
    assert cluster.machines.note() == ""
    cluster.alive.append("gpu7")

    assert cluster.look() == ["own"]
    assert len(cluster.asked) == 2


def test_what_a_worker_finds_counts_also_on_the_drivers_own_machine(cluster: Cluster) -> None:
    cluster.look()
    cluster.machines.refuse("own", OTHER_CODE)

    assert cluster.look() == []
    assert cluster.machines.note().startswith("machine host-own (10.0.0.7) is not used: its code")
    cluster.look(ASK_AGAIN)
    (asked,) = cluster.asked
    assert asked.node == "own"


def test_with_a_sweep_machines_are_asked_for_its_data_and_packages(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.asked[0].says = []
    assert cluster.look() == ["gpu7", "own"]

    cluster.machines.expect(["digits", "cifar10"], {"no-such": "1"})

    # The driver's machine has no cifar10 and no such package: its own trials say so.
    assert cluster.look() == ["own"]
    asked = cluster.asked[1]
    assert list(asked.expected["datasets"]) == ["digits"]
    assert asked.expected["packages"] == {}
    assert asked.expected | cluster.asked[0].expected == asked.expected
    asked.says = NO_DATA
    assert cluster.look() == ["own"]
    # Other sweeps may use it.
    assert cluster.machines.refusal("gpu7") == "it has no digits"
    assert cluster.machines.refusal("gpu7", general=True) == ""


def test_an_answer_to_an_older_question_does_not_count(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.machines.expect(["digits"])
    cluster.asked[0].says = []

    assert cluster.look() == ["own"]
    cluster.asked[1].says = []
    assert cluster.look() == ["gpu7", "own"]


def test_a_sweep_that_needs_nothing_more_asks_nobody_again(cluster: Cluster) -> None:
    cluster.alive.append("gpu7")
    cluster.look()
    cluster.asked[0].says = []
    cluster.look()

    cluster.machines.expect(["cifar10"], {})

    assert cluster.look() == ["gpu7", "own"]


def test_of_many_refused_machines_three_are_named(cluster: Cluster) -> None:
    cluster.alive += [f"gpu{number}" for number in range(5)]
    cluster.look()
    for asked in cluster.asked:
        asked.says = OTHER_CODE
    cluster.look()

    note = cluster.machines.note()
    assert note.count("is not used:") == 3
    assert note.endswith("; and 2 more are not used")


def test_a_driver_proves_its_home_and_leaves_nothing_behind(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "tune"
    folder.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    old = folder / f"proof-{socket.gethostname()}-{ended.pid}-00"
    other = folder / f"proof-elsewhere-{ended.pid}-00"
    living = folder / f"proof-{socket.gethostname()}-{os.getppid()}-00"
    for path in (old, other, living):
        path.touch()

    path, word = cluster.machines.expected["proof"]
    assert Path(path).read_text() == word
    assert sorted(folder.iterdir()) == sorted([Path(path), other, living])
    cluster.machines.close()
    assert sorted(folder.iterdir()) == sorted([other, living])


REFUSED = NodeShape(16, 1, 80 * 2**30, "gpu7 (10.0.0.7)", "its code is another")


def test_a_refused_machine_offers_nothing_and_is_named() -> None:
    shape = ClusterShape((NodeShape(2, 0), REFUSED))

    assert (shape.fits(1, 0), shape.fits(1, 1), shape.card_bytes) == (2, 0, None)
    assert ClusterShape.from_json(shape.to_json() | {"more": 1}) == shape
    refusal = can_run(sweep_spec(resources={"cpus": 4}), shape)
    assert refusal is not None
    assert refusal.reason == (
        "a trial asks for 4 CPUs, and the cluster offers 2 CPUs; machine gpu7 (10.0.0.7) is not "
        "used: its code is another"
    )


def test_trials_are_placed_among_machines_that_are_admitted_then(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(ray_tune, "placement_group", lambda *args, **fields: asked.append(fields))
    place = _PlaceOnMachines({"CPU": 1.0}, cluster.machines)
    place.to_placement_group()
    cluster.alive.append("gpu7")
    cluster.look()
    place.to_placement_group()
    cluster.asked[0].says = []
    cluster.look()
    assert place.is_outdated
    place.to_placement_group()

    told = [one["bundle_label_selector"] for one in asked]
    assert told == [
        [{"ray.io/node-id": "none"}],
        [{"ray.io/node-id": "in(own)"}],
        [{"ray.io/node-id": "in(gpu7,own)"}],
    ]
    assert not place.is_outdated
    # Tune hands a worker on to whoever asks for the same.
    other = _PlaceOnMachines({"CPU": 1.0}, Machines(Path("/nowhere")))
    assert (place, hash(place)) == (other, hash(other))


class Requests:
    """What Tune has asked Ray for, and that waits."""

    def __init__(self, place: _PlaceOnMachines, number: int) -> None:
        self._request_to_staged_pgs = {place: list(range(number))}
        self.log: list[str] = []

    def cancel_resource_request(self, place: _PlaceOnMachines) -> None:
        self.log.append("cancel")

    def request_resources(self, place: _PlaceOnMachines) -> None:
        self.log.append("request")


def test_what_waits_for_a_place_looks_again_when_machines_come_and_go(cluster: Cluster) -> None:
    place = _PlaceOnMachines({"CPU": 1.0}, cluster.machines)
    scheduler = _WarmWorkerScheduler(SimpleNamespace(), place)  # type: ignore[arg-type]
    requests = Requests(place, 2)
    actors = SimpleNamespace(_resource_manager=requests)
    scheduler._controller = SimpleNamespace(_actor_manager=actors)
    place.told = []
    scheduler.place_again()
    assert requests.log == []

    cluster.look()
    scheduler.place_again()
    scheduler.place_again()

    assert requests.log == ["cancel", "request"] * 2
