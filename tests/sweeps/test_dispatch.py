"""A sweep from the store to the workers and back, with hand-made workers instead of Ray's."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweeps.dispatch import Dispatcher
from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.limits import Limits
from sweeps.plans import plan
from sweeps.records import Claim, Sweep, SweepState, Trial, TrialState
from sweeps.runs import Places, Run
from sweeps.store import Store
from sweeps.writer import StoreWriter
from tests.sweeps.sweep_cases import sweep_spec
from worker.stop_file import StopFile

Result = dict[str, Any]


def result(step: int, error: float | None, status: str = "running", **fields: Any) -> Result:
    """What a trainable hands to Tune."""
    metrics = {} if error is None else {"validation_error": error}
    report = {"step": step, "num_steps": 100, "status": status, "metrics": metrics}
    return {"report": report | fields, "objective": 0.0}


class Driving:
    """A claimed sweep with a dispatcher, and the moves of a worker."""

    def __init__(self, store: Store, home: Path, sweep: Sweep) -> None:
        self.store = store
        claim = store.claim("runner-1", 60)
        assert claim is not None
        assert claim.sweep_id == sweep.id
        self.claim: Claim = claim
        self.failures: list[Exception] = []
        self.writer = StoreWriter(store, claim, self.failures.append)
        how = plan(store, sweep)
        self.places = Places(home, sweep.id)
        self.dispatcher = Dispatcher(
            store,
            claim,
            how.proposer,
            self.writer,
            places=self.places,
            scheduler=how.scheduler,
            limits=Limits(how.budget, gpus=0, started_at=None, per_trial=how.limits),
            objective=how.objective,
            lookahead=how.lookahead,
        )
        self.dispatcher.replay()

    def start(self) -> Run:
        run = self.dispatcher.next()
        assert run is not None
        self.dispatcher.started(run)
        return run

    def finish(self, run: Run, error: float = 0.5) -> None:
        self.dispatcher.report(run, result(100, error, "complete"))
        self.dispatcher.ended(run)

    def trial(self, number: int) -> Trial:
        """The trial once all that is known of it is written."""
        self.dispatcher.take_ended(5.0)
        return self.store.trial(self.claim.sweep_id, number)

    def all_trials(self) -> list[Trial]:
        self.dispatcher.take_ended(5.0)
        return list(self.store.all_trials(self.claim.sweep_id))

    def leave(self, state: SweepState = SweepState.QUEUED) -> None:
        self.writer.close(5.0)
        self.store.release(self.claim, state, "")


Drive = Callable[..., Driving]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A migrated, empty store in SQLite."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def drive(store: Store, tmp_path: Path) -> Drive:
    """Queues a sweep of a spec and drives it; without fields, drives the one that is queued."""

    def start(**fields: Any) -> Driving:
        if fields or not store.list_sweeps().items:
            spec = sweep_spec(**fields)
            store.create_sweep(
                "sweep", spec.model_dump(mode="json"), name="s", num_trials=spec.num_trials()
            )
        (sweep,) = store.list_sweeps().items
        return Driving(store, tmp_path, sweep)

    return start


def test_every_trial_runs_once_and_then_it_is_done(drive: Drive) -> None:
    driving = drive(num_points=3, replicates=2)
    for _ in range(6):
        driving.finish(driving.start())

    assert driving.dispatcher.next() is None
    assert driving.dispatcher.is_done
    assert driving.dispatcher.finished == "all done"
    trials = driving.all_trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    assert len({(trial.config_key, trial.seed) for trial in trials}) == 6


def test_a_killed_driver_leaves_exactly_the_missing_trials_to_the_next(drive: Drive) -> None:
    first = drive(num_points=4)
    first.finish(first.start(), 0.25)
    interrupted = first.start()
    first.dispatcher.report(interrupted, result(10, 0.5))
    first.trial(0)
    first.leave()

    second = drive()
    order = []
    while (run := second.dispatcher.next()) is not None:
        second.dispatcher.started(run)
        order.append(run.trial.number)
        second.finish(run)

    assert order[0] == interrupted.trial.number
    assert sorted(order) == [1, 2, 3]
    assert len(second.all_trials()) == 4
    assert [a.state for a in second.trial(1).attempts] == [TrialState.CANCELLED, "complete"]


def test_a_malformed_report_fails_that_trial_alone(drive: Drive) -> None:
    driving = drive(num_points=2)
    bad, good = driving.start(), driving.start()

    stops = driving.dispatcher.report(bad, {"report": {"step": "x"}})
    driving.dispatcher.ended(bad)
    driving.finish(good)

    assert stops
    assert driving.trial(0).state == TrialState.FAILED
    assert driving.trial(0).exit_cause.startswith("malformed report: report.step")
    assert driving.trial(1).state == TrialState.COMPLETE


@pytest.mark.parametrize(
    ("reported", "cause"),
    [
        (result(20, 0.5, "diverged", diverged_at_step=17), "diverged at step 17"),
        (result(20, float("nan")), "diverged at step 20"),
        (result(20, float("inf")), "diverged at step 20"),
    ],
)
def test_a_trial_that_diverges_stops_at_once_and_is_never_best(
    drive: Drive, reported: Result, cause: str
) -> None:
    driving = drive(num_points=2)
    lost = driving.start()
    stops = driving.dispatcher.report(lost, reported)
    driving.dispatcher.ended(lost)
    driving.finish(driving.start(), 0.75)

    assert stops
    assert driving.trial(0).state == TrialState.DIVERGED
    assert driving.trial(0).exit_cause == cause
    best = driving.store.get_sweep(driving.claim.sweep_id).best
    assert best is not None
    assert best["point"] == 1


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (None, "ended without a report"),
        (result(50, 0.5), "ended at step 50 of 100 without a final report"),
        (result(100, None, "complete"), "the final report has no validation_error"),
    ],
)
def test_a_trial_that_ends_without_a_result_has_failed(
    drive: Drive, last: Result | None, cause: str
) -> None:
    driving = drive(num_points=1)
    run = driving.start()
    if last is not None:
        driving.dispatcher.report(run, last)
    driving.dispatcher.ended(run)

    assert driving.trial(0).state == TrialState.FAILED
    assert driving.trial(0).exit_cause == cause


def test_an_error_fails_its_trial_with_its_last_line(drive: Drive) -> None:
    driving = drive(num_points=2)

    driving.dispatcher.ended(driving.start(), ValueError("lr must be >= 0"))
    driving.dispatcher.ended(driving.start(), RuntimeError("CUDA out of memory. Tried …"))

    assert driving.trial(0).exit_cause == "ValueError: lr must be >= 0"
    assert driving.trial(1).exit_cause.startswith("out of memory: RuntimeError: CUDA out of mem")


def test_a_trial_whose_worker_dies_is_tried_three_times(drive: Drive) -> None:
    driving = drive(num_points=1)
    for _ in range(3):
        driving.dispatcher.ended(driving.start(), ConnectionError("the node died"), lost=True)
        driving.trial(0)

    assert driving.dispatcher.next() is None
    assert driving.trial(0).state == TrialState.FAILED
    assert driving.trial(0).exit_cause == ("lost: ConnectionError: the node died (attempt 3 of 3)")
    assert len(driving.trial(0).attempts) == 3


def test_workers_lost_under_earlier_drivers_count_too(drive: Drive) -> None:
    for fields in ({"num_points": 1}, {}):
        driving = drive(**fields)
        driving.dispatcher.ended(driving.start(), OSError("died"), lost=True)
        driving.trial(0)
        driving.leave()
    # A driver that dies without a word is nothing against its trial.
    died = drive()
    died.start()
    died.writer.close(5.0)
    died.store.renew(died.claim, lease_seconds=-1)

    last = drive()
    last.dispatcher.ended(last.start(), OSError("died"), lost=True)

    assert last.trial(0).state == TrialState.FAILED
    assert last.trial(0).exit_cause == "lost: OSError: died (attempt 3 of 3)"
    assert len(last.trial(0).attempts) == 4


def test_a_retried_trial_has_all_its_attempts_again(drive: Drive, store: Store) -> None:
    driving = drive(num_points=1)
    for _ in range(3):
        driving.dispatcher.ended(driving.start(), OSError("died"), lost=True)
        driving.dispatcher.take_ended(5.0)
    assert driving.trial(0).state == TrialState.FAILED
    driving.leave(SweepState.FAILED)
    store.retry(driving.claim.sweep_id)

    again = drive()
    again.dispatcher.ended(again.start(), OSError("died"), lost=True)

    assert again.trial(0).state == TrialState.WAITING


def test_a_transaction_that_was_committed_without_a_word_is_not_repeated(
    drive: Drive, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = drive(num_points=2)
    committed = store.together
    answers = ["lost", "lost"]

    @contextmanager
    def together() -> Iterator[None]:
        with committed():
            yield
        if answers:
            raise StoreUnavailable(answers.pop())

    monkeypatch.setattr(store, "together", together)
    lost, good = driving.start(), driving.start()
    driving.dispatcher.ended(lost, OSError("died"), lost=True)
    driving.finish(good)

    assert driving.trial(0).state == TrialState.WAITING
    assert driving.trial(1).state == TrialState.COMPLETE
    assert [len(driving.trial(n).attempts) for n in range(2)] == [1, 1]
    assert driving.failures == []
    driving.finish(driving.start())
    assert driving.trial(0).state == TrialState.COMPLETE


def test_a_lost_trial_that_succeeds_when_tried_again_is_complete(drive: Drive) -> None:
    driving = drive(num_points=1)
    driving.dispatcher.ended(driving.start(), ConnectionError("gone"), lost=True)

    driving.finish(driving.start(), 0.25)

    assert driving.trial(0).state == TrialState.COMPLETE
    assert driving.trial(0).objective == 0.25
    assert [a.state for a in driving.trial(0).attempts] == ["failed", "complete"]


def test_a_pause_lets_running_trials_write_their_checkpoints_and_wait(drive: Drive) -> None:
    driving = drive(num_points=3)
    run = driving.start()

    driving.dispatcher.stop("pause")
    is_cut_off = driving.dispatcher.report(run, result(10, 0.5))
    is_told = StopFile(driving.places.checkpoints(run.trial.number))()
    driving.dispatcher.ended(run)

    assert not is_cut_off
    assert is_told
    assert driving.dispatcher.next() is None
    assert driving.dispatcher.is_done
    assert driving.trial(0).state == TrialState.WAITING
    assert driving.trial(0).attempts[0].exit_cause == "paused"


def test_a_cancel_cuts_running_trials_off(drive: Drive) -> None:
    driving = drive(num_points=3)
    run = driving.start()

    driving.dispatcher.stop("cancel")

    assert driving.dispatcher.report(run, result(10, 0.5))
    driving.dispatcher.ended(run)
    assert driving.trial(0).state == TrialState.CANCELLED
    assert driving.dispatcher.next() is None


def test_trials_that_have_no_worker_are_not_waited_for(drive: Drive) -> None:
    driving = drive(num_points=3)
    waiting = driving.dispatcher.next()
    assert waiting is not None
    assert not driving.dispatcher.is_grace_over

    driving.dispatcher.stop("cancel")

    assert driving.dispatcher.is_grace_over
    driving.dispatcher.started(waiting)
    assert not driving.dispatcher.is_grace_over


def test_a_cancel_overrides_a_pause_and_not_the_other_way_round(drive: Drive) -> None:
    driving = drive(num_points=1)
    for why in ("leave", "pause", "cancel", "pause", "leave"):
        driving.dispatcher.stop(why)  # type: ignore[arg-type]

    assert driving.dispatcher.stopping == "cancel"


def test_a_trial_that_starts_while_the_sweep_stops_is_told(drive: Drive) -> None:
    driving = drive(num_points=1)
    run = driving.dispatcher.next()
    assert run is not None
    driving.dispatcher.stop("pause")

    driving.dispatcher.started(run)

    assert StopFile(driving.places.checkpoints(0))()


def test_a_resumed_trial_is_not_stopped_by_the_old_request(drive: Drive) -> None:
    first = drive(num_points=1)
    run = first.start()
    first.dispatcher.stop("pause")
    first.dispatcher.ended(run)
    first.trial(0)
    first.leave(SweepState.PAUSED)
    first.store.resume(first.claim.sweep_id)

    second = drive()
    second.start()

    assert not StopFile(second.places.checkpoints(0))()


def test_all_replicates_of_a_pruned_point_stop(drive: Drive) -> None:
    driving = drive(
        num_points=2,
        replicates=3,
        scheduler={"kind": "asha", "min_steps": 10, "reduction_factor": 2},
    )
    good = [driving.start() for _ in range(3)]
    for run in good:
        driving.dispatcher.report(run, result(10, 0.25))
    bad = [driving.start() for _ in range(2)]
    driving.dispatcher.report(bad[0], result(10, 0.75))
    stops = driving.dispatcher.report(bad[1], result(10, 0.5))
    for run in bad:
        driving.dispatcher.ended(run)
    for run in good:
        driving.finish(run, 0.125)

    assert stops
    assert driving.dispatcher.report(bad[0], result(20, 0.5))
    assert driving.dispatcher.next() is None
    trials = driving.all_trials()
    assert [trial.state for trial in trials] == ["complete"] * 3 + ["pruned"] * 3
    assert len(driving.trial(5).attempts) == 0
    assert "stopped early at step 10" in trials[3].exit_cause


def test_a_point_that_diverged_at_once_stays_stopped_for_the_next_driver(drive: Drive) -> None:
    asha = {"kind": "asha", "min_steps": 10, "reduction_factor": 2}
    first = drive(num_points=1, replicates=2, scheduler=asha)
    run = first.start()
    first.dispatcher.report(run, result(0, None, "diverged", diverged_at_step=0))
    first.dispatcher.ended(run)
    first.trial(0)
    first.leave()

    second = drive()

    assert second.dispatcher.next() is None
    assert [trial.state for trial in second.all_trials()] == ["diverged", "pruned"]


def test_a_budget_of_trials_ends_the_sweep_before_its_points_do(drive: Drive) -> None:
    driving = drive(num_points=5, budget={"trials": 2})
    for _ in range(2):
        driving.finish(driving.start())

    assert driving.dispatcher.next() is None
    assert driving.dispatcher.is_done
    assert driving.dispatcher.finished == "budget spent: 2 trials"
    assert len(driving.all_trials()) == 2


def test_a_budget_of_trials_holds_while_none_has_found_a_worker(drive: Drive) -> None:
    """Tune asks for as many trials as may run at once before the first has started."""
    driving = drive(num_points=5, budget={"trials": 2})

    runs = [driving.dispatcher.next() for _ in range(4)]

    assert [run is not None for run in runs] == [True, True, False, False]
    assert driving.dispatcher.finished == "budget spent: 2 trials"
    assert len(driving.all_trials()) == 2


def test_spent_wall_time_stops_what_runs(drive: Drive) -> None:
    driving = drive(num_points=5, budget={"wall_seconds": 0.2})
    run = driving.start()
    time.sleep(0.25)

    assert driving.dispatcher.next() is None
    assert driving.dispatcher.report(run, result(10, 0.5))
    driving.dispatcher.ended(run)
    assert driving.dispatcher.is_done
    assert driving.dispatcher.finished == "budget spent: 0.2 s of wall time"
    assert driving.trial(0).state == TrialState.CANCELLED


def test_a_store_that_is_away_for_a_while_costs_nothing(
    drive: Drive, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = drive(num_points=2)
    run = driving.start()
    real_finish, real_add = store.finish_attempt, store.add_trials
    outage = {"left": 3}

    def away(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if outage["left"]:
                outage["left"] -= 1
                raise StoreUnavailable("no route")
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(store, "finish_attempt", away(real_finish))
    monkeypatch.setattr(store, "add_trials", away(real_add))
    driving.finish(run, 0.25)
    driving.dispatcher.take_ended(10.0)
    driving.finish(driving.start(), 0.5)

    assert [trial.objective for trial in driving.all_trials()] == [0.25, 0.5]
    assert not driving.failures


def test_a_driver_whose_sweep_was_taken_writes_nothing_more(drive: Drive, store: Store) -> None:
    driving = drive(num_points=2)
    run = driving.start()
    store.release(driving.claim, SweepState.QUEUED, "")
    other = store.claim("runner-2")

    driving.dispatcher.report(run, result(10, 0.5))
    driving.finish(run)
    driving.writer.close(5.0)

    assert other is not None
    assert [type(error) for error in driving.failures] == [LeaseLost]
    assert store.trial(driving.claim.sweep_id, 0).metrics == {}


def test_a_worker_is_told_what_it_needs(drive: Drive) -> None:
    driving = drive(num_points=1)
    task = driving.dispatcher.task(driving.start())

    assert task["config"]["alpha_v"] > 0
    assert task["device"] == "cpu"
    assert task["checkpoint_dir"].endswith(f"checkpoints/{driving.claim.sweep_id}/0")
    assert task["log_path"].endswith(f"logs/{driving.claim.sweep_id}/0.log")
    assert task["objective"] == {"metric": "validation_error", "direction": "minimize"}


def test_a_trial_past_its_limit_fails_with_it_and_the_others_go_on(drive: Drive) -> None:
    driving = drive(num_points=2, limits={"steps": 100})
    first, second = driving.start(), driving.start()

    # A run that is longer than it said: nothing refused it at submission.
    stopped = driving.dispatcher.report(first, result(101, 0.3))
    driving.dispatcher.ended(first)
    driving.finish(second)

    assert stopped
    states = {trial.number: (trial.state, trial.exit_cause) for trial in driving.all_trials()}
    assert states[first.trial.number] == (TrialState.FAILED, "limit: 100 steps")
    assert states[second.trial.number][0] == TrialState.COMPLETE


def test_a_trial_that_reports_nothing_is_told_to_stop_at_its_limit(drive: Drive) -> None:
    driving = drive(num_points=1, limits={"wall_seconds": 0.5})
    run = driving.start()
    driving.dispatcher.look()
    early = StopFile(driving.places.checkpoints(0))()
    time.sleep(0.5)

    driving.dispatcher.look()
    asked = StopFile(driving.places.checkpoints(0))()
    driving.dispatcher.ended(run)

    assert (early, asked) == (False, True)
    assert driving.trial(0).exit_cause == "limit: 0.5 s of wall time"


def test_a_budget_of_steps_ends_the_sweep(drive: Drive) -> None:
    driving = drive(num_points=3, budget={"steps": 150})
    driving.finish(driving.start())
    run = driving.start()
    driving.dispatcher.report(run, result(50, 0.5))

    driving.dispatcher.look()

    assert driving.dispatcher.stopping == "limit"
    assert driving.dispatcher.finished == "budget spent: 150 steps"
