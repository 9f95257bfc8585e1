"""Trials that share a card, from the spec to the host process and back, on a real local Ray.

Ray is told of a card that is not there, and the trials train on the CPU in its stead.
"""

import os
from collections.abc import Iterator

import pytest

from sweeps.cluster import head as cluster
from sweeps.cluster.capacity import ClusterShape
from sweeps.records import SweepState
from tests.sweeps.stack import Stack, is_running, running_stack, until
from tests.sweeps.sweep_cases import sweep_spec
from tests.worker.conftest import made_up_arrays
from worker.data.prepared import write_dataset

pytestmark = pytest.mark.stack

CARD = 24_564


def submit(stack: Stack, steps: int) -> str:
    """Two trials that report every few steps, side by side on the card."""
    base = {"dataset": "colours", "depth": 10, "widen_factor": 1.0, "crop_pad": 1}
    base |= {"batch_size": 20, "steps": steps, "validation_fraction": 0.125}
    spec = sweep_spec(
        base=base | {"report_every": 20, "optimizer": "ndadam"},
        sampler="grid",
        num_points=None,
        space={"alpha_v": {"kind": "choice", "values": [0.01, 0.02]}},
        resources={"cpus": 1, "gpus": 1, "trials_per_gpu": 2},
    )
    return stack.submit(spec)


def wait_for_reports(stack: Stack, sweep_id: str) -> int:
    """Wait until both trials have reported; the process that trains them."""
    hosts: list[int] = []

    def both_train() -> bool:
        hosts[:] = [
            attempt.provenance["pid"]
            for attempts in stack.attempts(sweep_id).values()
            for attempt in attempts
            if attempt.provenance and attempt.finished_at is None
        ]
        return len(hosts) == 2

    until(both_train, "both trials train at once")
    (host,) = set(hosts)
    return host


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster with a card, the runner, and the hosts of that card."""
    home = tmp_path_factory.mktemp("home")
    data = tmp_path_factory.mktemp("data")
    write_dataset("colours", data, made_up_arrays(), classes=tuple("abcd"), source="made up")
    tool = tmp_path_factory.mktemp("bin") / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho {CARD}\n")
    tool.chmod(0o755)
    trainable = "tests.sweeps.cluster.card_trainables:on_cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        with running_stack(home, trainable, "--data", str(data), num_gpus=1) as stack:
            yield stack


def test_the_size_of_the_card_is_known_to_whoever_submits(stack: Stack) -> None:
    known: set[int | None] = set()

    def is_known() -> bool:
        told = [runner.info["cluster"] for runner in stack.store.runners()]
        known.update(ClusterShape.from_json(shape).card_bytes for shape in told if shape)
        return bool(known - {None})

    until(is_known, "the size of the card")

    assert known - {None} == {CARD * 2**20}


def test_the_host_of_a_card_may_die_and_a_cancel_reaches_its_trials(stack: Stack) -> None:
    (stack.home / "strike").touch()
    sweep_id = submit(stack, steps=600)
    sweep = stack.finish(sweep_id)

    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "all done")
    attempts = stack.attempts(sweep_id).values()
    (killed,) = {first.provenance["pid"] for first, _ in attempts}
    for first, second in attempts:
        assert first.exit_cause.startswith("lost: HostLost: the host of the card's trials")
        assert second.exit_cause == "complete"
        assert second.provenance["pid"] != killed

    cancelled = submit(stack, steps=10**6)
    host = wait_for_reports(stack, cancelled)
    stack.store.request(cancelled, "cancel")
    took = stack.seconds_until(
        lambda: stack.store.get_sweep(cancelled).state.is_finished(), "cancelled"
    )
    sweep = stack.store.get_sweep(cancelled)

    assert sweep.state == SweepState.CANCELLED
    assert took < 15
    # It waits for the next trial, and goes with the cluster at the latest.
    assert is_running(host)
    cluster.stop(stack.home)
    until(lambda: not is_running(host), "the host ends with the cluster")
