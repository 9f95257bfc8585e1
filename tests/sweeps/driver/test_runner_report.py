"""A runner says at once which sweep which of its drivers has, and no two of them have the same."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.sweep.parts import submit
from sweeps.cluster.capacity import ClusterShape, NodeShape
from sweeps.driver import runner as runners
from sweeps.driver.process import DriverSettings
from sweeps.driver.runner import Runner
from sweeps.records import Claim, SweepState
from sweeps.records import Runner as RunnerSign
from sweeps.store.store import Store
from tests.sweeps.stack import until
from tests.sweeps.sweep_cases import sweep_spec

#: Seconds: longer than any test.
EVER = 3600.0
#: Says what the cluster looks like, and keeps the sweep that it is given.
IDLE = """
import sys, time
print(sys.argv[1], flush=True)
time.sleep(600)
"""


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + IDLE


class Idle(DriverSettings):
    """Settings of drivers that are connected and never train."""

    script = IDLE

    def command(self) -> list[str]:
        shape = ClusterShape((NodeShape(cpus=2.0, gpus=0.0),))
        return [sys.executable, "-S", "-c", self.script, json.dumps(shape.to_json())]


class Deaf(Idle):
    """Settings of drivers that do not stop when they are told to."""

    script = DEAF


def drivers(store: Store) -> dict[str, int]:
    """By the sweeps that they have."""
    return {driver["sweep"]: driver["pid"] for sign in store.runners(EVER) for driver in told(sign)}


def sees_cluster(store: Store) -> bool:
    return any(sign.info["cluster"] for sign in store.runners(EVER))


def told(sign: RunnerSign) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sign.info["drivers"]
    return found


@contextmanager
def running(runner: Runner) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_who_drives_a_sweep_is_known_as_soon_as_it_is_driven(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_REPORT", 1000.0)
    with running(Runner(sqlite_store, Idle(sqlite_url, tmp_path))):
        # After this sign of life none is due for a while.
        until(lambda: sees_cluster(sqlite_store), "a driver is connected")
        assert drivers(sqlite_store) == {}

        sweep_id = submit(sqlite_store, sweep_spec())
        until(lambda: sweep_id in drivers(sqlite_store), "it has a driver")
        first = drivers(sqlite_store)[sweep_id]
        os.kill(first, signal.SIGKILL)

        until(lambda: drivers(sqlite_store).get(sweep_id, first) != first, "it has another")


def test_a_runner_whose_leases_ran_out_gives_no_sweep_to_a_second_driver(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its disk stands still for longer than a lease."""
    monkeypatch.setattr(runners, "_SPARE", 0.0)
    monkeypatch.setattr(sqlite_store, "renew", lambda claim, lease_seconds: None)
    looks = []
    claim = sqlite_store.claim

    def look(*arguments: Any, **options: Any) -> Claim | None:
        looks.append(drivers(sqlite_store))
        return claim(*arguments, **options)

    monkeypatch.setattr(sqlite_store, "claim", look)
    sweep_id = submit(sqlite_store, sweep_spec())
    with running(Runner(sqlite_store, Idle(sqlite_url, tmp_path), lease_seconds=-1.0)):
        until(lambda: len(looks) > 1 and sweep_id in looks[-2], "a second driver may be given one")
        one = drivers(sqlite_store)

        until(lambda: looks.count(one) > 3, "none was given")
        assert looks[-1] == one
        assert sqlite_store.get_sweep(sweep_id).state is SweepState.RUNNING


def test_a_sweep_whose_driver_did_not_stop_in_time_is_free_for_the_next_runner(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_STOP", 0.1)
    sweep_id = submit(sqlite_store, sweep_spec())
    with running(Runner(sqlite_store, Deaf(sqlite_url, tmp_path), lease_seconds=3000.0)):
        until(lambda: sweep_id in drivers(sqlite_store), "it has a driver")
        # When it has said what it sees, it is deaf.
        until(lambda: sees_cluster(sqlite_store), "the driver is deaf")

    sweep = sqlite_store.get_sweep(sweep_id)
    assert (sweep.state, sweep.reason) == (SweepState.QUEUED, "its runner stopped")


def test_a_runner_reports_its_lease_and_for_how_long_mlflow_has_been_away(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str
) -> None:
    def said(mirror: Any) -> tuple[Any, Any]:
        runner = Runner(sqlite_store, Idle(sqlite_url, tmp_path), lease_seconds=20.0)
        runner.mirror = mirror
        runner._report()
        info = next(s.info for s in sqlite_store.runners(EVER) if s.owner == runner.owner)
        return info["lease_seconds"], info["mlflow"]

    assert said(None) == (20.0, None)
    assert said(SimpleNamespace(away_seconds=3.04)) == (20.0, {"away_seconds": 3.0})
