"""What MLflow refuses, what people edit there, and what the mirror says of itself."""

import time

import pytest
from mlflow.tracking import MlflowClient

from sweeps.mlflow_mirror.client import MAX_REFUSALS, Holds, MlflowRefused
from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.records import SweepState, TrialState
from sweeps.store.store import Store
from tests.sweeps.mlflow_mirror.mirror_cases import client, mirror, send_all, store
from tests.sweeps.store_cases import claimed, report, run, trial

__all__ = ["client", "mirror", "store"]

pytestmark = pytest.mark.stack


class Clock:
    """Seconds that pass when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_refused_waits_longer_each_time_and_is_given_up() -> None:
    clock = Clock()
    holds = Holds(clock)
    pauses = []
    while not holds.refused("sweep"):
        began = clock.now
        while "sweep" in holds.sweeps():
            clock.now += 0.5
        pauses.append(clock.now - began)

    assert len(pauses) == MAX_REFUSALS - 1
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert holds.sweeps() == []
    assert not holds.refused(7)
    assert (holds.sweeps(), holds.attempts()) == ([], [7])
    holds.accepted(7)
    assert holds.attempts() == []


def test_an_attempt_that_is_never_accepted_is_given_up_and_holds_up_nobody(
    store: Store, mirror: Mirror, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(mirror, "_holds", Holds(clock))
    tries = []
    create = mirror._client.create_run

    def refuse_one(experiment: str, start: int, tags: dict[str, str], name: str) -> str:
        if name.startswith("trial 0"):
            tries.append(clock.now)
            raise MlflowRefused("INVALID_PARAMETER_VALUE: not this one")
        return create(experiment, start, tags, name)

    monkeypatch.setattr(mirror._client, "create_run", refuse_one)
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.25)
    run(store, claim, 1, 0.5)

    for _ in range(400):
        send_all(mirror)
        clock.now += 1.0

    assert len(tries) == MAX_REFUSALS
    assert store.mirror_backlog().attempts == 0
    said = store.get_sweep(claim.sweep_id).mirror
    assert said is not None
    assert said["error"] == "INVALID_PARAMETER_VALUE: not this one"
    runs = client.search_runs([said["experiment_id"]])
    assert sorted(r.info.run_name for r in runs) == ["tiny", "trial 1: lr 1, seed 0"]


def test_tags_that_people_edited_in_mlflow_block_nothing(
    store: Store, mirror: Mirror, client: MlflowClient, mlflow_url: str
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    attempts = [store.start_attempt(claim, number) for number in range(2)]
    send_all(mirror)
    for attempt, tag in zip(store.attempts(claim.sweep_id), ("trial", "attempt_id"), strict=True):
        assert attempt.mlflow_run_id is not None
        client.set_tag(attempt.mlflow_run_id, f"ndsweep.{tag}", "mine")
    for attempt in attempts:
        end = TrialState.COMPLETE
        store.finish_attempt(
            claim, attempt.number - 1, attempt.id, end, "complete", trial_state=end
        )
    store.release(claim, SweepState.COMPLETE, "all done")
    # Its runs were ended in the store while no mirror looked; only the reconciler can tell MLflow.
    for attempt in attempts:
        store.mirror_sent(attempt.id, attempt.id, "complete")

    send_all(Mirror(store, mlflow_url))

    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    states = {run.info.status for run in client.search_runs([place["experiment_id"]])}
    assert states == {"FINISHED"}


@pytest.mark.parametrize("is_known", [True, False], ids=["placed", "not noted down"])
def test_a_sweep_deleted_while_no_mirror_runs_leaves_nothing_running(
    store: Store, mirror: Mirror, client: MlflowClient, mlflow_url: str, is_known: bool
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    store.start_attempt(claim, 0)
    send_all(mirror)
    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    if not is_known:
        # As if the mirror had been killed before it wrote down where it put the sweep.
        store.set_mirror(claim.sweep_id, {})
    store.release(claim, SweepState.CANCELLED, "cancelled")
    store.delete_sweep(claim.sweep_id)

    send_all(Mirror(store, mlflow_url))

    runs = client.search_runs([place["experiment_id"]])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]
    assert store.mirror_deleted() == []


def test_a_deleted_sweep_that_never_ran_leaves_no_note(store: Store) -> None:
    sweep, _ = store.create_sweep("sweep", {}, name="never")
    store.request(sweep.id, "cancel")
    store.delete_sweep(sweep.id)

    assert store.mirror_deleted() == []


def test_the_mirror_is_not_behind_once_everything_is_there(
    store: Store, mirror: Mirror, mlflow_url: str
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(10, 0.5)])
    time.sleep(0.3)
    mirror.turn()
    behind = store.get_sweep(claim.sweep_id).mirror
    assert behind is not None
    assert behind["behind_seconds"] > 0

    # Also by a mirror that did not write it.
    send_all(Mirror(store, mlflow_url))

    said = store.get_sweep(claim.sweep_id).mirror
    assert said is not None
    assert (said["behind_seconds"], said["error"]) == (0.0, "")
