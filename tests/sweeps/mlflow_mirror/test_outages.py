"""The mirror while MLflow is away, slow, broken or emptied, and after it died itself."""

import threading

import pytest
from mlflow.tracking import MlflowClient

from sweeps.errors import StoreUnavailable
from sweeps.mlflow_mirror.client import Unreachable
from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.records import Attempt, Claim, TrialState
from sweeps.store.store import Store
from tests.sweeps.mlflow_mirror.mirror_cases import (
    client,
    history,
    mirror,
    proxy,
    runs_of,
    send_all,
    store,
)
from tests.sweeps.mlflow_mirror.mlflow_server import Proxy
from tests.sweeps.stack import PATIENCE, until
from tests.sweeps.store_cases import claimed, report, run, trial

__all__ = ["client", "mirror", "proxy", "store"]

pytestmark = pytest.mark.stack


def begun(store: Store) -> tuple[Claim, Attempt]:
    """A trial with a report, of which MLflow knows nothing yet."""
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(10, 0.5)])
    return claim, attempt


def test_a_mirror_that_dies_between_two_requests_leaves_no_second_run(
    store: Store,
    mlflow_url: str,
    mirror: Mirror,
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim, attempt = begun(store)

    def die(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # After MLflow made the run, before the store knows it.
        patch.setattr(store, "set_mlflow_run", die)
        with pytest.raises(KeyboardInterrupt):
            mirror.turn()
    store.finish_attempt(
        claim, 0, attempt.id, TrialState.FAILED, "killed", trial_state=TrialState.FAILED
    )
    send_all(Mirror(store, mlflow_url))

    (only,) = runs_of(client, store, claim.sweep_id)
    assert only.info.status == "FAILED"
    assert only.data.params["lr"] == "0.0"
    assert history(client, only, "validation_error") == [(10, 0.5)]


def test_a_store_that_is_away_when_a_run_was_made_has_no_second_one_made(
    store: Store, mirror: Mirror, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, _ = begun(store)

    def away(*_: object) -> str:
        raise StoreUnavailable("no route")

    with monkeypatch.context() as patch:
        patch.setattr(store, "set_mlflow_run", away)
        with pytest.raises(StoreUnavailable):
            mirror.turn()
    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert history(client, only, "validation_error") == [(10, 0.5)]


def test_a_deleted_experiment_is_made_again_with_everything(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.25)
    send_all(mirror)
    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    client.delete_experiment(place["experiment_id"])

    run(store, claim, 1, 0.5)
    send_all(mirror)
    send_all(mirror)

    again = store.get_sweep(claim.sweep_id).mirror
    assert again is not None
    assert again["experiment_id"] != place["experiment_id"]
    first, second = runs_of(client, store, claim.sweep_id)
    assert history(client, first, "validation_error") == [(100, 0.25)]
    assert history(client, second, "validation_error") == [(100, 0.5)]


@pytest.mark.parametrize("trouble", ["refuse", "500", "hang"])
def test_an_outage_loses_nothing_doubles_nothing_and_is_visible(
    store: Store, proxy: Proxy, client: MlflowClient, trouble: str
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(1, 0.9)])
    mirror = Mirror(store, proxy.url)
    send_all(mirror)
    stop = threading.Event()
    proxy.behaviour = trouble  # type: ignore[assignment]
    thread = threading.Thread(target=mirror.run, args=(stop,), daemon=True)

    def shows() -> object:
        """Whether the outage is seen: in the store, or in a request without an answer."""
        shown = store.get_sweep(claim.sweep_id).mirror
        return proxy.holds if trouble == "hang" else shown and shown["error"]

    thread.start()
    try:
        store.record(claim, 0, attempt.id, [report(2, 1 / 2)])
        until(shows, "the outage shows")
        for step in range(3, 12):
            store.record(claim, 0, attempt.id, [report(step, 1 / step)])
        # Nothing of this waited for an answer: it is still to come.
        assert shows()
        assert mirror.away_seconds > 0 or trouble != "refuse"
        proxy.behaviour = "pass"
        store.finish_attempt(
            claim, 0, attempt.id, TrialState.COMPLETE, "complete", trial_state=TrialState.COMPLETE
        )
        until(lambda: not store.mirror_backlog().attempts, "MLflow has everything")
    finally:
        proxy.behaviour = "pass"
        stop.set()
        thread.join(PATIENCE)

    assert mirror.away_seconds == 0
    (only,) = runs_of(client, store, claim.sweep_id)
    expected = [(1, 0.9)] + [(step, 1 / step) for step in range(2, 12)]
    assert history(client, only, "validation_error") == expected
    assert only.info.status == "FINISHED"


def test_a_server_that_never_comes_back_keeps_nothing_in_memory_and_is_named(
    store: Store, proxy: Proxy
) -> None:
    proxy.behaviour = "refuse"
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    run(store, claim, 0, 0.5)

    with pytest.raises(Unreachable):
        Mirror(store, proxy.url).turn()

    assert store.mirror_backlog().metrics == 1
