"""Pauses, cancels, pruning, budgets and limits, with hand-made workers instead of Ray's."""

import pytest

from sweeps.driver import dispatcher as dispatch
from sweeps.records import SweepState, TrialState
from tests.sweeps.driver.driving import Drive, Driving, drive, result, store
from worker.checkpoints.stop_file import StopFile

__all__ = ["drive", "store"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here is about trials whose time to stop is over."""
    monkeypatch.setattr(dispatch, "_GRACE", 3600.0)


def is_told_to_stop(driving: Driving, number: int) -> bool:
    """Whether a worker of this driver's is."""
    folder = driving.places.checkpoints(number)
    return StopFile(folder, str(driving.claim.token))()


def test_a_pause_lets_running_trials_write_their_checkpoints_and_wait(drive: Drive) -> None:
    driving = drive(num_points=3)
    run = driving.start()

    driving.dispatcher.stop("pause")
    is_cut_off = driving.dispatcher.report(run, result(10, 0.5))
    is_told = is_told_to_stop(driving, run.trial.number)
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

    assert is_told_to_stop(driving, 0)


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

    assert not is_told_to_stop(second, 0)


def test_a_driver_that_lost_its_sweep_stops_its_own_workers_and_not_its_successors(
    drive: Drive,
) -> None:
    first = drive(num_points=1)
    first.start()
    first.store.release(first.claim, SweepState.QUEUED, "")
    second = drive()
    run = second.start()

    first.dispatcher.stop("lost")

    assert is_told_to_stop(first, 0)
    assert not is_told_to_stop(second, 0)
    assert second.dispatcher.task(run)["stopped_by"] == str(second.claim.token)


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
    driving = drive(num_points=5, budget={"wall_seconds": 3600})
    run = driving.start()
    driving.ahead = 3600.0

    assert driving.dispatcher.next() is None
    assert driving.dispatcher.report(run, result(10, 0.5))
    driving.dispatcher.ended(run)
    assert driving.dispatcher.is_done
    assert driving.dispatcher.finished == "budget spent: 3600 s of wall time"
    assert driving.trial(0).state == TrialState.CANCELLED


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
    driving = drive(num_points=1, limits={"wall_seconds": 3600})
    run = driving.start()
    driving.dispatcher.look()
    early = is_told_to_stop(driving, 0)
    driving.ahead = 3600.0

    driving.dispatcher.look()
    asked = is_told_to_stop(driving, 0)
    driving.dispatcher.ended(run)

    assert (early, asked) == (False, True)
    assert driving.trial(0).exit_cause == "limit: 3600 s of wall time"


def test_a_budget_of_steps_ends_the_sweep(drive: Drive) -> None:
    driving = drive(num_points=3, budget={"steps": 150})
    driving.finish(driving.start())
    run = driving.start()
    driving.dispatcher.report(run, result(50, 0.5))

    driving.dispatcher.look()

    assert driving.dispatcher.stopping == "limit"
    assert driving.dispatcher.finished == "budget spent: 150 steps"
