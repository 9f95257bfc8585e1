"""What a driver does with its sweep at the end, where no cluster is needed to see it."""

import argparse
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.driver.driver import Driver, _drive
from sweeps.driver.process import ENDED_BY_RAY, FAULT, NO_STORE, DriverSettings
from sweeps.driver.runner import MAX_CRASHES, Runner
from sweeps.driver.store_writer import StoreWriter
from sweeps.errors import StoreUnavailable
from sweeps.records import Claim, Sweep, SweepState
from sweeps.store.store import Store
from tests.sweeps.batch.turns import wait_for
from tests.sweeps.driver.driving import PATIENCE, result
from tests.sweeps.store_cases import LEASE
from tests.sweeps.sweep_cases import sweep_spec


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_store


@pytest.fixture
def claim(store: Store) -> Claim:
    """A sweep of two points, claimed."""
    spec = sweep_spec(num_points=2).model_dump(mode="json")
    store.create_sweep("sweep", spec, name="s", num_trials=2)
    claim = store.claim("runner-1", LEASE)
    assert claim is not None
    return claim


def stopped(store: Store, claim: Claim, home: Path, why: Any) -> Driver:
    """A driver that has been told to stop, or is done."""
    driver = Driver(store, claim, home)
    if why is not None:
        driver._dispatcher.stop(why)
    return driver


@pytest.mark.parametrize(
    ("why", "meanwhile", "state", "reason"),
    [
        (None, None, "complete", "all done"),
        ("pause", lambda store, id: store.request(id, "pause"), "paused", "paused"),
        ("pause", lambda store, id: store.resume(id), "queued", "resumed"),
        ("leave", lambda store, id: store.request(id, "pause"), "paused", "paused"),
        ("pause", lambda store, id: store.request(id, "cancel"), "cancelled", "cancelled"),
        (None, lambda store, id: extend(store, id), "queued", "extended"),
        ("limit", lambda store, id: extend(store, id), "queued", "extended"),
        ("cancel", lambda store, id: extend(store, id), "cancelled", "cancelled"),
    ],
)
def test_what_people_asked_in_the_last_moment_counts(
    store: Store,
    claim: Claim,
    tmp_path: Path,
    why: Any,
    meanwhile: Callable[[Store, str], Sweep] | None,
    state: str,
    reason: str,
) -> None:
    driver = stopped(store, claim, tmp_path, why)
    if meanwhile is not None:
        meanwhile(store, claim.sweep_id)

    driver.end()

    sweep = store.get_sweep(claim.sweep_id)
    assert (sweep.state, sweep.reason) == (state, reason)
    assert driver.exit_code == 0


def extend(store: Store, sweep_id: str) -> Sweep:
    spec = sweep_spec(num_points=4).model_dump(mode="json")
    return store.extend(sweep_id, spec, num_trials=4)


def test_a_sweep_whose_last_endings_are_not_written_is_not_ended(
    store: Store, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stopped(store, claim, tmp_path, None)
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "close", lambda writer, seconds, **_: False)
        driver.end()
    assert driver._writer.close(PATIENCE)

    assert store.get_sweep(claim.sweep_id).state == SweepState.RUNNING
    assert driver.exit_code == NO_STORE


@pytest.mark.parametrize("verb", ["all_points", "set_result", "get_sweep", "release"])
def test_a_store_that_is_away_when_a_sweep_ends_costs_neither_its_result_nor_its_driver(
    store: Store, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("sweeps.driver.driver._RETRY", 0.0)
    driver = stopped(store, claim, tmp_path, None)
    asked = refuse(store, monkeypatch, verb, times=2)

    driver.end()

    sweep = store.get_sweep(claim.sweep_id)
    assert asked[:2] == ["refused", "refused"]
    assert (sweep.state, driver.exit_code) == (SweepState.COMPLETE, 0)
    assert sweep.result is not None


def test_a_cancel_waits_for_trials_that_ended_while_the_store_was_away(
    store: Store, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stopped(store, claim, tmp_path, None)
    run = driver._dispatcher.next()
    assert run is not None
    # A driver in haste does not wait for a store that is merely slow.
    monkeypatch.setattr("sweeps.driver.driver._HASTE", 0.0)
    asked = refuse(store, monkeypatch, "finish_attempts", times=2)
    driver._dispatcher.started(run)
    driver._dispatcher.report(run, result(100, 0.5, "complete"))
    driver._dispatcher.ended(run)
    driver._dispatcher.stop("cancel")
    wait_for(lambda: asked)

    driver.end()

    states = [trial.state.value for trial in store.all_trials(claim.sweep_id)]
    assert states == ["complete", "cancelled"]
    assert store.get_sweep(claim.sweep_id).state == SweepState.CANCELLED


def test_what_a_sweep_waited_for_is_taken_back_though_the_store_was_away(
    store: Store, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stopped(store, claim, tmp_path, None)
    driver._watcher.say("waiting for resources: all are busy")
    with monkeypatch.context() as patch:
        refuse(store, patch, "set_reason", times=1)
        driver._watcher.say("")
    told = store.get_sweep(claim.sweep_id).reason

    driver._watcher._look()

    assert told == "waiting for resources: all are busy"
    assert store.get_sweep(claim.sweep_id).reason == ""
    driver.end()


def test_a_result_that_was_being_found_out_when_the_sweep_ended_does_not_replace_the_last_one(
    store: Store, claim: Claim, tmp_path: Path
) -> None:
    driver = stopped(store, claim, tmp_path, None)
    watcher = driver._watcher

    def slowly() -> dict[str, Any]:
        watcher.stop()
        store.set_result(claim, {"points": "all"})
        return {"points": "fewer"}

    watcher._analyse, watcher._result_told = slowly, -1
    watcher._refresh_result()

    assert store.get_sweep(claim.sweep_id).result == {"points": "all"}
    driver.end()


def test_a_driver_without_its_store_says_so_by_its_exit_code(
    store: Store, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = argparse.Namespace(store=store.url, home=tmp_path, data=None, trainable=None)
    refuse(Store, monkeypatch, "get_sweep", times=1)  # type: ignore[arg-type]

    code = _drive(options, claim, threading.Event())

    assert code == NO_STORE
    assert store.get_sweep(claim.sweep_id).state == SweepState.RUNNING


def test_drivers_that_end_because_the_store_is_away_do_not_fail_their_sweep(
    store: Store, claim: Claim, tmp_path: Path
) -> None:
    runner = Runner(store, DriverSettings(store.url, tmp_path))
    for _ in range(MAX_CRASHES):
        runner._after(claim, NO_STORE)
        again = store.claim("runner-1", LEASE)
        assert again is not None
        claim = again
    runner._after(claim, NO_STORE)

    sweep = store.get_sweep(claim.sweep_id)
    assert sweep.state == SweepState.QUEUED
    assert sweep.reason == "the store was away from its driver; another takes over"


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (
            ENDED_BY_RAY,
            SweepState.QUEUED,
            "the cluster was away from its driver; another takes over",
        ),
        (-signal.SIGKILL, SweepState.QUEUED, "its driver ended; another takes over"),
        (FAULT, SweepState.FAILED, "its driver ended 3 times with code 70; see logs/drivers.log"),
    ],
)
def test_only_faults_of_drivers_themselves_fail_their_sweep(
    store: Store, claim: Claim, tmp_path: Path, code: int, state: SweepState, reason: str
) -> None:
    runner = Runner(store, DriverSettings(store.url, tmp_path))
    for _ in range(MAX_CRASHES - 1):
        runner._after(claim, code)
        again = store.claim("runner-1", LEASE)
        assert again is not None
        claim = again
    runner._after(claim, code)

    sweep = store.get_sweep(claim.sweep_id)
    assert (sweep.state, sweep.reason) == (state, reason)


def refuse(store: Store, patch: pytest.MonkeyPatch, verb: str, *, times: int) -> list[str]:
    """Let a verb of the store fail so often; what became of each call so far."""
    real = getattr(store, verb)
    calls: list[str] = []

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append("refused" if len(calls) < times else "done")
        if calls[-1] == "refused":
            raise StoreUnavailable("no route")
        return real(*arguments, **options)

    patch.setattr(store, verb, call)
    return calls
