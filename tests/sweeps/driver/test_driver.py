"""Sweeps on a real local Ray cluster, driven by real runners that are stopped and killed."""

import argparse
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sweeps.driver import driver
from sweeps.driver.process import TAKEN
from sweeps.records import Claim, Sweep, SweepState, TrialState
from sweeps.search.proposer import SweepProposer
from sweeps.store.database.tables import attempts
from sweeps.store.store import Store
from tests.sweeps.driver.driving import Driving
from tests.sweeps.stack import Stack, is_running, running_stack, until
from tests.sweeps.store_cases import LEASE
from tests.sweeps.sweep_cases import BASE, Curves, keys, search, sweep_spec

pytestmark = pytest.mark.stack


#: Points of a sweep that is still at work whenever a test comes to look: cancelled in the end.
MANY = 100_000


@pytest.fixture(scope="module")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    with running_stack(home, "tests.sweeps.driver.trainables:quick", "--lease", "3") as stack:
        yield stack


@pytest.fixture
def stack(whole_stack: Stack) -> Stack:
    """With its runner, and without a sweep that is left of a test that failed."""
    whole_stack.clear()
    return whole_stack


def submit(stack: Stack, **fields: Any) -> str:
    """Queue a sweep of quick trials: 5 reports, 20 ms apart."""
    base = BASE | {"steps": 5, "batch_size": 20, "gamma_c": 1.0} | fields.pop("base", {})
    return stack.submit(sweep_spec(base=base, **fields))


def test_a_sweep_runs_to_its_end_and_no_fate_of_a_trial_touches_another(stack: Stack) -> None:
    space = {"gamma_c": {"kind": "choice", "values": [4.0, 1.0, 2.0, 3.0, 5.0, 1.5]}}
    sweep_id = submit(
        stack, sampler="grid", space=space, num_points=None, base={"alpha_v": 0.1, "alpha_s": 0.001}
    )

    sweep = stack.finish(sweep_id)

    trials = {trial.params["gamma_c"]: trial for trial in stack.trials(sweep_id)}
    assert {fate: trial.state.value for fate, trial in trials.items()} == {
        4.0: "diverged", 1.0: "complete", 2.0: "failed", 3.0: "failed", 5.0: "failed",
        1.5: "complete",
    }  # fmt: skip
    assert trials[2.0].exit_cause == "ValueError: this trial raises"
    assert trials[3.0].exit_cause.startswith("lost: ")
    assert "malformed report" in trials[5.0].exit_cause
    assert len(stack.store.trial(sweep_id, trials[3.0].number).attempts) == 3
    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done; 3 trials failed")
    assert sweep.best is not None
    assert sweep.best["params"]["gamma_c"] in (1.0, 1.5)
    assert sweep.result is not None
    curve = stack.store.metrics(sweep_id, trials[1.0].number)["validation_error"]
    assert [step for step, _ in curve] == [1, 2, 3, 4, 5]


def train_first_for(stack: Stack, sweep_id: str, claim: Claim, seconds: float) -> None:
    """Let a sweep's first trial have trained for so long when its worker died; queue the rest."""
    driving = Driving(stack.store, stack.home, stack.store.get_sweep(sweep_id), claim)
    run = driving.start()
    driving.dispatcher.ended(run, OSError("died"), lost=True)
    assert driving.trial(run.trial.number).state == TrialState.WAITING
    with stack.store._writing() as write:
        of_sweep = attempts.c.sweep_id == sweep_id
        earlier = attempts.c.started_at - int(seconds * 1e6)
        write.conn.execute(sa.update(attempts).where(of_sweep).values(started_at=earlier))
    driving.leave()


def test_a_trial_that_hangs_in_a_step_ends_at_its_limit_and_so_does_its_worker(
    stack: Stack,
) -> None:
    space = {"gamma_c": {"kind": "choice", "values": [6.0, 1.0, 1.5]}}
    rates = {"alpha_v": 0.1, "alpha_s": 0.001}
    with stack.store.together():
        sweep_id = submit(
            stack,
            sampler="grid",
            space=space,
            num_points=None,
            base=rates,
            limits={"wall_seconds": 3600},
            concurrency=1,
        )
        claim = stack.store.claim("test", LEASE)
    assert claim is not None
    # A second is left to the trial that hangs, an hour to each of the others.
    train_first_for(stack, sweep_id, claim, 3599)

    sweep = stack.finish(sweep_id)

    first, *others = stack.trials(sweep_id)
    assert (first.state.value, first.exit_cause) == ("failed", "limit: 3600 s of wall time")
    assert len(stack.store.trial(sweep_id, first.number).attempts) == 2
    assert [trial.state.value for trial in others] == ["complete", "complete"]
    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done; 1 trial failed")


def test_a_sweep_in_which_everything_diverges_ends_and_says_so(stack: Stack) -> None:
    sweep = stack.finish(submit(stack, num_points=2, base={"gamma_c": 4.0}))

    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "no finite result")
    assert sweep.best is None


def test_a_driver_killed_in_the_middle_loses_and_repeats_nothing(stack: Stack) -> None:
    fields: dict[str, Any] = {"num_points": 6, "replicates": 2, "sampler": "qmc"}
    with stack.hold(4):
        sweep_id = submit(stack, **fields)
        stack.wait(
            sweep_id,
            lambda sweep: (sweep.trials["complete"], sweep.trials["running"]) == (4, 2),
            "in the middle of two trials",
        )
        os.kill(stack.driver(sweep_id), signal.SIGKILL)
    sweep = stack.finish(sweep_id)

    trials = stack.trials(sweep_id)
    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done")
    assert sweep.trials["complete"] == len(trials) == 12
    spec = sweep_spec(base=BASE | {"steps": 5, "batch_size": 20, "gamma_c": 1.0}, **fields)
    undisturbed, _ = search(SweepProposer(spec, Curves()))
    assert keys(trials) == keys(undisturbed)
    for trial in trials:
        curve = stack.store.metrics(sweep_id, trial.number)["validation_error"]
        assert [step for step, _ in curve] == [1, 2, 3, 4, 5]
    tries = {number: len(attempts) for number, attempts in stack.attempts(sweep_id).items()}
    assert tries == dict.fromkeys(range(12), 1) | {4: 2, 5: 2}


def test_a_killed_runner_is_replaced_and_its_driver_gives_way(stack: Stack) -> None:
    with stack.hold(2):
        sweep_id = submit(stack, num_points=6)
        stack.wait(
            sweep_id,
            lambda sweep: (sweep.trials["complete"], sweep.trials["running"]) == (2, 2),
            "in its middle",
        )
        old_driver = stack.driver(sweep_id)
        assert stack.runner is not None
        stack.runner.kill()
        stack.runner.wait()
        assert is_running(old_driver)
        stack.start_runner()
        until(lambda: not is_running(old_driver), "the driver of the old runner gives way")
    sweep = stack.finish(sweep_id)

    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done")
    assert len(stack.trials(sweep_id)) == sweep.trials["complete"] == 6


def test_a_pause_takes_seconds_and_resuming_goes_on_from_the_checkpoints(stack: Stack) -> None:
    with stack.hold(0):
        sweep_id = submit(stack, num_points=2)
        folder = stack.home / "checkpoints" / sweep_id
        until(lambda: len(list(folder.glob("*/done"))) == 2, "both have made a step")
        stack.wait(sweep_id, lambda sweep: sweep.trials["running"] == 2, "running")

        stack.store.request(sweep_id, "pause")
        paused_in = stack.seconds_until(
            lambda: stack.store.get_sweep(sweep_id).state == SweepState.PAUSED, "paused"
        )
    waiting = stack.store.get_sweep(sweep_id).trials["waiting"]
    stack.store.resume(sweep_id)
    sweep = stack.finish(sweep_id)

    assert paused_in < 10
    assert waiting == 2
    assert sweep.trials["complete"] == 2
    starts = (folder / "starts").read_text().split("\n")[:4]
    assert Counter(line.partition(" ")[0] for line in starts) == {"0": 2, "1": 2}
    assert all(int(line.rpartition(" ")[2]) > 0 for line in starts[2:])


def test_a_cancel_takes_seconds(stack: Stack) -> None:
    with stack.hold(0):
        sweep_id = submit(stack, num_points=4)
        stack.wait(sweep_id, lambda sweep: sweep.trials["running"] > 0, "running")

        stack.store.request(sweep_id, "cancel")
        cancelled_in = stack.seconds_until(
            lambda: stack.store.get_sweep(sweep_id).state.is_finished(), "cancelled"
        )
    sweep = stack.store.get_sweep(sweep_id)

    assert cancelled_in < 10
    assert sweep.state == SweepState.CANCELLED
    assert {trial.state.value for trial in stack.trials(sweep_id)} == {"cancelled"}


def test_what_never_fits_waits_visibly_and_can_be_cancelled(stack: Stack) -> None:
    sweep_id = submit(stack, num_points=1, resources={"cpus": 1, "gpus": 1})

    sweep = stack.wait(sweep_id, lambda sweep: bool(sweep.reason), "waiting for resources")
    stack.store.request(sweep_id, "cancel")
    ended = stack.finish(sweep_id)

    assert sweep.reason == (
        "waiting for resources: a trial asks for 1 CPU and 1 GPU, and the cluster offers 2 CPUs"
    )
    assert ended.state == SweepState.CANCELLED
    assert stack.trials(sweep_id) == []


def test_sigterm_leaves_the_sweep_to_the_next_runner(stack: Stack) -> None:
    with stack.hold(0):
        sweep_id = submit(stack, num_points=4)
        stack.wait(sweep_id, lambda sweep: sweep.trials["running"] > 0, "running")

        took = stack.stop_runner()
        left = stack.store.get_sweep(sweep_id)
    time.sleep(0.5)
    still_left = stack.store.get_sweep(sweep_id)
    stack.start_runner()
    sweep = stack.finish(sweep_id)

    assert took < 10
    assert left.state == SweepState.QUEUED
    assert still_left.trials == left.trials
    assert sweep.trials["complete"] == 4


def test_a_sweep_cancelled_before_it_starts_never_runs(stack: Stack) -> None:
    stack.stop_runner()
    sweep_id = submit(stack, num_points=2)
    stack.store.request(sweep_id, "cancel")
    stack.store.request(sweep_id, "cancel")
    stack.start_runner()
    other = submit(stack, num_points=1)

    stack.finish(other)

    assert stack.store.get_sweep(sweep_id).state == SweepState.CANCELLED
    assert stack.trials(sweep_id) == []


def test_a_spec_of_another_version_ends_with_what_this_one_refuses(stack: Stack) -> None:
    spec = {"name": "old", "speed": 3}
    sweep, _ = stack.store.create_sweep(
        "match", spec, name="old", tags=[], notes="", num_trials=None
    )

    ended = stack.finish(sweep.id)

    assert ended.state is SweepState.FAILED
    assert ended.reason.startswith("its spec is none that this version runs: ")
    assert "speed: speed is not a field here" in ended.reason


def test_a_spec_of_another_version_is_left_to_whoever_took_the_sweep(
    sqlite_store: Store, tmp_path: Path
) -> None:
    sqlite_store.create_sweep("match", {"speed": 3}, name="old", num_trials=None)
    claim = sqlite_store.claim("this")
    assert claim is not None
    options = argparse.Namespace(store=sqlite_store.url, home=tmp_path, data=None, trainable=None)

    stale = replace(claim, token=claim.token - 1)
    assert driver._drive(options, stale, threading.Event()) == TAKEN
    assert sqlite_store.get_sweep(claim.sweep_id).state is SweepState.RUNNING


def test_the_shape_of_the_cluster_is_in_the_store(stack: Stack) -> None:
    def shapes() -> list[list[dict[str, Any]]]:
        found = [runner.info["cluster"] for runner in stack.store.runners()]
        return [shape["nodes"] for shape in found if shape]

    until(shapes, "a runner sees the cluster")
    (node,) = shapes()[0]
    assert node.pop("name").startswith(f"{socket.gethostname()} (")
    assert node == {"cpus": 2.0, "gpus": 0.0}


def test_asha_stops_points_early_and_nothing_is_left_of_their_checkpoints(stack: Stack) -> None:
    sweep_id = submit(
        stack,
        num_points=8,
        sampler="grid",
        space={"alpha_v": {"kind": "float", "low": 0.1, "high": 0.8, "step": 0.1}},
        base={"steps": 9, "batch_size": 1, "alpha_s": 0.001},
        scheduler={"kind": "asha", "min_steps": 1, "reduction_factor": 3},
    )

    sweep = stack.finish(sweep_id)

    assert sweep.trials["pruned"] >= 4
    assert sweep.trials["pruned"] + sweep.trials["complete"] == 8
    assert sweep.best is not None
    assert sweep.best["params"] == {"alpha_v": 0.1}
    folder = stack.home / "checkpoints" / sweep_id
    assert [path.name for path in folder.iterdir()] == ["starts"]
    until(lambda: not list((stack.home / "tune").glob(f"{sweep_id}*")), "Tune's folder goes")


def test_two_sweeps_on_a_full_cluster_take_turns_and_a_paused_one_gives_its_place_up(
    stack: Stack,
) -> None:
    slow = {"steps": 4, "batch_size": 100}
    first = submit(stack, num_points=MANY, base=slow)
    stack.wait(first, lambda sweep: sweep.trials["running"] == 2, "on both CPUs")
    second = submit(stack, num_points=MANY, base=slow)

    def is_beside(sweep: Sweep) -> bool:
        return min(sweep.trials["running"], stack.store.get_sweep(second).trials["running"]) > 0

    stack.wait(first, is_beside, "beside the other")
    stack.wait(second, lambda sweep: sweep.trials["complete"] >= 2, "in its middle")
    assert not stack.store.get_sweep(first).state.is_finished()
    stack.store.request(first, "pause")
    stack.wait(second, lambda sweep: sweep.trials["running"] == 2, "on both CPUs")
    for sweep_id in (first, second):
        stack.store.request(sweep_id, "cancel")
    for sweep_id in (first, second):
        stack.finish(sweep_id)


def test_a_sweep_that_fills_the_cluster_alone_hands_it_over_after_its_turn(stack: Stack) -> None:
    alone = {"num_points": MANY, "base": {"steps": 4, "batch_size": 100}, "resources": {"cpus": 2}}
    first = submit(stack, **alone)
    stack.wait(first, lambda sweep: sweep.trials["complete"] > 0, "at it")
    second = submit(stack, **alone)

    stack.wait(second, lambda sweep: sweep.trials["complete"] > 0, "at it in its turn")

    for sweep_id in (first, second):
        stack.store.request(sweep_id, "cancel")
    for sweep_id in (first, second):
        stack.finish(sweep_id)
