"""Starting and ending many attempts at once does what one at a time does, in both databases."""

import pytest

from sweeps.errors import LeaseLost, SweepStateConflict, TrialNotFound
from sweeps.records import AttemptEnd, Claim, SweepState, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report, trial


@pytest.fixture
def claim(store: Store) -> Claim:
    """A claimed sweep of four trials that wait."""
    claim = claimed(store)
    store.add_trials(claim, [trial(point) for point in range(4)])
    return claim


def end(number: int, attempt_id: int, state: str = "complete", to: str | None = None) -> AttemptEnd:
    return AttemptEnd(number, attempt_id, TrialState(state), TrialState(to or state), state)


def test_trials_start_together(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0, 2])

    assert ids.keys() == {0, 2}
    assert len(set(ids.values())) == 2
    assert store.get_sweep(claim.sweep_id).trials["running"] == 2
    (attempt,) = store.trial(claim.sweep_id, 2).attempts
    assert (attempt.id, attempt.number, attempt.state) == (ids[2], 1, TrialState.RUNNING)


def test_starting_twice_is_starting_once(store: Store, claim: Claim) -> None:
    first = store.start_attempts(claim, [0])

    assert store.start_attempts(claim, [0, 1])[0] == first[0]
    assert len(store.trial(claim.sweep_id, 0).attempts) == 1


def test_a_start_whose_commit_was_in_doubt_is_the_one_that_is_there(
    store: Store, claim: Claim
) -> None:
    keys = {0: "a", 1: "b"}
    first = store.start_attempts(claim, [0, 1], keys)
    store.finish_attempts(claim, [end(0, first[0]), end(1, first[1], "failed", "waiting")])

    again = store.start_attempts(claim, [0, 1, 2], keys | {2: "c"})
    store.finish_attempts(claim, [end(0, again[0]), end(1, again[1], "failed", "waiting")])

    assert {0: again[0], 1: again[1]} == first
    states = [store.trial(claim.sweep_id, number).state.value for number in range(3)]
    assert states == ["complete", "waiting", "running"]
    assert len(store.trial(claim.sweep_id, 1).attempts) == 1
    other = store.start_attempts(claim, [1], {1: "d"})
    assert other[1] != first[1]


def test_trials_are_read_together_as_they_are_alone(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0, 1])
    store.finish_attempts(claim, [end(0, ids[0], "failed", "waiting")])
    store.start_attempts(claim, [0])

    found = store.trials_of(claim.sweep_id, [2, 0])

    assert found == [store.trial(claim.sweep_id, number) for number in (2, 0)]
    assert [len(one.attempts) for one in found] == [0, 2]
    with pytest.raises(TrialNotFound):
        store.trials_of(claim.sweep_id, [0, 99])


def test_attempts_at_trials_that_have_yet_to_end(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0, 1, 2])
    store.finish_attempts(claim, [end(0, ids[0]), end(1, ids[1], "failed", "waiting")])
    again = store.start_attempts(claim, [1])

    found = store.open_attempts(claim.sweep_id)

    assert {n: [a.id for a in attempts] for n, attempts in found.items()} == {
        1: [ids[1], again[1]],
        2: [ids[2]],
    }


def test_a_new_drivers_attempt_ends_the_old_ones(store: Store, claim: Claim) -> None:
    old = store.start_attempts(claim, [0])
    store.release(claim, SweepState.QUEUED, "")
    again = store.claim("runner-2")
    assert again is not None

    new = store.start_attempts(again, [0])

    first, second = store.trial(claim.sweep_id, 0).attempts
    assert (first.id, first.state) == (old[0], TrialState.CANCELLED)
    assert (second.id, second.number, second.state) == (new[0], 2, TrialState.RUNNING)


def test_a_finished_trial_cannot_start_again(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0])
    store.finish_attempts(claim, [end(0, ids[0])])

    with pytest.raises(SweepStateConflict, match=r"trial 0 .* is complete"):
        store.start_attempts(claim, [1, 0])
    assert store.trial(claim.sweep_id, 1).state == TrialState.WAITING


def test_ends_of_all_kinds_go_together(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0, 1, 2, 3])
    for number, error in enumerate([0.5, 0.25, 0.125, 0.75]):
        store.record(claim, number, ids[number], [report(10, error)])

    store.finish_attempts(
        claim,
        [
            end(0, ids[0]),
            end(1, ids[1]),
            end(2, ids[2], "diverged"),
            end(3, ids[3], "failed", to="waiting"),
        ],
    )

    sweep = store.get_sweep(claim.sweep_id)
    states = [store.trial(claim.sweep_id, number).state.value for number in range(4)]
    assert states == ["complete", "complete", "diverged", "waiting"]
    assert {state: n for state, n in sweep.trials.items() if n} == {
        "complete": 2,
        "diverged": 1,
        "waiting": 1,
    }
    assert sweep.best is not None
    assert (sweep.best["point"], sweep.best["mean"]) == (1, 0.25)
    assert store.trial(claim.sweep_id, 3).attempts[0].state == TrialState.FAILED


def test_an_end_that_was_written_stays_as_it_was(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0])
    store.finish_attempts(claim, [end(0, ids[0])])
    before = store.trial(claim.sweep_id, 0)

    store.finish_attempts(claim, [end(0, ids[0], "failed")])

    assert store.trial(claim.sweep_id, 0) == before


def test_ends_are_announced_with_the_last_objective(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0])
    store.record(claim, 0, ids[0], [report(10, 0.5)])

    store.finish_attempts(claim, [end(0, ids[0])])

    last = store.events(claim.sweep_id, 0, 100)[-1]
    assert last.data["state"] == "complete"
    assert last.data["objective"] == 0.5


def test_nothing_to_do_is_no_transaction(store: Store, claim: Claim) -> None:
    store.release(claim, SweepState.CANCELLED, "")

    assert store.start_attempts(claim, []) == {}
    store.finish_attempts(claim, [])


def test_an_old_token_may_not_write(store: Store, claim: Claim) -> None:
    ids = store.start_attempts(claim, [0])
    store.release(claim, SweepState.QUEUED, "")

    with pytest.raises(LeaseLost):
        store.start_attempts(claim, [1])
    with pytest.raises(LeaseLost):
        store.finish_attempts(claim, [end(0, ids[0])])


def test_writes_made_together_happen_together_or_not_at_all(store: Store, claim: Claim) -> None:
    def start_and_break() -> None:
        with store.together():
            ids = store.start_attempts(claim, [0])
            store.record(claim, 0, ids[0], [report(10, 0.5)])
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        start_and_break()

    assert store.trial(claim.sweep_id, 0).state == TrialState.WAITING
    assert store.trial(claim.sweep_id, 0).attempts == ()
