"""Fifty random kills over one sweep: it still ends with everything planned, recorded once."""

import random
from collections.abc import Iterator
from typing import get_args

import pytest

from sweeps.records import TrialState
from tests.faults.checks import assert_whole, finished, settle, small_sweep
from tests.faults.processes import until
from tests.faults.service_under_test import Service, Victim

pytestmark = pytest.mark.stack

KILLS = 50
SEED = 20171211


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("data"))
    try:
        yield service
    finally:
        service.stop()


def test_fifty_random_kills(service: Service) -> None:
    dice = random.Random(SEED)
    spec = small_sweep("random", "soak", milliseconds=250, num_points=200)
    submitted = service.submit(spec)
    kills: list[Victim] = []
    while len(kills) < KILLS:
        # Every kill hits a sweep that has come back from the last one, or nearly so.
        until(lambda: service.sweep(submitted.id).trials["running"], "it runs again", every=0.1)
        settle(dice.uniform(0.0, 3.0))
        victim: Victim = dice.choice(get_args(Victim))
        if not service.pids(victim, submitted.id):
            continue
        assert not service.sweep(submitted.id).state.is_finished(), "the sweep outlasts the kills"
        service.hurt(victim, submitted.id)
        kills.append(victim)
        print(f"kill {len(kills)}: {victim}", service.sweep(submitted.id).trials, flush=True)

    finished(service, submitted.id, 1800)

    assert set(kills) == set(get_args(Victim))
    failed = [t for t in service.store.all_trials(submitted.id) if t.state == TrialState.FAILED]
    for trial in failed:
        # Three of its workers were among the fifty: what the third one means is the contract.
        assert trial.exit_cause.endswith("(attempt 3 of 3)")
    if failed:
        service.client.retry(submitted.id)
        finished(service, submitted.id, 600)
    assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
