"""Records of answered requests, with the ids by which other parts of the service name things."""

import json
import logging

import pytest

from tests.service.api.access.conftest import ADMIN
from worker.process.logs import REQUESTS, JsonFormatter

SWEEPS = "/api/v1/sweeps"


@pytest.fixture
def records():
    """Every record of the service's loggers, as JSON; requests are recorded."""
    found, formatter = [], JsonFormatter("api")

    class Keeper(logging.Handler):
        def emit(self, record):
            found.append(json.loads(formatter.format(record)))

    handler, root, requests = Keeper(), logging.getLogger(), logging.getLogger(REQUESTS)
    root.addHandler(handler)
    requests.setLevel(logging.INFO)
    yield found
    requests.setLevel(logging.NOTSET)
    root.removeHandler(handler)


def test_a_request_is_recorded_with_its_ids(guarded, token, spec, records):
    headers = token("ada")
    token_id = guarded.get("/api/v1/me", headers=headers).json()["token"]
    records.clear()

    made = guarded.post(SWEEPS, json=spec, headers=headers | {"X-Request-ID": "from-proxy.1"})
    sweep_id = made.json()["id"]
    gone = guarded.get(f"{SWEEPS}/{sweep_id}/trials/7", headers=headers)
    guarded.get("/healthz")

    first, second = [one for one in records if one["logger"] == REQUESTS]
    assert made.headers["x-request-id"] == first["request"] == "from-proxy.1"
    assert (first["token"], first["sweep"]) == (token_id, sweep_id)
    assert (first["method"], first["route"], first["status"]) == ("POST", SWEEPS, 201)
    assert first["seconds"] > 0
    assert gone.headers["x-request-id"] == second["request"] != "from-proxy.1"
    assert (second["sweep"], second["trial"], second["status"]) == (sweep_id, 7, 404)
    assert second["route"] == f"{SWEEPS}/{{sweep_id}}/trials/{{number}}"


def test_a_fault_has_the_ids_of_its_request(guarded_app, store, records, monkeypatch):
    from starlette.testclient import TestClient

    def broken(sweep_id):
        raise RuntimeError("inside")

    monkeypatch.setattr(store, "get_sweep", broken)
    client = TestClient(guarded_app, "http://box.example:8000", raise_server_exceptions=False)
    answer = client.get(f"{SWEEPS}/0123456789ab", headers=ADMIN)

    fault = next(one for one in records if one["level"] == "ERROR")
    assert answer.status_code == 500
    assert (fault["request"], fault["sweep"]) == (answer.headers["x-request-id"], "0123456789ab")
    assert fault["token"] == "NDSWEEP_TOKEN"
    assert "RuntimeError: inside" in fault["exception"]


@pytest.mark.parametrize("given", ["a b", "x" * 65, "é", ""])
def test_an_id_that_could_be_mistaken_is_replaced(guarded, given):
    answer = guarded.get("/healthz", headers={"X-Request-ID": given.encode()})

    assert answer.headers["x-request-id"] not in ("", given)


def test_no_address_of_a_public_link_is_recorded(guarded, records):
    key = "k" * 43
    guarded.get(f"/shared/{key}")
    guarded.get(f"/shared/{key}", headers={"Host": "elsewhere.example"})

    assert [one["status"] for one in records if one["logger"] == REQUESTS] == [404, 403]
    assert key not in str(records)


def test_who_is_turned_away_is_recorded_without_a_token(guarded, records):
    guarded.get(SWEEPS, headers={"Authorization": "Bearer nds_wrong"})

    answered = [one for one in records if one["logger"] == REQUESTS]
    assert [(one["status"], "token" in one) for one in answered] == [(401, False)]
