"""Leases of agents, their reports and endings, in both databases."""

from typing import Any

import pytest
import sqlalchemy as sa

from sweeps.errors import InvalidReport, LeaseEnded, NotExternal, SweepNotFound, TrialNotFound
from sweeps.records import LOST, AttemptEnd, Claim, SweepState, TrialState
from sweeps.store.commands.agent_requests import (
    AgentReport,
    AgentReports,
    Ask,
    Handout,
    Heard,
    Leased,
    Tell,
    Told,
)
from sweeps.store.database.tables import attempts
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, SPEC, claimed, new_sweep, trial

EXTERNAL = SPEC | {"training": "external"}


@pytest.fixture
def claim(store: Store) -> Claim:
    """A claimed sweep of agents with four trials that wait."""
    new_sweep(store, spec=EXTERNAL)
    claim = store.claim("runner-1", LEASE, external=True)
    assert claim is not None
    store.add_trials(claim, [trial(point) for point in range(4)])
    return claim


def ask(store: Store, claim: Claim, count: int = 1, **options: Any) -> Handout:
    (handout,) = store.serve_agents([Ask(claim.sweep_id, "a", count, **options)])
    assert isinstance(handout, Handout)
    return handout


def leased(store: Store, claim: Claim) -> Leased:
    (one,) = ask(store, claim).trials
    return one


def report(lease: Leased, *steps: int, **metrics: float | None) -> AgentReports:
    values: dict[str, float | None] = dict(metrics) or {"validation_error": 0.5}
    reports = tuple(AgentReport(step, values, 100) for step in steps)
    return AgentReports(lease.trial.sweep_id, lease.trial.number, lease.lease, reports)


def tell(lease: Leased, state: str = "complete", **options: Any) -> Tell:
    number = lease.trial.number
    return Tell(lease.trial.sweep_id, number, lease.lease, TrialState(state), **options)


def one(store: Store, request: Any) -> Any:
    """The answer to one request; raises its refusal."""
    (answer,) = store.serve_agents([request])
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_each_question_gets_trials_that_nobody_has(store: Store, claim: Claim) -> None:
    first, second = ask(store, claim, 1), ask(store, claim, 9)

    numbers = [[one.trial.number for one in handout.trials] for handout in (first, second)]
    assert numbers == [[0], [1, 2, 3]]
    assert first.trials[0].trial.state == TrialState.RUNNING
    assert len({one.lease for one in first.trials + second.trials}) == 4
    none = ask(store, claim)
    assert (none.trials, none.reason, none.is_over) == ([], "no trial waits, 4 run", False)
    assert store.get_sweep(claim.sweep_id).trials["running"] == 4
    (attempt,) = store.trial(claim.sweep_id, 0).attempts
    assert attempt.provenance == {"agent": "a"}
    assert [span.host for span in store.timeline(claim.sweep_id)] == ["a"] * 4


def test_no_more_trials_run_than_concurrency_allows(store: Store) -> None:
    new_sweep(store, spec=EXTERNAL | {"concurrency": 2})
    claim = store.claim("runner-1", LEASE, external=True)
    assert claim is not None
    store.add_trials(claim, [trial(point) for point in range(4)])

    assert len(ask(store, claim, 9).trials) == 2
    assert ask(store, claim).reason == "2 trials run, as many as concurrency allows"


def test_a_question_with_the_same_key_has_the_same_answer(store: Store, claim: Claim) -> None:
    first = ask(store, claim, 2, key="k")

    assert ask(store, claim, 2, key="k") == first
    assert ask(store, claim, 1, key="other").trials[0].trial.number == 2


def test_reports_are_recorded_once_however_often_they_arrive(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)

    first = one(store, report(lease, 1, 2))
    again = one(store, report(lease, 1, 2))
    later = one(store, report(lease, 2, 3))

    assert first == again == later == Heard(False, "", 60.0)
    curve = store.metrics(claim.sweep_id, 0)["validation_error"]
    assert curve == [(1, 0.5), (2, 0.5), (3, 0.5)]
    found = store.trial(claim.sweep_id, 0)
    assert (found.step, found.num_steps, found.objective) == (3, 100, 0.5)
    assert store.events(claim.sweep_id, limit=1000)[-1].kind == "progress"


def test_many_requests_are_one_transaction_and_one_refusal_costs_no_other(
    store: Store, claim: Claim
) -> None:
    first, second = ask(store, claim, 2).trials

    answers = store.serve_agents(
        [
            Ask(claim.sweep_id, "b"),
            report(first, 5),
            report(first, 4),
            report(second, 1, validation_error=0.25),
            tell(second),
            tell(second),
            Ask("nope", "b"),
        ]
    )

    kinds = [type(answer) for answer in answers]
    assert kinds == [Handout, Heard, InvalidReport, Heard, Told, Told, SweepNotFound]
    assert answers[4] == answers[5] == Told(TrialState.COMPLETE, "complete")
    assert store.trial(claim.sweep_id, 1).objective == 0.25
    sweep = store.get_sweep(claim.sweep_id)
    assert (sweep.trials["complete"], sweep.trials["running"]) == (1, 2)
    assert sweep.best is not None
    assert sweep.best["mean"] == 0.25


def test_telling_again_changes_nothing(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)
    first = one(store, tell(lease, metrics={"validation_error": 0.2}))

    assert one(store, tell(lease, metrics={"validation_error": 0.2})) == first
    assert one(store, tell(lease, "failed", reason="no")) == first
    assert one(store, report(lease, 1)) == Heard(True, "complete", 0.0)
    found = store.trial(claim.sweep_id, 0)
    assert (found.state, found.objective, found.step) == (TrialState.COMPLETE, 0.2, 0)
    assert found.finished_at is not None
    assert store.get_sweep(claim.sweep_id).trial_seconds >= 0


@pytest.mark.parametrize(
    ("told", "steps"), [({"test_error": 0.1}, [3]), ({"loss": 0.1}, [2, 4]), ({"loss": 0.5}, [2])]
)
def test_where_the_metrics_of_an_ending_stand(
    store: Store, claim: Claim, told: dict[str, float], steps: list[int]
) -> None:
    lease = leased(store, claim)
    one(store, report(lease, 2, validation_error=0.3, loss=0.5))
    one(store, report(lease, 3, validation_error=0.3))

    one(store, tell(lease, metrics=told))

    (name,) = told
    assert [step for step, _ in store.metrics(claim.sweep_id, 0)[name]] == steps


def test_an_objective_that_is_not_finite_is_the_end(store: Store, claim: Claim) -> None:
    first, second = ask(store, claim, 2).trials

    assert one(store, report(first, 7, validation_error=None)) == Heard(
        True, "diverged at step 7", 0.0
    )
    assert one(store, report(second, 7, validation_error=0.1, loss=None)).stop is False
    trials = [store.trial(claim.sweep_id, number) for number in (0, 1)]
    assert [one.state.value for one in trials] == ["diverged", "running"]
    assert trials[0].diverged_at_step == 7
    assert trials[1].attempts[0].provenance == {"agent": "a", "non_finite": {"loss": 7}}


def test_what_is_refused(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)
    one(store, report(lease, 40))
    ours = lease.trial.sweep_id

    with pytest.raises(InvalidReport, match=r"^reports\.0\.step must not go backwards: "):
        one(store, report(lease, 30))
    with pytest.raises(InvalidReport, match=r"^reports\.1\.step .*is at step 50, got 45$"):
        one(store, report(lease, 50, 45))
    many: dict[str, float | None] = {f"m{i}": 0.0 for i in range(1000)}
    with pytest.raises(InvalidReport, match=r"at most 1,000 metric names, got 1,001$"):
        one(store, report(lease, 41, **many))
    with pytest.raises(TrialNotFound):
        one(store, AgentReports(ours, 99, lease.lease))
    with pytest.raises(LeaseEnded, match="lease 'nope' is none of trial 0"):
        one(store, AgentReports(ours, 0, "nope"))
    with pytest.raises(LeaseEnded, match="is none of trial 1"):
        one(store, AgentReports(ours, 1, lease.lease))
    fresh = leased(store, claim)
    with pytest.raises(InvalidReport, match="metrics must hold the objective 'validation_error'"):
        one(store, tell(fresh, metrics={"loss": 1.0}))
    assert store.metrics(ours, 0) == {"validation_error": [(40, 0.5)]}
    assert store.metrics(ours, 1) == {}


def test_a_sweep_that_the_service_trains_has_no_trials_for_agents(store: Store) -> None:
    claim = claimed(store)

    with pytest.raises(NotExternal, match="runs its own trials"):
        one(store, Ask(claim.sweep_id, "a"))


def test_leases_lapse_when_nothing_is_heard(store: Store, claim: Claim) -> None:
    silent, alive = ask(store, claim, 2, lease_seconds=0.0).trials
    with store._writing() as write:
        write.conn.execute(
            sa.update(attempts).where(attempts.c.key == alive.lease).values(lease_seconds=LEASE)
        )
    one(store, AgentReports(claim.sweep_id, alive.trial.number, alive.lease))

    (lapsed,) = store.lapsed_leases([claim.sweep_id])

    assert (lapsed.sweep_id, lapsed.number, lapsed.agent) == (claim.sweep_id, 0, "a")
    assert 0 <= lapsed.seconds < LEASE
    end = AttemptEnd(0, lapsed.attempt_id, TrialState.FAILED, TrialState.WAITING, f"{LOST}silent")
    store.finish_attempts(claim, [end])
    with pytest.raises(LeaseEnded, match=r"attempt 1 at trial 0 .* has ended \(lost: silent\)"):
        one(store, report(silent, 1))
    assert leased(store, claim).trial.number == 0
    assert [one.number for one in store.trial(claim.sweep_id, 0).attempts] == [1, 2]


def test_a_service_that_starts_renews_every_lease(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)
    with store._writing() as write:
        write.conn.execute(sa.update(attempts).values(lease_until=0))
    assert len(store.lapsed_leases([claim.sweep_id])) == 1

    assert store.renew_leases() == 1

    assert store.lapsed_leases([claim.sweep_id]) == []
    assert one(store, report(lease, 1)).stop is False


def test_a_driver_that_goes_leaves_agents_their_trials(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)
    store.release(claim, SweepState.QUEUED, "its runner stopped")

    assert one(store, report(lease, 1)).stop is False
    assert leased(store, claim).trial.number == 1
    assert store.claim("runner-2", LEASE) is None
    again = store.claim("runner-2", LEASE, external=True)
    assert again is not None
    assert store.trial(claim.sweep_id, 0).state == TrialState.RUNNING
    assert store.demands() == []
    assert store.has_external()


def test_pause_stops_trials_and_an_agent_that_was_through_may_still_say_so(
    store: Store, claim: Claim
) -> None:
    first, second = ask(store, claim, 2).trials
    store.release(claim, SweepState.PAUSED, "paused")
    with store._writing() as write:
        write.conn.execute(
            sa.update(attempts).where(attempts.c.state == "cancelled").values(exit_cause="paused")
        )

    assert ask(store, claim).reason == "the sweep is paused"
    assert one(store, report(first, 1)) == Heard(True, "paused", 0.0)
    told = one(store, tell(first, metrics={"validation_error": 0.1}))
    assert told == Told(TrialState.COMPLETE, "complete")
    states = [store.trial(claim.sweep_id, n).state.value for n in (0, 1)]
    assert states == ["complete", "waiting"]
    # Somebody else has it since.
    store.resume(claim.sweep_id)
    other = leased(store, claim)
    assert other.trial.number == second.trial.number
    late = one(store, tell(second, metrics={"validation_error": 0.1}))
    assert late == Told(TrialState.RUNNING, "paused")


def test_a_finished_sweep_says_that_it_is_over(store: Store, claim: Claim) -> None:
    lease = leased(store, claim)
    store.release(claim, SweepState.CANCELLED, "cancelled")

    answer = ask(store, claim)
    assert (answer.reason, answer.is_over) == ("the sweep is cancelled: cancelled", True)
    assert one(store, tell(lease, metrics={"validation_error": 1.0})).state == TrialState.CANCELLED


def test_what_was_touched_since(store: Store, claim: Claim) -> None:
    after, found = store.touched([claim.sweep_id], 0)
    assert found == {claim.sweep_id: {0, 1, 2, 3}}

    lease = leased(store, claim)
    one(store, report(lease, 1))

    later, found = store.touched([claim.sweep_id], after)
    assert found == {claim.sweep_id: {0}}
    assert store.touched([claim.sweep_id], later) == (later, {})
