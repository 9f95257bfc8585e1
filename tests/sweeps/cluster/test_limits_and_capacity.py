"""What a sweep may spend, and what fits on a cluster."""

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sweeps.batch.slot import cpu_threads
from sweeps.cluster import free_port, machines
from sweeps.cluster.capacity import ClusterShape, NodeShape, usable_cpus, why_not
from sweeps.cluster.machines import smallest_card
from sweeps.driver.limits import Limits
from sweeps.records import Attempt, Trial, TrialState
from sweeps.search.protocol import Proposal
from sweeps.spec.sweep_spec import Budget
from tests.sweeps.sweep_cases import NOW, sweep_spec, waiting_trial


class Clock:
    """Seconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def numbered(number: int) -> Trial:
    config = sweep_spec().config({"alpha_v": 0.1}, 0)
    return waiting_trial(number, Proposal(number, {"alpha_v": 0.1}, config))


def test_a_budget_of_trials_counts_each_once_however_often_it_starts() -> None:
    limits = Limits(Budget(trials=2), gpus=0, started_at=NOW)

    for number in (0, 0, 1):
        limits.started(numbered(number))

    assert limits.trials_left == 0
    assert limits.allows(numbered(0))
    assert not limits.allows(numbered(2))


def test_a_trial_on_its_way_to_a_worker_counts_until_it_comes_back() -> None:
    limits = Limits(Budget(trials=1), gpus=0, started_at=NOW)

    limits.taken(numbered(0))
    while_away = limits.trials_left, limits.allows(numbered(1)), limits.allows(numbered(0))
    limits.returned(numbered(0))

    assert while_away == (0, False, True)
    assert limits.trials_left == 1


def test_trials_of_an_earlier_driver_count() -> None:
    limits = Limits(Budget(trials=2), gpus=0, started_at=NOW)

    limits.count(replace(numbered(0), started_at=NOW))
    limits.count(numbered(1))

    assert limits.trials_left == 1


def test_wall_time_counts_from_the_first_start() -> None:
    clock = Clock()
    limits = Limits(Budget(wall_seconds=60), gpus=0, started_at=NOW, clock=clock)

    clock.now += 59
    before = limits.overrun()
    clock.now += 1

    assert before is None
    assert limits.overrun() == "budget spent: 60 s of wall time"


def test_gpu_hours_count_shares_of_a_card_and_what_earlier_attempts_took() -> None:
    clock = Clock()
    limits = Limits(Budget(gpu_hours=1), gpus=0.5, started_at=NOW, clock=clock)
    hour = timedelta(hours=1)
    attempt = Attempt(1, 1, TrialState.FAILED, NOW - hour, NOW, "lost", {}, None)
    limits.count(replace(numbered(0), attempts=(attempt,)))

    limits.started(numbered(0))
    clock.now += 3599
    before = limits.overrun()
    clock.now += 1

    assert before is None
    assert limits.overrun() == "budget spent: 1 GPU-hours"


def test_no_budget_is_never_spent() -> None:
    limits = Limits(Budget(), gpus=1, started_at=None)

    assert limits.trials_left is None
    assert limits.overrun() is None
    assert limits.allows(numbered(10**6))


TWO = ClusterShape((NodeShape(16, 1), NodeShape(2, 0)))


@pytest.mark.parametrize(
    ("cpus", "gpus", "fits"),
    [
        (1, 0, 18),
        (2, 0, 9),
        (1, 1, 1),
        (1, 0.3, 3),
        (1, 1 / 3, 3),
        (8, 0.25, 2),
        (0.5, 0, 36),
        (16, 0, 1),
        (17, 0, 0),
        (64, 1, 0),
    ],
)
def test_how_many_trials_fit_at_once(cpus: float, gpus: float, fits: int) -> None:
    assert TWO.fits(cpus, gpus) == fits


def test_what_can_never_run_is_refused_with_what_there_is() -> None:
    refusal = why_not(64, 1, TWO)

    assert refusal is not None
    assert refusal.field == "resources.cpus"
    assert refusal.reason == (
        "a trial asks for 64 CPUs and 1 GPU, and the cluster offers 2 machines: "
        "16 CPUs and 1 GPU; 2 CPUs"
    )


def test_more_than_one_gpu_is_refused_on_any_cluster() -> None:
    refusal = why_not(1, 2, None)

    assert refusal is not None
    assert refusal.field == "resources.gpus"


def test_a_gpu_where_there_is_none_is_refused_by_its_own_field() -> None:
    refusal = why_not(1, 0.5, ClusterShape((NodeShape(2, 0),)))

    assert refusal is not None
    assert refusal.field == "resources.gpus"


def test_without_a_known_cluster_any_share_of_a_card_may_wait() -> None:
    assert why_not(64, 1, None) is None


def test_a_shape_goes_through_json() -> None:
    known = ClusterShape((NodeShape(16, 1, 80 * 2**30), *TWO.nodes))

    for shape in (TWO, known):
        assert ClusterShape.from_json(json.loads(json.dumps(shape.to_json()))) == shape
    assert "card_bytes" not in str(TWO.to_json())


def test_the_smallest_card_is_what_a_trial_must_fit_on() -> None:
    cards = [NodeShape(1, 1, gib * 2**30) for gib in (80, 24, 40)]

    assert ClusterShape((*cards, NodeShape(4, 0), NodeShape(4, 1))).card_bytes == 24 * 2**30
    assert TWO.card_bytes is None


@pytest.mark.parametrize(
    ("printed", "found"),
    [("81559\n24564\n", 24564 * 2**20), ("", None), ("[N/A]\n", None)],
)
def test_the_size_of_a_card_is_what_its_driver_says(
    printed: str, found: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(machines, "_CARDS_LIMIT", 300.0)

    assert smallest_card() == found
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert smallest_card() is None


def test_a_port_for_later_is_none_that_this_machine_gives_to_whoever_asks_for_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(free_port, "_first_given_port", lambda: 32_768)
    ports = {free_port.free_port() for _ in range(20)}
    monkeypatch.setattr(free_port, "_first_given_port", lambda: 1024)

    assert len(ports) > 1
    # Ray's workers have those up to 19,999.
    assert all(20_000 <= port < 32_768 for port in ports)
    assert free_port.free_port() > 0, "one of those it gives, where it gives nearly all"


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("max 100000", 8), ("350000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8)],
    ids=["none", "three and a half", "half a core", "more than there are"],
)
def test_a_driver_and_a_batch_keep_to_the_quota_of_a_container(
    monkeypatch: pytest.MonkeyPatch, quota: str, cpus: int
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert usable_cpus() == cpus
    assert cpu_threads(1) == cpus
    assert cpu_threads(2) == max(1, cpus // 2)
