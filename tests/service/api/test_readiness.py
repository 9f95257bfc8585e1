"""/readyz and the banner: each part of the service with a state and a sentence."""

import shutil
from collections import namedtuple
from datetime import UTC, datetime, timedelta

import pytest

from service.api import readiness as module
from service.api.readiness import BOOT, KEEP, LATE, MIRROR_LAG, SILENT, Readiness
from service.contract.outputs import ServicePartOut
from sweeps.errors import StoreUnavailable
from sweeps.records import Runner
from sweeps.store.queries.monitoring import Waits

GB = 1_000_000_000
#: What a runner says while all is well.
WELL = {
    "cluster": {"nodes": [{"cpus": 2.0, "gpus": 0.0}]},
    "error": None,
    "drivers": [],
    "max_drivers": 2,
    "lease_seconds": 15.0,
    "mlflow": {"away_seconds": 0.0},
}
Usage = namedtuple("Usage", "total used free")


class Service:
    """A store and a disk as a test wants them, and a clock that it moves."""

    def __init__(self):
        self.now = 0.0
        self.age = 1.0
        self.info = WELL
        self.waits_are = Waits(0.0, None, 0.0)
        self.asked = 0

    def health(self):
        self.asked += 1

    def waits(self):
        return self.waits_are

    def runners(self, within_seconds):
        if self.age is None or self.age > within_seconds:
            return []
        return [Runner("host-1", datetime.now(UTC) - timedelta(seconds=self.age), self.info)]

    def says(self, **changes):
        self.info = WELL | changes


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def readiness(service, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GB, 50 * GB, 50 * GB))
    found = Readiness(service, tmp_path / "not" / "yet", clock=lambda: service.now)
    service.now = BOOT + 1
    return found


def part(readiness, name) -> ServicePartOut:
    return next(one for one in readiness.look().parts if one.name == name)


def test_all_is_well(readiness):
    status = readiness.look()

    assert [(one.name, one.state) for one in status.parts] == [
        (name, "ok") for name in ("store", "runner", "ray", "mlflow", "disk")
    ]
    assert (status.state, status.why_not_running) == ("ok", None)
    assert part(readiness, "ray").detail == "1 machine with 2 CPUs and 0 GPUs"


@pytest.mark.parametrize(
    ("age", "state"),
    [(1, "ok"), (LATE + 5, "degraded"), (SILENT + 5, "down"), (None, "down"), (90_000, "down")],
)
def test_a_runner_is_as_alive_as_its_last_report_is_young(service, readiness, age, state):
    service.age = age

    status = readiness.look()

    assert part(readiness, "runner").state == state
    assert (status.why_not_running is not None) == (state == "down")
    # What nobody reports is not known, which is not down.
    assert part(readiness, "ray").state == ("degraded" if state == "down" else "ok")
    assert status.state == ("ok" if state == "ok" else "degraded")


def test_a_service_that_starts_waits_for_its_runner_without_a_banner(service, readiness):
    service.age, service.now = None, BOOT - 10

    assert part(readiness, "runner").state == "degraded"
    assert readiness.look().why_not_running is None


def test_a_lease_that_ran_out_is_told_with_its_age(service, readiness):
    service.waits_are = Waits(0.0, -40.0, 0.0)

    found = part(readiness, "runner")

    assert found.state == "degraded"
    assert "ran out 40 s ago" in found.detail
    assert readiness.look().lease_age == 55.0


def test_a_lease_has_the_age_since_it_was_renewed(service, readiness):
    service.waits_are = Waits(0.0, 11.0, 0.0)
    service.says(lease_seconds=20.0)

    assert readiness.look().lease_age == 9.0
    assert "leases were renewed 9 s ago" in part(readiness, "runner").detail


FIT = {"cpus": 8.0, "gpus": 1.0, "name": "gpu6"}
UNFIT = {"cpus": 4.0, "gpus": 0.0, "name": "gpu7", "refused": "its home is another folder"}


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ({"error": "the cluster does not answer"}, "down", "does not answer; sweeps wait"),
        ({"cluster": None}, "degraded", "no driver is connected"),
        ({"cluster": {"nodes": []}}, "down", "no machine"),
        ({"cluster": {"nodes": [{"cpus": 0.0, "gpus": 0.0}]}}, "down", "no machine"),
        (
            {"cluster": {"nodes": [FIT, UNFIT, UNFIT]}},
            "degraded",
            "1 machine with 8 CPUs and 1 GPUs; 2 machines refused (GET /api/v1/machines",
        ),
        ({"cluster": {"nodes": [UNFIT]}}, "down", "fit for trials (1 machine refused; GET"),
    ],
)
def test_ray_is_what_the_runner_sees(service, readiness, said, state, words):
    service.says(**said)

    found = part(readiness, "ray")

    assert (found.state, words in found.detail) == (state, True), found
    why = readiness.look().why_not_running
    assert why == (f"Sweeps cannot run: {found.detail}." if state == "down" else None)


@pytest.mark.parametrize(
    ("mlflow", "lag", "state"),
    [
        ({"away_seconds": 0.0}, 0.0, "ok"),
        ({"away_seconds": 0.0}, MIRROR_LAG + 1, "degraded"),
        ({"away_seconds": 300.0}, 300.0, "down"),
        (None, 9999.0, "ok"),
    ],
)
def test_mlflow_may_be_away_and_sweeps_run(service, readiness, mlflow, lag, state):
    service.says(mlflow=mlflow)
    service.waits_are = Waits(0.0, None, lag)

    assert part(readiness, "mlflow").state == state
    # Without an MLflow nothing is ever sent, and no lag is one.
    assert readiness.look().mirror_lag == (None if mlflow is None else lag)
    assert readiness.look().why_not_running is None


@pytest.mark.parametrize(
    ("free", "state"), [(50 * GB, "ok"), (1 * GB, "degraded"), (10_000_000, "down")]
)
def test_a_disk_is_full_before_it_is_full(readiness, monkeypatch, free, state):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GB, 0, free))

    assert part(readiness, "disk").state == state
    assert (readiness.look().why_not_running is None) == (state != "down")
    assert readiness.disk().state == state


def test_what_was_found_is_not_looked_for_again_at_once(service, readiness):
    for _ in range(5):
        readiness.look()
    assert service.asked == 1

    service.now += KEEP
    readiness.look()
    assert service.asked == 2


# --- The route and the pages --------------------------------------------------------------------


def test_readyz_lists_every_part(client, store):
    store.report_runner("host-1", WELL)

    answer = client.get("/readyz")

    body = answer.json()
    assert (answer.status_code, body["store"]) == (200, "ok")
    states = {one["name"]: one["state"] for one in body["parts"]}
    assert list(states) == ["store", "runner", "ray", "mlflow", "disk"]
    assert states["runner"] == states["ray"] == "ok"
    assert all(one["detail"] for one in body["parts"])
    assert "host-1" not in answer.text


def test_without_a_runner_requests_are_served_and_pages_say_it(client, monkeypatch):
    assert "Sweeps cannot run" not in client.get("/").text
    monkeypatch.setattr(module, "BOOT", 0.0)
    monkeypatch.setattr(module, "KEEP", 0.0)
    client.app.state.readiness._until = 0.0

    answer = client.get("/readyz")
    pages = [client.get(address).text for address in ("/", "/matches", "/compare")]
    piece = client.get("/parts/banner").text

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    why = "Sweeps cannot run: no runner has reported"
    assert all(why in text for text in [*pages, piece])


def test_a_store_that_is_away_is_503_and_names_what_else_is_wrong(
    client, store, monkeypatch, assert_error
):
    def away():
        raise StoreUnavailable("the store cannot be used: it is away")

    monkeypatch.setattr(store, "health", away)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GB, 0, 0))

    answer = client.get("/readyz")

    fields = assert_error(answer, 503, "StoreUnavailable")["fields"]
    assert [field["path"] for field in fields] == ["store", "disk"]
    assert answer.headers["retry-after"] == "5"
