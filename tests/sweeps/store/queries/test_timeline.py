"""The store's contract on timelines: every attempt once, oldest first, with where it ran."""

from sweeps.records import TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report, trial


def test_attempts_are_listed_with_the_process_that_ran_them(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    for number in (0, 1):
        attempt = store.start_attempt(claim, number)
        about = {"host": "node-a", "pid": 40 + number, "card": "H100"}
        store.record(claim, number, attempt.id, [report(10, provenance=about)])
        if number == 0:
            done = TrialState.COMPLETE
            store.finish_attempt(claim, 0, attempt.id, done, "complete", trial_state=done)

    spans = store.timeline(claim.sweep_id)

    assert [(s.trial, s.attempt, s.state, s.host, s.pid, s.device) for s in spans] == [
        (0, 1, TrialState.COMPLETE, "node-a", "40", "H100"),
        (1, 1, TrialState.RUNNING, "node-a", "41", "H100"),
    ]
    assert spans[0].finished_at is not None
    assert spans[0].finished_at >= spans[0].started_at
    assert spans[1].finished_at is None


def test_an_attempt_that_never_reported_has_no_place(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    store.start_attempt(claim, 0)

    [span] = store.timeline(claim.sweep_id)

    assert (span.host, span.pid, span.device) == ("", "", "")


def test_of_many_attempts_the_newest_are_listed(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1), trial(2)])
    for number in range(3):
        store.start_attempt(claim, number)

    assert [span.trial for span in store.timeline(claim.sweep_id, limit=2)] == [1, 2]
