"""Agents are killed at random: every point is told exactly once."""

from pathlib import Path

from benchmarks.agents import run_with_kills, told_once
from service.client import Client
from sweeps.store.store import Store
from tests.service.external_sweeps import SPEC, driven


def test_every_point_is_told_once_though_agents_are_killed(
    live: str, store: Store, home: Path, tmp_path: Path
) -> None:
    with Client(live) as service, driven(store, home):
        sweep = service.submit(SPEC | {"num_points": 24, "objective": {"metric": "loss"}})
        told = run_with_kills(live, sweep.id, tmp_path, agents=3, kills=3, seconds=0.3, lease=8.0)

    tries = [len(store.trial(sweep.id, number).attempts) for number in range(24)]
    assert sum(tries) > 24
    found = told_once(store, sweep.id, told)
    assert found == dict.fromkeys(found, 0)
    assert store.get_sweep(sweep.id).state == "complete"
