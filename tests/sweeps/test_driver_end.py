"""What a driver does with its sweep at the end, where no cluster is needed to see it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.driver import Driver
from sweeps.records import Claim, Sweep, SweepState
from sweeps.store import Store
from sweeps.writer import StoreWriter
from tests.sweeps.driving import PATIENCE
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
        patch.setattr(StoreWriter, "close", lambda writer, seconds: False)
        driver.end()
    assert driver._writer.close(PATIENCE)

    assert store.get_sweep(claim.sweep_id).state == SweepState.RUNNING
    assert driver.exit_code == 1
