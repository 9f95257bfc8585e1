"""Which points are stopped early, by hand-made curves."""

from dataclasses import replace

import pytest

from sweeps.records import Trial, TrialState
from sweeps.search.early_stopping import AshaScheduler, MedianScheduler, PointScheduler, rule_of
from sweeps.search.protocol import Proposal
from tests.sweeps.sweep_cases import sweep_spec, waiting_trial


def replicate(point: int, seed: int = 0, optimizer: str = "ndadam") -> Trial:
    config = sweep_spec().config({"alpha_v": 0.1}, seed)
    trial = waiting_trial(10 * point + seed, Proposal(point, {"alpha_v": 0.1}, config))
    return replace(trial, config=trial.config | {"optimizer": optimizer})


def feed(
    scheduler: PointScheduler, losses: list[float], step: int, optimizer: str = "ndadam"
) -> list[int]:
    """Report a loss for each point in turn; the points stopped so far."""
    for point, loss in enumerate(losses):
        trial = replicate(point, optimizer=optimizer)
        scheduler.started(trial)
        scheduler.reported(trial, step, loss)
    return [point for point in range(len(losses)) if scheduler.cause(point) is not None]


def test_asha_keeps_the_best_third_of_each_rung() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=3))

    stopped = feed(scheduler, [0.5, 0.6, 0.7, 0.4, 0.8, 0.3], 10)

    # Of those that had come by then: 1st of 1, 2nd of 2, 3rd of 3, 1st of 4, 5th of 5, 1st of 6.
    assert stopped == [1, 2, 4]
    assert scheduler.cause(2) == "stopped early at step 10: place 3 of 3"


def test_asha_does_not_judge_before_the_first_rung() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=3))

    assert feed(scheduler, [0.1, 0.9, 0.9], 9) == []


def test_a_report_between_rungs_is_judged_by_the_rung_below() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=3))
    feed(scheduler, [0.1], 10)
    late = replicate(1)
    scheduler.started(late)

    scheduler.reported(late, 14, 0.5)

    assert scheduler.cause(1) == "stopped early at step 10: place 2 of 2"


def test_a_point_is_judged_by_the_mean_of_its_replicates_and_stopped_as_a_whole() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=2))
    good = [replicate(0, seed) for seed in range(2)]
    unlucky = [replicate(1, seed) for seed in range(2)]
    for trial in good + unlucky:
        scheduler.started(trial)
    for trial, loss in zip(good, (0.5, 0.5), strict=True):
        scheduler.reported(trial, 10, loss)

    scheduler.reported(unlucky[0], 10, 0.9)
    first = scheduler.cause(1)
    scheduler.reported(unlucky[1], 10, 0.2)

    assert first is None
    assert scheduler.cause(1) is not None
    assert scheduler.cause(0) is None


def test_a_diverged_replicate_stops_its_point() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=2))
    pair = [replicate(1, seed) for seed in range(2)]
    for trial in pair:
        scheduler.started(trial)

    scheduler.ended(pair[1], TrialState.DIVERGED)

    assert scheduler.cause(1) == "stopped early: seed 1 diverged"


def test_a_diverged_point_counts_as_the_worst_beside_others() -> None:
    scheduler = PointScheduler(MedianScheduler(min_steps=10, min_points=2))
    for point in range(2):
        scheduler.started(replicate(point))
        scheduler.ended(replicate(point), TrialState.DIVERGED)
    scheduler.started(replicate(2))
    scheduler.reported(replicate(2), 10, 0.9)

    assert scheduler.cause(2) is None


def test_a_failed_replicate_does_not_keep_its_point_from_being_judged() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=2))
    feed(scheduler, [0.5], 10)
    pair = [replicate(1, seed) for seed in range(2)]
    for trial in pair:
        scheduler.started(trial)
    scheduler.reported(pair[0], 10, 0.9)

    scheduler.ended(pair[1], TrialState.FAILED)
    scheduler.reported(pair[0], 12, 0.9)

    assert scheduler.cause(1) is not None


def test_a_point_is_not_judged_without_a_replicate_that_will_be_tried_again() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=2))
    feed(scheduler, [0.5], 10)
    pair = [replicate(1, seed) for seed in range(2)]
    for trial in pair:
        scheduler.started(trial)
    scheduler.reported(pair[0], 10, 0.9)

    scheduler.ended(pair[1], TrialState.WAITING)
    scheduler.reported(pair[0], 12, 0.9)
    while_away = scheduler.cause(1)
    scheduler.started(pair[1])
    scheduler.reported(pair[1], 10, 0.05)

    assert while_away is None
    assert scheduler.cause(1) is None


def test_optimizers_are_never_compared() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=3))
    for point, (optimizer, loss) in enumerate([("sgd", 0.1), ("ndadam", 0.9), ("adam", 0.5)]):
        trial = replicate(point, optimizer=optimizer)
        scheduler.started(trial)
        scheduler.reported(trial, 10, loss)

    assert [scheduler.cause(point) for point in range(3)] == [None, None, None]


def test_the_median_rule_stops_what_is_worse_than_most_were() -> None:
    scheduler = PointScheduler(MedianScheduler(min_steps=10, min_points=3))

    stopped = feed(scheduler, [0.5, 0.6, 0.7, 0.65, 0.55], 10)

    assert stopped == [3]
    assert scheduler.cause(3) == "stopped early at step 10: worse than the median of 3 points"


def test_maximising_turns_the_order_round() -> None:
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=3), maximize=True)

    assert feed(scheduler, [0.5, 0.6, 0.1], 10) == [2]


def test_a_new_driver_judges_as_the_old_one_would_have() -> None:
    rule = AshaScheduler(min_steps=10, reduction_factor=3)
    old = PointScheduler(rule)
    feed(old, [0.5, 0.6, 0.4], 10)
    new = PointScheduler(rule)
    for point, loss in enumerate([0.5, 0.6, 0.4]):
        cause = old.cause(point)
        state = TrialState.RUNNING if cause is None else TrialState.PRUNED
        trial = replace(replicate(point), state=state, exit_cause=cause or "")
        new.replay(trial, [(10, loss)])

    for scheduler in (old, new):
        for point, loss in ((3, 0.45), (4, 0.3)):
            scheduler.started(replicate(point))
            scheduler.reported(replicate(point), 10, loss)

    causes = [[scheduler.cause(point) for point in range(5)] for scheduler in (old, new)]
    assert causes[0] == causes[1]


def test_replay_judges_nothing_by_what_came_to_it_first() -> None:
    """Point 1's second replicate still runs, so nobody has judged point 1."""
    scheduler = PointScheduler(AshaScheduler(min_steps=10, reduction_factor=2))
    complete = [replicate(0), replicate(1, 0)]

    for trial, loss in zip(complete, (0.4, 0.5), strict=True):
        scheduler.replay(replace(trial, state=TrialState.COMPLETE), [(10, loss)])
    scheduler.replay(replace(replicate(1, 1), state=TrialState.WAITING), [(9, 0.1)])

    assert scheduler.cause(1) is None


def test_steps_that_a_resumed_trial_reports_again_count_once() -> None:
    scheduler = PointScheduler(MedianScheduler(min_steps=0, min_points=1))
    feed(scheduler, [0.5], 20)
    trial = replicate(1)
    scheduler.started(trial)
    for step, loss in ((10, 0.2), (20, 0.2), (10, 9.0), (20, 9.0)):
        scheduler.reported(trial, step, loss)

    assert scheduler.cause(1) is None


@pytest.mark.parametrize(
    ("scheduler", "rule"),
    [
        (None, None),
        ({"kind": "asha", "min_steps": 5}, AshaScheduler(5, 3)),
        ({"kind": "median", "min_steps": 5}, MedianScheduler(5, 5)),
    ],
)
def test_a_spec_names_its_rule(scheduler: dict[str, object] | None, rule: object) -> None:
    assert rule_of(sweep_spec(scheduler=scheduler)) == rule


def test_without_a_rule_nothing_is_kept_or_stopped() -> None:
    scheduler = PointScheduler(None)

    assert not scheduler.is_active
    assert feed(scheduler, [0.5, 0.9, 0.9, 0.9], 10) == []
