"""A sweep from the store to the workers and back, with hand-made workers instead of Ray's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import SweepState, TrialState
from sweeps.retention.best_weights import WEIGHTS, kept
from sweeps.store.store import Store
from tests.sweeps.driver.driving import PATIENCE, Drive, Result, drive, result, store
from worker.checkpoints.report_journal import ReportJournal
from worker.errors import WrongMachine
from worker.report import Report

__all__ = ["drive", "store"]


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


def test_the_word_that_a_trial_is_silent_is_no_report(drive: Drive) -> None:
    driving = drive(num_points=1)
    run = driving.start()

    assert not driving.dispatcher.report(run, {"silent": True, "objective": 1e9})

    driving.finish(run)
    assert driving.trial(0).state == TrialState.COMPLETE


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
    ("metrics", "state", "cause"),
    [
        ({"train_loss": 1.0}, TrialState.COMPLETE, "complete"),
        ({}, TrialState.FAILED, "the final report has no train_loss"),
        ({"train_loss": float("nan")}, TrialState.DIVERGED, "diverged at step 100"),
    ],
)
def test_every_objective_is_reported_and_finite(
    drive: Drive, metrics: dict[str, float], state: TrialState, cause: str
) -> None:
    driving = drive(objectives=[{"metric": "validation_error"}, {"metric": "train_loss"}])
    run = driving.start()
    assert driving.dispatcher.task(run)["objectives"] == ["validation_error", "train_loss"]

    last = result(100, 0.5, "complete")
    last["report"]["metrics"] |= metrics
    driving.dispatcher.report(run, last)
    driving.dispatcher.ended(run)

    assert (driving.trial(0).state, driving.trial(0).exit_cause) == (state, cause)


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


def test_reports_that_tune_dropped_with_an_error_are_recorded(drive: Drive) -> None:
    driving = drive(num_points=1)
    run = driving.start()
    journal = ReportJournal(driving.places.checkpoints(0))
    for step in (1, 2, 3):
        report = result(step, 1 / step)["report"]
        journal.append(Report.model_validate(report))
    driving.dispatcher.report(run, result(1, 1.0))

    driving.dispatcher.ended(run, ValueError("too bad"))

    assert (driving.trial(0).state, driving.trial(0).step) == (TrialState.FAILED, 3)
    assert driving.trial(0).metrics["validation_error"] == 1 / 3


def test_a_trial_whose_worker_dies_is_tried_three_times(drive: Drive) -> None:
    driving = drive(num_points=1)
    for _ in range(3):
        driving.dispatcher.ended(driving.start(), ConnectionError("the node died"), lost=True)
        driving.trial(0)

    assert driving.dispatcher.next() is None
    assert driving.trial(0).state == TrialState.FAILED
    assert driving.trial(0).exit_cause == ("lost: ConnectionError: the node died (attempt 3 of 3)")
    assert len(driving.trial(0).attempts) == 3


def test_a_refused_machine_costs_a_trial_none_of_its_three_tries(drive: Drive) -> None:
    driving = drive(num_points=1)
    error = WrongMachine("gpu7", [("code", "its code is another")])
    for _ in range(4):
        driving.dispatcher.ended(driving.start(), error, lost=True)

    assert driving.trial(0).state == TrialState.WAITING
    driving.leave()
    second = drive()
    second.dispatcher.ended(second.start(), OSError("died"), lost=True)
    second.finish(second.start())
    trial = second.trial(0)
    assert trial.state == TrialState.COMPLETE
    assert trial.attempts[0].exit_cause == "lost: its machine was refused: its code is another"
    assert len(trial.attempts) == 6


def test_workers_lost_under_earlier_drivers_count_too(drive: Drive) -> None:
    for fields in ({"num_points": 1}, {}):
        driving = drive(**fields)
        driving.dispatcher.ended(driving.start(), OSError("died"), lost=True)
        driving.trial(0)
        driving.leave()
    # A driver that dies without a word is nothing against its trial.
    died = drive()
    died.start()
    died.writer.close(PATIENCE)
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
        driving.dispatcher.take_ended(PATIENCE)
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


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_store_that_is_away_for_a_while_costs_nothing(
    drive: Drive, store: Store, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    driving = drive(num_points=2, sampler=sampler)
    outages = {"add_trials": 2, "finish_attempts": 2}

    def away(name: str) -> Callable[..., Any]:
        real = getattr(store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if outages[name]:
                outages[name] -= 1
                raise StoreUnavailable("no route")
            return real(*args, **kwargs)

        return call

    for name in outages:
        monkeypatch.setattr(store, name, away(name))
    asked = [(driving.dispatcher.next(), driving.dispatcher.is_done) for _ in range(2)]
    driving.finish(driving.start(), 0.25)
    driving.dispatcher.take_ended(PATIENCE)
    driving.finish(driving.start(), 0.5)

    # Nothing now is not nothing ever: the sweep would be complete without its trials.
    assert asked == [(None, False), (None, False)]
    assert [trial.objective for trial in driving.all_trials()] == [0.25, 0.5]
    assert outages == {"add_trials": 0, "finish_attempts": 0}
    assert not driving.failures


def test_endings_are_told_though_the_store_goes_away_between_them(
    drive: Drive, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = drive(num_points=3)
    for run in [driving.start(), driving.start()]:
        folder = driving.places.checkpoints(run.trial.number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WEIGHTS).write_bytes(b"weights")
        driving.finish(run)

    def away(sweep_id: str) -> Any:
        raise StoreUnavailable("no route")

    with monkeypatch.context() as patch:
        patch.setattr(store, "get_sweep", away)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                driving.dispatcher.take_ended(PATIENCE)
        assert driving.dispatcher.told == 0
    driving.dispatcher.take_ended(PATIENCE)

    assert driving.dispatcher.told == 2
    assert kept(driving.places.home, driving.claim.sweep_id) is not None


def test_a_model_knows_an_ending_that_was_written_while_it_was_about_to_be_asked(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = drive(num_points=2, sampler="tpe")
    driving.finish(driving.start())
    writer = driving.writer

    def until_written() -> None:
        with writer._changed:
            writer._changed.wait_for(lambda: writer._ended, PATIENCE)

    # Between the look for endings and the question.
    monkeypatch.setattr(driving.dispatcher, "_check_limits", until_written)
    run = driving.dispatcher.next()

    assert run is not None
    assert driving.dispatcher.told == 1


def test_a_driver_whose_sweep_was_taken_writes_nothing_more(drive: Drive, store: Store) -> None:
    driving = drive(num_points=2)
    run = driving.start()
    store.release(driving.claim, SweepState.QUEUED, "")
    other = store.claim("runner-2")

    driving.dispatcher.report(run, result(10, 0.5))
    driving.finish(run)
    driving.writer.close(PATIENCE)

    assert other is not None
    assert [type(error) for error in driving.failures] == [LeaseLost]
    assert store.trial(driving.claim.sweep_id, 0).metrics == {}


def test_a_worker_is_told_what_it_needs(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    driving = drive(num_points=1)
    run = driving.start()
    task = driving.dispatcher.task(run)
    monkeypatch.setenv("NDSWEEP_LOG_FORMAT", "json")
    of_json = driving.dispatcher.task(run)

    assert (task["log_ids"], task | {"log_ids": of_json["log_ids"]}) == (None, of_json)
    assert of_json["log_ids"] == {"sweep": driving.claim.sweep_id, "trial": 0}
    assert task["config"]["alpha_v"] > 0
    assert task["device"] == "cpu"
    assert task["checkpoint_dir"].endswith(f"checkpoints/{driving.claim.sweep_id}/0")
    assert task["log_path"].endswith(f"logs/{driving.claim.sweep_id}/0.log")
    assert task["objective"] == {"metric": "validation_error", "direction": "minimize"}
