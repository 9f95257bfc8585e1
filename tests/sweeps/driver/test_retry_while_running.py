"""Failed trials that people let run again while their sweep is being driven."""

from collections.abc import Sequence

import pytest

from sweeps.driver import dispatcher as dispatch
from sweeps.driver.driver import Driver
from sweeps.records import SweepState, Trial, TrialState
from sweeps.store.store import Store
from tests.sweeps.driver.driving import PATIENCE, Drive, Driving, drive, store

__all__ = ["drive", "store"]


def fail(driving: Driving) -> int:
    """Let the next trial fail; its number, once the failure is written."""
    run = driving.start()
    driving.dispatcher.ended(run, ValueError("no"))
    assert driving.trial(run.trial.number).state == TrialState.FAILED
    return run.trial.number


def test_a_running_driver_takes_up_what_is_retried(drive: Drive, store: Store) -> None:
    driving = drive(num_points=2)
    failed = fail(driving)
    other = driving.start()

    sweep = store.retry(driving.claim.sweep_id)
    driving.dispatcher._next_reopening = 0.0
    again = driving.start()
    driving.finish(again)
    driving.finish(other)

    assert (sweep.state, sweep.trials["failed"]) == (SweepState.RUNNING, 0)
    assert again.trial.number == failed
    assert driving.dispatcher.next() is None
    assert driving.dispatcher.is_done
    assert {t.state for t in driving.all_trials()} == {TrialState.COMPLETE}
    assert len(driving.trial(failed).attempts) == 2


def test_a_retried_trial_may_lose_its_worker_as_often_as_a_new_one(
    drive: Drive, store: Store
) -> None:
    driving = drive(num_points=1)
    for _ in range(3):
        run = driving.start()
        driving.dispatcher.ended(run, ConnectionError("gone"), lost=True)
        driving.dispatcher.take_ended(PATIENCE)
    assert driving.trial(0).state == TrialState.FAILED

    store.retry(driving.claim.sweep_id)
    driving.dispatcher._next_reopening = 0.0
    run = driving.start()
    driving.dispatcher.ended(run, ConnectionError("gone"), lost=True)

    assert driving.trial(0).state == TrialState.WAITING


def test_a_sweep_that_is_retried_in_its_last_moment_goes_on(drive: Drive, store: Store) -> None:
    driving = drive(num_points=1)
    fail(driving)
    seen = store.get_sweep(driving.claim.sweep_id)

    store.retry(driving.claim.sweep_id)

    assert driving.dispatcher.has_reopened()
    assert not store.release(driving.claim, SweepState.COMPLETE, "all done", seen=seen)
    assert store.get_sweep(driving.claim.sweep_id).state == SweepState.RUNNING


def test_a_failure_that_is_retried_before_its_driver_heard_of_it_is_taken_up(
    drive: Drive, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = drive(num_points=1)
    run = driving.start()
    read = store.trials_of

    def slowly(sweep_id: str, numbers: Sequence[int]) -> list[Trial]:
        """As where the store goes away between the failure and its driver's look at it."""
        store.retry(sweep_id)
        return read(sweep_id, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(store, "trials_of", slowly)
        driving.dispatcher.ended(run, ValueError("no"))
        driving.dispatcher.take_ended(PATIENCE)

    assert driving.dispatcher.has_reopened()
    driving.dispatcher._next_reopening = 0.0
    driving.finish(driving.start())
    assert [a.state for a in driving.trial(0).attempts] == ["failed", "complete"]
    assert driving.trial(0).state == TrialState.COMPLETE


def test_looking_for_retried_trials_costs_nothing_while_none_has_failed(
    drive: Drive, store: Store, monkeypatch
) -> None:
    driving = drive(num_points=2)
    monkeypatch.setattr(store, "reopened", None)

    driving.finish(driving.start())

    assert not driving.dispatcher.has_reopened()
    assert dispatch._REOPENING >= 1.0


def test_a_driver_queues_a_sweep_whose_failures_were_retried_too_late_for_it(
    drive: Drive, store: Store
) -> None:
    driving = drive(num_points=1)
    fail(driving)
    driver = Driver.__new__(Driver)
    driver._dispatcher = driving.dispatcher
    driver._sweep = store.get_sweep(driving.claim.sweep_id)
    assert driving.dispatcher.next() is None
    ended = driver._outcome(store.get_sweep(driving.claim.sweep_id))

    store.retry(driving.claim.sweep_id)

    assert ended == (SweepState.FAILED, "all 1 trial failed")
    outcome = driver._outcome(store.get_sweep(driving.claim.sweep_id))
    assert outcome == (SweepState.QUEUED, "retrying failed trials")


def test_sweeps_that_wait_for_a_driver_say_so(drive: Drive, store: Store) -> None:
    driving = drive(num_points=1)
    spec = store.get_sweep(driving.claim.sweep_id).spec
    waiting, _ = store.create_sweep("sweep", spec, name="next", num_trials=1)
    why = "waiting for a driver: the only driver is busy with other sweeps"

    too_soon = store.explain_queued(why, after_seconds=3600.0)
    first = store.explain_queued(why, after_seconds=0.0)
    again = store.explain_queued(why, after_seconds=0.0)

    assert (too_soon, first, again) == (0, 1, 0)
    assert store.get_sweep(waiting.id).reason == why
    assert store.events(waiting.id, 0, 10)[-1].data == {"state": "queued", "reason": why}
    assert store.get_sweep(driving.claim.sweep_id).reason == ""
    driving.leave(SweepState.COMPLETE)
    assert store.claim("runner-2") is not None
    assert store.get_sweep(waiting.id).reason == ""
