"""SIGKILL of any part at any moment of a sweep costs nothing that was recorded and nothing planned.

``make test`` runs the six cells of ``QUICK``; with FAULTS=all, as ``make faults`` sets it, every
victim is killed at every moment. In the end SIGTERM, to each part and then to the whole, is a clean
stop within ten seconds.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

import pytest

from sweeps.records import SweepState
from tests.faults import workload
from tests.faults.checks import TRIALS, assert_whole, finished, small_sweep
from tests.faults.nodes import Node
from tests.faults.processes import below, until
from tests.faults.service_under_test import Service, Victim, patiently
from tests.worker.data.test_machine_check import copied_code

pytestmark = pytest.mark.stack

Moment = Literal["record", "start", "step", "half", "cancel", "checkpoint"]

#: Every victim once, and every moment.
QUICK: list[tuple[Victim, Moment]] = [
    ("api", "cancel"),
    ("runner", "start"),
    ("driver", "step"),
    ("worker", "checkpoint"),
    ("mlflow", "half"),
    ("node", "record"),
]
ALL: list[tuple[Victim, Moment]] = [
    (victim, moment) for victim in get_args(Victim) for moment in get_args(Moment)
]
CELLS = ALL if os.environ.get("FAULTS") == "all" else QUICK
#: What gets a SIGTERM, in this order, and Ray after it.
PARTS: tuple[Victim, ...] = ("api", "mlflow", "driver", "runner")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the whole file; at the end it stops in time and leaves nothing."""
    service = Service(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("data"))
    try:
        yield service
    finally:
        took = service.stop()
    assert took < 10.5


#: Where trials stand still at a moment, and the number of the first that does; until the kill, the
#: sweep does not go on to its end.
HELD: dict[Moment, tuple[str, int]] = {
    "record": ("step 1", 0),
    "start": ("step 1", 0),
    "step": ("step 1", 0),
    "half": ("step 1", TRIALS // 2),
    "cancel": ("step 1", 1),
    "checkpoint": ("checkpoint", 0),
}


def _moments(service: Service, sweep_id: str) -> dict[Moment, Callable[[], object]]:
    def sweep() -> dict[str, int]:
        return service.sweep(sweep_id).trials

    return {
        "record": lambda: True,
        "start": lambda: service.sweep(sweep_id).state == SweepState.RUNNING,
        "step": lambda: "step 1" in service.phases(sweep_id),
        "half": lambda: sweep()["complete"] >= TRIALS // 2,
        "cancel": lambda: sweep()["complete"] >= 1,
        "checkpoint": lambda: "checkpoint" in service.phases(sweep_id),
    }


@pytest.mark.parametrize(("victim", "moment"), CELLS, ids=lambda part: str(part))
def test_a_kill_loses_and_repeats_nothing(service: Service, victim: Victim, moment: Moment) -> None:
    sampler = "grid" if moment in ("step", "half") else "random"
    # What is to be cancelled has more to do than it can do before.
    fields = {"num_points": 100} if moment == "cancel" else {}
    spec = small_sweep(sampler, f"{victim}-{moment}", **fields)
    with service.held(*HELD[moment]):
        submitted = service.submit(spec)
        until(_moments(service, submitted.id)[moment], f"the moment: {moment}", every=0.01)
        if moment == "cancel":
            patiently(lambda: service.client.cancel(submitted.id))

        service.hurt(victim, submitted.id)

    sweep = finished(service, submitted.id)
    if moment == "cancel":
        assert sweep.state == SweepState.CANCELLED
        again = patiently(lambda: service.client.cancel(submitted.id))
        assert again.state == "cancelled"
    assert sweep.id == submitted.id
    assert_whole(service, sweep.id, service.sweep(sweep.id).spec)


def test_a_machine_with_other_code_is_named_and_gets_no_trial(
    service: Service, tmp_path: Path
) -> None:
    code = copied_code(tmp_path)
    (code / "worker" / "pauses.py").write_text("pass\n")
    with service.held("step 1"):
        submitted = service.submit(small_sweep("grid", "other-code"))
        until(lambda: service.phases(submitted.id).count("step 1") == 2, "both machines train")
        node = Node(service.home, code)
        try:
            until(
                lambda: "its code is not the runner's" in service.sweep(submitted.id).reason,
                "the sweep says which machine is wrong",
            )
            until(lambda: _refused(service) == 1, "and so does the list of machines")
            workload.release(service.home)
            finished(service, submitted.id)
        finally:
            node.stop()
    until(lambda: len(service.shape() or []) == 2, "it has left")

    used = {attempt.provenance["session"] for attempt in service.store.attempts(submitted.id)}
    assert node.session not in used
    assert_whole(service, submitted.id, service.sweep(submitted.id).spec)


def _refused(service: Service) -> int:
    return sum(bool(machine.refused) for machine in service.client.machines())


def test_sigterm_of_each_part_in_turn_is_a_clean_stop(service: Service) -> None:
    """And costs a sweep nothing. The last one here: no node comes along when Ray starts again."""
    while service.nodes:
        service.nodes.pop().stop()
    until(lambda: len(service.shape() or []) == 1, "every node has left")
    took = {}
    with service.held("step 1"):
        submitted = service.submit(small_sweep("grid", "signals"))
        for part in PARTS:
            until(lambda: "step 1" in service.phases(submitted.id), "a trial runs")
            took[part] = service.terminate(service.one(part, submitted.id))
        until(lambda: "step 1" in service.phases(submitted.id), "a trial runs")
        (ray,) = below(service.process.pid, "-m sweeps.cluster.head")
        took_by_ray = service.terminate(ray)

    finished(service, submitted.id)

    assert max(took.values()) < 10.5, took
    assert took_by_ray < 10.5
    assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
