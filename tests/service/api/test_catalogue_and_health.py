"""What specs can name, and what machines ask."""

import re

import pytest

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


def test_healthz_asks_nothing_of_the_store(client, store, monkeypatch):
    monkeypatch.setattr(store, "health", pytest.fail)

    assert client.get("/healthz").json()["status"] == "ok"


def test_readyz_asks_the_store(client):
    assert client.get("/readyz").json()["store"] == "ok"


def test_metrics_count_sweeps_trials_and_requests_in_prometheus_text(client, trained):
    client.get("/api/v1/sweeps/0123456789ab")

    response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'ndsweep_sweeps{kind="sweep",state="complete"} 1' in lines
    assert 'ndsweep_trials{state="complete"} 3' in lines
    route = "/api/v1/sweeps/{sweep_id}"
    assert f'ndsweep_http_requests_total{{method="GET",route="{route}",status="404"}} 1' in lines
    sample = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)*\})? [0-9.e+-]+')
    for line in lines:
        assert line.startswith("#") or sample.fullmatch(line), line


def test_paths_that_do_not_exist_make_no_counters_of_their_own(client):
    for number in range(5):
        client.get(f"/no/such/{number}")

    assert client.get("/metrics").text.count("/no/such") == 0
