"""What specs can name, and what machines ask."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.api.app import create_app
from service.api.monitoring import MOST_OWNERS
from service.settings import Settings
from service.version import VERSION
from sweeps.spec.presets import preset_names
from worker.config.train_config import OPTIMIZER_FIELDS


def test_presets_are_specs_that_can_be_posted_back(client):
    items = client.get("/api/v1/presets").json()["items"]

    assert [item["name"] for item in items] == preset_names()
    for item in items:
        assert item["title"]
        path = "/api/v1/matches" if item["kind"] == "match" else "/api/v1/sweeps"
        response = client.post(path, json=item["spec"])
        # The data set alone is missing here: everything else of a preset is right.
        assert response.json()["error"] == "DatasetNotPrepared", (item["name"], response.text)


def test_only_prepared_data_sets_are_listed_and_a_damaged_file_is_none(client, data):
    (data / "broken.ndset").write_bytes(b"not a data set")

    items = client.get("/api/v1/datasets").json()["items"]

    assert [item["name"] for item in items] == ["made-up"]
    assert (items[0]["num_train"], items[0]["shape"]) == (60, [8, 8, 1])


def test_a_damaged_data_set_is_refused_when_a_sweep_names_it(client, data, spec, assert_error):
    (data / "broken.ndset").write_bytes(b"not a data set")

    response = client.post("/api/v1/sweeps", json=spec | {"base": {"dataset": "broken"}})

    assert_error(response, 422, "DatasetNotPrepared")


def test_optimizers_come_with_the_papers_values(client):
    items = {item["name"]: item for item in client.get("/api/v1/optimizers").json()["items"]}

    assert set(items) == set(OPTIMIZER_FIELDS)
    assert items["ndadam"]["published"]["paper-tf"]["alpha_v"] == 0.05
    assert "alpha_v" not in items["sgd"]["fields"]


def test_machines_are_listed_with_the_reason_of_those_that_are_refused(client, store):
    assert client.get("/api/v1/machines").json() == {"items": []}

    right = {"cpus": 16.0, "gpus": 1.0, "card_bytes": 8 * 2**30, "name": "gpu1 (10.0.0.1)"}
    wrong = {"cpus": 4.0, "gpus": 0.0, "name": "cpu2 (10.0.0.2)", "refused": "its code is old"}
    older = {"cpus": 2.0, "gpus": 0.0}
    store.report_runner("runner", {"cluster": {"nodes": [right, wrong, older]}})

    assert client.get("/api/v1/machines").json()["items"] == [
        right | {"refused": ""},
        wrong | {"card_bytes": None},
        older | {"name": "", "card_bytes": None, "refused": ""},
    ]


def test_healthz_asks_nothing_of_the_store(client, store, monkeypatch):
    monkeypatch.setattr(store, "health", pytest.fail)

    assert client.get("/healthz").json()["status"] == "ok"


def test_metrics_count_sweeps_trials_and_requests_in_prometheus_text(client, trained):
    client.get("/api/v1/sweeps/0123456789ab")

    response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {f.name: f for f in text_string_to_metric_families(response.text)}
    assert {name: family.type for name, family in families.items()} == {
        "ndsweep_info": "gauge",
        "ndsweep_sweeps": "gauge",
        "ndsweep_trials": "gauge",
        "ndsweep_http_requests": "counter",
        "ndsweep_http_request_seconds": "counter",
        "ndsweep_http_request_duration_seconds": "histogram",
        "ndsweep_store_transaction_seconds": "histogram",
        "ndsweep_gpu_hours": "gauge",
        "ndsweep_part_state": "gauge",
        "ndsweep_queue_age_seconds": "gauge",
        "ndsweep_mirror_lag_seconds": "gauge",
        "ndsweep_disk_free_bytes": "gauge",
        "ndsweep_disk_size_bytes": "gauge",
    }
    samples = {
        (s.name, *s.labels.values()): s.value
        for family in families.values()
        for s in family.samples
    }
    assert samples["ndsweep_info", VERSION] == 1
    assert samples["ndsweep_sweeps", "sweep", "complete"] == 1
    assert samples["ndsweep_trials", "complete"] == 3
    asked = ("GET", "/api/v1/sweeps/{sweep_id}")
    assert samples["ndsweep_http_requests_total", *asked, "404"] == 1
    seconds = samples["ndsweep_http_request_seconds_total", *asked]
    assert seconds > 0
    assert samples["ndsweep_http_request_duration_seconds_sum", *asked] == seconds
    assert samples["ndsweep_http_request_duration_seconds_bucket", "+Inf", *asked] == 1
    assert samples["ndsweep_store_transaction_seconds_count", "write"] > 0
    assert samples["ndsweep_part_state", "store", "ok"] == 1
    assert samples["ndsweep_part_state", "store", "down"] == 0


def test_hours_of_many_owners_make_no_more_series_than_a_dashboard_holds(
    client, store, monkeypatch
):
    hours = {f"person-{n}": 2.0 for n in range(MOST_OWNERS)} | {"late": 1.0, "": 0.5}
    monkeypatch.setattr(store, "gpu_hours", lambda: hours)

    families = text_string_to_metric_families(client.get("/metrics").text)
    found = next(family for family in families if family.name == "ndsweep_gpu_hours")

    by_owner = {sample.labels["owner"]: sample.value for sample in found.samples}
    assert len(by_owner) == MOST_OWNERS + 1
    assert by_owner["(others)"] == 1.5


def test_each_application_counts_its_own_requests(client, store):
    with TestClient(create_app(store, Settings()), base_url=str(client.base_url)) as other:
        other.get("/healthz")
        assert 'route="/healthz"' in other.get("/metrics").text

    assert 'route="/healthz"' not in client.get("/metrics").text


def test_paths_that_do_not_exist_make_no_counters_of_their_own(client):
    for number in range(5):
        client.get(f"/no/such/{number}")

    assert client.get("/metrics").text.count("/no/such") == 0
