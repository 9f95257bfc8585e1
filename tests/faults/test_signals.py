"""SIGTERM of any part is a clean stop within ten seconds, and costs a sweep nothing."""

from collections.abc import Iterator

import pytest

from tests.faults.checks import assert_whole, finished, small_sweep
from tests.faults.processes import below, until
from tests.faults.service_under_test import Service, Victim

pytestmark = pytest.mark.stack

PARTS: tuple[Victim, ...] = ("api", "mlflow", "driver", "runner")


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("data"), nodes=0)
    try:
        yield service
    finally:
        took = service.stop()
    assert took < 10.5


def test_sigterm_of_each_part_in_turn_is_a_clean_stop(service: Service) -> None:
    submitted = service.submit(small_sweep("grid", "signals", milliseconds=400))
    took = {}
    for part in PARTS:
        until(lambda: "step 1" in service.phases(submitted.id), "a trial runs")
        took[part] = service.terminate(service.one(part, submitted.id))
    (ray,) = below(service.process.pid, "-m sweeps.cluster")
    took_by_ray = service.terminate(ray)

    finished(service, submitted.id)

    assert max(took.values()) < 10.5, took
    assert took_by_ray < 10.5
    assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
