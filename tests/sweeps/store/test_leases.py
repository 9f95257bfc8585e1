"""The store's contract on claims: one driver at a time, and old ones are refused."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from sweeps.errors import LeaseLost
from sweeps.records import Claim, Request, SweepState, TrialState, losses
from sweeps.store.database.tables import attempts, runners
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, SPEC, claimed, new_sweep, report, run, trial


def lapse(store: Store, claim: Claim) -> None:
    """Let the lease run out."""
    store.renew(claim, lease_seconds=-1)


def test_sweeps_are_claimed_in_the_order_they_were_queued(store: Store) -> None:
    ids = [new_sweep(store).id for _ in range(3)]

    claims = [store.claim("runner", LEASE) for _ in range(4)]

    assert [claim and claim.sweep_id for claim in claims] == [*ids, None]
    assert store.get_sweep(ids[0]).started_at is not None


def test_a_claim_may_be_limited_to_a_kind(store: Store) -> None:
    new_sweep(store)

    assert store.claim("runner", kinds=["match"]) is None
    assert store.claim("runner", kinds=["sweep"]) is not None


def test_many_runners_never_claim_the_same_sweep(store: Store) -> None:
    ids = {new_sweep(store).id for _ in range(10)}

    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda i: store.claim(f"runner-{i}", LEASE), range(16)))

    taken = [claim.sweep_id for claim in claims if claim]
    assert len(taken) == len(set(taken))
    # On PostgreSQL a claim passes by a sweep that another is just taking.
    while claim := store.claim("last", LEASE):
        taken.append(claim.sweep_id)
    assert sorted(taken) == sorted(ids)


def test_a_lapsed_lease_hands_the_sweep_on_with_a_larger_token(store: Store) -> None:
    new_sweep(store)
    old = store.claim("one", LEASE)
    assert old is not None
    store.add_trials(old, [trial(0), trial(1)])
    attempt = store.start_attempt(old, 0)
    assert store.claim("two") is None
    lapse(store, old)

    new = store.claim("two", LEASE)

    assert new is not None
    assert (new.sweep_id, new.owner) == (old.sweep_id, "two")
    assert new.token > old.token
    lost = store.trial(old.sweep_id, 0)
    assert lost.state == TrialState.WAITING
    assert [(a.id, a.state) for a in lost.attempts] == [(attempt.id, TrialState.FAILED)]
    assert lost.attempts[0].exit_cause.startswith("lost")
    assert store.start_attempt(new, 0).number == 2


@pytest.mark.parametrize("has_reported", [True, False])
def test_attempts_whose_runner_stopped_say_so_and_until_when_their_driver_was_heard(
    store: Store, has_reported: bool
) -> None:
    """A killed runner leaves its driver at work until another runner takes the sweep."""
    new_sweep(store)
    old = store.claim("box-4711", LEASE)
    assert old is not None
    store.add_trials(old, [trial(0)])
    attempt = store.start_attempt(old, 0)
    lapse(store, old)
    if has_reported:  # also after the lease has run out: nobody has taken it yet
        store.record(old, 0, attempt.id, [report(10, 0.5)])
    assert store.claim("two", LEASE) is not None

    (lost,) = store.trial(old.sweep_id, 0).attempts
    heard = r"its driver reported until \d\d:\d\d:\d\d UTC"
    words = heard if has_reported else "no report of its driver is known"
    cause = rf"lost: the runner stopped: the lease of box-4711 ran out at [\d:]{{8}} UTC, {words}"
    assert re.fullmatch(cause, lost.exit_cause)
    assert losses([(lost.state, lost.exit_cause)]) == 0
    assert lost.finished_at is not None
    if has_reported:
        said = lost.exit_cause.split("until ")[1].split()[0]
        assert f"{lost.finished_at:%H:%M:%S}" == said


def end_by_claim(store: Store, old: Claim) -> None:
    assert store.claim("two") is not None


def end_by_cancel(store: Store, old: Claim) -> None:
    store.request(old.sweep_id, "cancel")


@pytest.mark.parametrize("end", [end_by_claim, end_by_cancel])
def test_the_hours_that_a_machine_was_off_are_not_counted(
    store: Store, end: Callable[[Store, Claim], None]
) -> None:
    old = claimed(store)
    store.add_trials(old, [trial(0), trial(1)])
    store.start_attempt(old, 0)
    with store._engine.begin() as conn:
        two_hours = 2 * 3600 * 1_000_000
        conn.execute(sa.update(attempts).values(started_at=attempts.c.started_at - two_hours))
    store.start_attempt(old, 1)
    store.renew(old, lease_seconds=-3600)

    end(store, old)

    spans = [
        (attempt.finished_at - attempt.started_at).total_seconds()
        for number in (0, 1)
        for attempt in store.trial(old.sweep_id, number).attempts
        if attempt.finished_at is not None
    ]
    assert spans == pytest.approx([3600, 0], abs=60)


def test_a_sweep_whose_driver_lives_is_not_taken_although_its_lease_ran_out(store: Store) -> None:
    claim = claimed(store)
    lapse(store, claim)
    other = new_sweep(store)

    assert store.claim("one", driven=[other.id, claim.sweep_id]) is None
    taken = store.claim("one", driven=[claim.sweep_id])

    assert taken is not None
    assert taken.sweep_id == other.id


def test_a_renewed_lease_does_not_lapse(store: Store) -> None:
    new_sweep(store)
    claim = store.claim("one", LEASE)
    assert claim is not None

    lapse(store, claim)
    store.renew(claim, LEASE)

    assert store.claim("two") is None


WRITES: dict[str, Callable[[Store, Claim], Any]] = {
    "renew": lambda store, claim: store.renew(claim),
    "requested": lambda store, claim: store.requested(claim),
    "add_trials": lambda store, claim: store.add_trials(claim, [trial(5)]),
    "start_attempt": lambda store, claim: store.start_attempt(claim, 1),
    "record": lambda store, claim: store.record(claim, 0, 1, [report(50)]),
    "finish_attempt": lambda store, claim: store.finish_attempt(
        claim, 0, 1, TrialState.COMPLETE, "complete", trial_state=TrialState.COMPLETE
    ),
    "finish_waiting": lambda store, claim: store.finish_waiting(
        claim, 1, TrialState.PRUNED, "pruned"
    ),
    "cancel_waiting": lambda store, claim: store.cancel_waiting(claim, "budget spent"),
    "fail_waiting": lambda store, claim: store.fail_waiting(claim, "no data"),
    "set_result": lambda store, claim: store.set_result(claim, {"a": 1}),
    "set_reason": lambda store, claim: store.set_reason(claim, "waiting for resources"),
    "release": lambda store, claim: store.release(claim, SweepState.FAILED, "bad"),
}


@pytest.mark.parametrize("verb", WRITES)
def test_every_write_of_a_driver_that_lost_its_lease_is_refused(store: Store, verb: str) -> None:
    new_sweep(store)
    old = store.claim("one", LEASE)
    assert old is not None
    store.add_trials(old, [trial(0), trial(1)])
    store.start_attempt(old, 0)
    lapse(store, old)
    new = store.claim("two", LEASE)
    assert new is not None
    before = (store.get_sweep(old.sweep_id), store.trials(old.sweep_id), store.events(None))

    with pytest.raises(LeaseLost):
        WRITES[verb](store, old)

    assert before == (store.get_sweep(old.sweep_id), store.trials(old.sweep_id), store.events(None))


@pytest.mark.parametrize(
    ("wish", "state"), [("cancel", SweepState.CANCELLED), ("pause", SweepState.PAUSED)]
)
def test_a_wish_is_carried_out_although_the_driver_died(
    store: Store, wish: Any, state: SweepState
) -> None:
    new_sweep(store)
    claim = store.claim("one", LEASE)
    assert claim is not None
    store.add_trials(claim, [trial(0)])
    store.start_attempt(claim, 0)
    assert store.request(claim.sweep_id, wish).state == SweepState.RUNNING
    lapse(store, claim)

    assert store.claim("two") is None

    ended = store.get_sweep(claim.sweep_id)
    assert (ended.state, ended.requested) == (state, "none")
    assert ended.trials["running"] == 0
    with pytest.raises(LeaseLost):
        store.start_attempt(claim, 0)


def test_a_sweep_whose_driver_is_dead_is_cancelled_at_once(store: Store) -> None:
    new_sweep(store)
    claim = store.claim("one", LEASE)
    assert claim is not None
    lapse(store, claim)

    assert store.request(claim.sweep_id, "cancel").state == SweepState.CANCELLED


def test_a_release_may_be_repeated(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    run(store, claim, 0, 0.5)

    store.release(claim, SweepState.COMPLETE, "all done")
    after = store.events(claim.sweep_id)
    store.release(claim, SweepState.COMPLETE, "all done")

    assert store.get_sweep(claim.sweep_id).reason == "all done"
    assert store.events(claim.sweep_id) == after


def test_a_sweep_given_back_goes_to_the_end_of_the_queue(store: Store) -> None:
    first = claimed(store)
    second = new_sweep(store)

    store.release(first, SweepState.QUEUED, "the runner stops")

    order = [claim.sweep_id for _ in range(2) if (claim := store.claim("other", LEASE))]
    assert order == [second.id, first.sweep_id]


def test_runners_leave_signs_of_life(store: Store) -> None:
    store.report_runner("a", {"nodes": []})
    store.report_runner("a", {"nodes": [{"cpus": 2.0, "gpus": 0.0}]})

    assert [(r.owner, r.info["nodes"]) for r in store.runners()] == [
        ("a", [{"cpus": 2.0, "gpus": 0.0}])
    ]
    assert store.runners(within_seconds=-1) == []


def test_a_sweep_is_not_ended_over_what_people_asked_in_the_meantime(store: Store) -> None:
    claim = claimed(store)
    seen = store.get_sweep(claim.sweep_id)
    store.extend(claim.sweep_id, SPEC | {"num_points": 8}, num_trials=8)

    assert not store.release(claim, SweepState.COMPLETE, "all done", seen=seen)
    assert store.get_sweep(claim.sweep_id).state == SweepState.RUNNING
    seen = store.get_sweep(claim.sweep_id)
    store.request(claim.sweep_id, "cancel")
    assert not store.release(claim, SweepState.QUEUED, "extended", seen=seen)
    seen = store.get_sweep(claim.sweep_id)
    assert store.release(claim, SweepState.CANCELLED, "cancelled", seen=seen)
    assert store.get_sweep(claim.sweep_id).state == SweepState.CANCELLED


def test_trials_that_the_old_budget_cut_off_wait_for_the_driver_of_the_larger_one(
    store: Store,
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.5)
    run(store, claim, 1, 0.5, TrialState.CANCELLED)
    store.extend(claim.sweep_id, SPEC | {"num_points": 8}, num_trials=8)
    store.release(claim, SweepState.QUEUED, "extended")

    assert store.claim("runner-2") is not None

    states = [store.trial(claim.sweep_id, number).state for number in range(2)]
    assert states == [TrialState.COMPLETE, TrialState.WAITING]
    assert store.get_sweep(claim.sweep_id).trials["cancelled"] == 0


def test_a_clock_that_was_set_back_keeps_no_sweep_from_its_next_driver(store: Store) -> None:
    claim = claimed(store)
    store.renew(claim, lease_seconds=12 * 3600)

    again = store.claim("runner-2")

    assert again is not None
    assert again.token == claim.token + 1
    store.renew(again, lease_seconds=12 * 3600)
    assert store.request(claim.sweep_id, "cancel").state == SweepState.CANCELLED


def test_runners_that_are_gone_are_forgotten_after_a_day(store: Store) -> None:
    store.report_runner("old", {})
    with store._writing() as write:
        write.conn.execute(sa.update(runners).values(at=runners.c.at - 2 * 86_400 * 10**6))

    store.report_runner("new", {})

    assert [runner.owner for runner in store.runners(10 * 86_400)] == ["new"]


@pytest.mark.parametrize("state", [SweepState.QUEUED, SweepState.FAILED])
@pytest.mark.parametrize(
    ("wish", "becomes"), [("cancel", SweepState.CANCELLED), ("pause", SweepState.PAUSED)]
)
def test_a_wish_outlives_the_driver_that_was_to_carry_it_out(
    store: Store, state: SweepState, wish: Request, becomes: SweepState
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    store.start_attempt(claim, 0)
    store.request(claim.sweep_id, wish)

    store.release(claim, state, "its driver ended; another takes over")

    assert store.get_sweep(claim.sweep_id).state == becomes
    assert store.claim("runner-2") is None
