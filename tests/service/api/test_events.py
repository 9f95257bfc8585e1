"""Server-sent events: everything once, in order, from where the reader stopped."""

import json
import threading
import time
from contextlib import contextmanager

import httpx2
import pytest

from service.api.routes import events as route


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(route, "POLL_SECONDS", 0.02)


def read(client, sweep_id, headers=None, **query):
    """(id, name, data) of every event of a stream that ends."""
    path = f"/api/v1/sweeps/{sweep_id}/events"
    response = client.get(path, headers=headers or {}, params=query)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in response.text.strip().split("\n\n"):
        if not block.startswith(":"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            found.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return found


def test_a_finished_sweep_gives_all_its_events_and_ends(client, store, trained):
    events = read(client, trained.id)

    stored = store.events(trained.id, 0, 1000)
    assert [int(event[0]) for event in events[:-1]] == [event.id for event in stored]
    assert [event[1] for event in events[:-1]] == [event.kind for event in stored]
    assert events[0][2]["data"]["state"] == "queued"
    assert events[-1] == (None, "end", {"state": "complete"})


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_a_reader_goes_on_after_the_last_event_it_saw(client, trained, cut):
    everything = read(client, trained.id)
    last = everything[cut][0]

    by_header = read(client, trained.id, {"Last-Event-ID": last})
    by_query = read(client, trained.id, after=last)

    assert by_header == by_query == everything[cut + 1 :]


def test_the_header_wins_over_the_query_even_where_it_is_0(client, trained):
    everything = read(client, trained.id)

    assert read(client, trained.id, {"Last-Event-ID": "0"}, after=everything[3][0]) == everything


def test_a_reader_who_saw_everything_is_told_that_it_has_ended(client, trained):
    last = read(client, trained.id)[-2][0]

    assert read(client, trained.id, {"Last-Event-ID": last}) == [
        (None, "end", {"state": "complete"})
    ]


def test_events_arrive_while_the_sweep_goes_on_until_it_is_finished(client, store, spec):
    sweep_id = client.post("/api/v1/sweeps", json=spec).json()["id"]

    def later():
        time.sleep(0.1)
        store.request(sweep_id, "pause")
        time.sleep(0.1)
        store.request(sweep_id, "cancel")

    thread = threading.Thread(target=later)
    thread.start()
    events = read(client, sweep_id)
    thread.join()

    assert [event[2].get("data", {}).get("state") for event in events[:-1]] == [
        "queued",
        "paused",
        "cancelled",
    ]
    assert events[-1][1] == "end"


@contextmanager
def stream_of(url, sweep_id):
    """The lines of a sweep's events, as they come."""
    with (
        httpx2.Client(base_url=url, timeout=300) as client,
        client.stream("GET", f"/api/v1/sweeps/{sweep_id}/events") as response,
    ):
        assert response.status_code == 200
        yield response.iter_lines()


def test_a_quiet_stream_says_that_it_is_alive(live, store, spec, monkeypatch):
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.05)
    sweep, _ = store.create_sweep("sweep", spec, name="quiet")

    with stream_of(live, sweep.id) as lines:
        assert next(line for line in lines if line.startswith(":")) == ": ping"
        store.request(sweep.id, "cancel")
        assert "event: end" in list(lines)


def test_a_deleted_sweep_ends_the_stream(live, store, spec):
    sweep, _ = store.create_sweep("sweep", spec, name="deleted")

    with stream_of(live, sweep.id) as lines:
        assert next(lines) == "event: sweep"
        store.request(sweep.id, "cancel")
        store.delete_sweep(sweep.id)
        rest = list(lines)

    assert rest[-1] == ""  # whole events alone, and then no more


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 30])
def test_an_event_id_that_cannot_be_one_is_refused(client, trained, value, assert_error):
    path = f"/api/v1/sweeps/{trained.id}/events"

    assert_error(client.get(path, headers={"Last-Event-ID": value}), 422, "ValidationError")
    assert_error(client.get(path, params={"after": value}), 422, "ValidationError")
