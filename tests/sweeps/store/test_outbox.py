"""The store's contract with the mirror: everything is pending until it is acknowledged."""

import pytest

from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.records import Backlog, SweepState, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, new_sweep, report, run, trial


def acknowledge_all(store: Store) -> None:
    work = store.mirror_pending()
    for sweep in work.sweeps:
        store.mirror_sweep_sent(sweep.sweep.id, sweep.revision)
    for attempt in work.attempts:
        store.mirror_sent(attempt.attempt.id, attempt.upto, attempt.attempt.state)


def test_metrics_are_pending_in_order_until_acknowledged(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    for step in (1, 2, 3):
        store.record(claim, 0, attempt.id, [report(step, metrics={"a": step, "b": 2.0})])

    (first,) = store.mirror_pending(max_metrics=4).attempts
    assert [(m.name, m.step) for m in first.metrics] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert (first.more, first.trial.number, first.attempt.id) == (True, 0, attempt.id)

    store.mirror_sent(attempt.id, first.upto, TrialState.RUNNING)
    (second,) = store.mirror_pending(max_metrics=4).attempts
    assert [(m.name, m.step) for m in second.metrics] == [("a", 3), ("b", 3)]
    assert not second.more

    store.mirror_sent(attempt.id, second.upto, TrialState.RUNNING)
    # An old acknowledgement that arrives late takes nothing back.
    store.mirror_sent(attempt.id, first.upto, TrialState.RUNNING)
    assert store.mirror_pending().attempts == []


def test_times_of_metrics_never_change(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(1)])
    before = store.mirror_pending().attempts[0].metrics
    store.record(claim, 0, attempt.id, [report(1)])

    (again,) = store.mirror_pending().attempts

    assert again.metrics == before
    store.mirror_sent(attempt.id, again.upto, again.attempt.state)
    assert store.mirror_pending().attempts == []


def test_a_state_that_the_mirror_has_not_seen_is_pending(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    acknowledge_all(store)
    assert store.mirror_backlog() == Backlog(sweeps=0, attempts=0, metrics=0)

    store.finish_attempt(
        claim, 0, attempt.id, TrialState.FAILED, "killed", trial_state=TrialState.FAILED
    )
    store.release(claim, SweepState.FAILED, "1 trial failed")

    work = store.mirror_pending()
    assert [p.sweep.state for p in work.sweeps] == [SweepState.FAILED]
    assert [(p.attempt.state, p.metrics) for p in work.attempts] == [(TrialState.FAILED, [])]
    acknowledge_all(store)
    assert store.mirror_pending().sweeps == []


def test_a_change_during_the_sending_of_a_sweep_stays_pending(store: Store) -> None:
    claim = claimed(store)
    (seen,) = store.mirror_pending().sweeps
    store.set_notes(claim.sweep_id, "changed meanwhile")

    store.mirror_sweep_sent(claim.sweep_id, seen.revision)

    assert [p.sweep.notes for p in store.mirror_pending().sweeps] == ["changed meanwhile"]


def test_the_first_run_of_an_attempt_stands(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)

    assert store.set_mlflow_run(attempt.id, "one") == "one"
    assert store.set_mlflow_run(attempt.id, "two") == "one"
    assert store.trial(claim.sweep_id, 0).attempts[0].mlflow_run_id == "one"


def test_everything_is_sent_anew_after_the_mirror_lost_it(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    run(store, claim, 0, 0.5)
    store.set_mirror(claim.sweep_id, {"experiment_id": "7"})
    acknowledge_all(store)
    assert store.get_sweep(claim.sweep_id).mirror == {"experiment_id": "7"}
    assert store.mirror_backlog().sweeps == 0

    store.mirror_again(claim.sweep_id)

    (attempt,) = store.mirror_pending(sweep_id=claim.sweep_id).attempts
    assert [m.value for m in attempt.metrics] == [0.5]
    assert attempt.attempt.mlflow_run_id is None
    assert store.mirror_backlog() == Backlog(sweeps=1, attempts=1, metrics=1)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        ("http://127.0.0.1:5001", "http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("http://127.0.0.1:5001", "https://mlflow.example", "http://127.0.0.1:5001"),
        ("https://mlflow.example", "http://127.0.0.1:5000", "https://mlflow.example"),
    ],
)
def test_links_to_a_local_server_follow_it_to_its_port_of_now(
    store: Store, before: str, now: str, after: str
) -> None:
    """The port that was taken the last time is free again; ended sweeps are not sent again."""
    run_page = "/#/experiments/1/runs/abc?workflowType=machine_learning"
    sweep, unsent = new_sweep(store), new_sweep(store)
    state = {"experiment_id": "1", "run_id": "abc", "behind_seconds": 0.0, "error": ""}
    store.set_mirror(sweep.id, state | {"url": f"{before}{run_page}"})
    acknowledge_all(store)

    Mirror(store, "http://127.0.0.1:9", public_url=now).turn()

    assert store.get_sweep(sweep.id).mirror == state | {"url": f"{after}{run_page}"}
    assert store.get_sweep(unsent.id).mirror is None
    assert store.mirror_backlog() == Backlog(sweeps=0, attempts=0, metrics=0)
