"""The typed client against a real server."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn

from service.api.routes import events as route
from service.client import client as module
from service.client.client import Client, ServiceRefused, ServiceUnreachable
from service.supervision.ports import listen

#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 180.0


@pytest.fixture
def service(live, monkeypatch):
    monkeypatch.setattr(route, "POLL_SECONDS", 0.02)
    with Client(live) as client:
        yield client


def test_a_sweep_is_submitted_read_listed_steered_and_deleted(service, spec):
    sweep = service.submit(spec, idempotency_key="k")

    assert service.submit(spec, idempotency_key="k").id == sweep.id
    assert service.get(sweep.id) == sweep
    assert [one.id for one in service.list_sweeps(tag="paper", state=None).items] == [sweep.id]
    assert service.pause(sweep.id).state == "paused"
    assert service.resume(sweep.id).state == "queued"
    assert service.cancel(sweep.id).state == "cancelled"
    service.delete(sweep.id)
    with pytest.raises(ServiceRefused, match="there is no sweep"):
        service.get(sweep.id)


def test_a_spec_file_goes_as_it_is(service):
    text = b"name: a\nbase: {dataset: made-up, steps: 5, batch_size: 8}\nnum_points: 1\n"
    text += b"space: {alpha_v: {kind: float, low: 1e-3, high: 0.1}}\n"

    assert service.validate((text, "application/yaml")).trials == 1
    assert service.submit((text, "application/yaml")).num_trials == 1


def test_a_refusal_carries_the_services_sentence_and_fields(service, spec):
    with pytest.raises(ServiceRefused) as caught:
        service.submit(spec | {"num_points": 0})

    assert caught.value.status == 422
    assert caught.value.error == "ValidationError"
    assert caught.value.fields[0].path == "num_points"
    assert "num_points" in str(caught.value)


def test_trials_metrics_logs_analysis_and_export(service, trained):
    assert [trial.number for trial in service.all_trials(trained.id)] == [0, 1, 2, 3]
    assert service.trials(trained.id, state="diverged").items[0].number == 3
    assert service.trial(trained.id, 0).attempts[0].number == 1
    assert service.metrics(trained.id, 0, name="train_loss")["train_loss"][0] == (10, 1.0)
    assert service.log(trained.id, 0) == ""
    assert service.analysis(trained.id).metric == "validation_error"
    assert b"".join(service.export(trained.id, "csv")).count(b"\n") == 5
    with pytest.raises(ServiceRefused):
        list(service.export("0123456789ab"))


def test_matches_and_what_there_is(service, match_spec):
    source = match_spec["source"]

    assert service.predict({"source": source}).criteria[0].rate == pytest.approx(0.045, rel=0.01)
    match = service.match(match_spec, idempotency_key="m")
    assert service.get_match(match.id) == match
    assert [one.name for one in service.datasets()] == ["made-up"]
    assert "ndadam" in [one.name for one in service.optimizers()]
    assert "quickstart" in [one.name for one in service.presets()]
    assert service.is_ready()


def test_watch_gives_every_event_until_the_sweep_is_finished(service, store, trained):
    seen = [event.id for event in service.watch(trained.id)]

    assert seen == [event.id for event in store.events(trained.id, 0, 1000)]


class Serving:
    """The application behind a real server in a thread."""

    def __init__(self, app, port):
        self._listening = listen("127.0.0.1", port, 0)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with self._listening:
            self._server.run(sockets=[self._listening])

    def stop(self):
        """End it in the middle of what it answers; returns when its port is free."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


@pytest.fixture
def serve(app, held_port):
    """Starts a server on the held port; none outlives the test."""
    started = []

    def start():
        started.append(Serving(app, held_port))
        return started[-1]

    yield start
    for serving in started:
        serving.stop()


def test_watch_comes_back_after_a_broken_connection_and_misses_nothing(
    serve, store, spec, held_port
):
    """The server goes away in the middle and another one takes its port."""
    sweep, _ = store.create_sweep("sweep", spec, name="a")
    serving = serve()
    seen = []
    with Client(f"http://127.0.0.1:{held_port}") as client:
        for event in client.watch(sweep.id):
            seen.append(event.data["state"])
            if event.data["state"] == "queued" and len(seen) == 1:
                serving.stop()
                store.request(sweep.id, "pause")
                store.request(sweep.id, "cancel")
                serve()

    assert seen == ["queued", "paused", "cancelled"]


class Clock:
    """The client's time: it moves only when told, and says when it was looked at."""

    def __init__(self):
        self.now, self.was_asked = 0.0, threading.Event()
        self.sleep = time.sleep

    def monotonic(self):
        self.was_asked.set()
        return self.now


def test_a_long_silence_does_not_count_against_the_patience(
    store, serve, spec, monkeypatch, held_port
):
    """The service is well and the sweep says nothing; only then does the connection break."""
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.1)
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    sweep, _ = store.create_sweep("sweep", spec, name="a")
    serving = serve()
    heard = []

    def replace():
        try:
            clock.now = 1000.0
            clock.was_asked.clear()
            heard.append(clock.was_asked.wait(PATIENCE))
            serving.stop()
            store.request(sweep.id, "cancel")
            serve()
        except BaseException:
            clock.now = math.inf  # nobody will answer any more
            raise

    seen, silence = [], []
    with ThreadPoolExecutor(1) as pool, Client(f"http://127.0.0.1:{held_port}") as client:
        for event in client.watch(sweep.id, patience=60):
            seen.append(event.data["state"])
            if len(seen) == 1:
                silence.append(pool.submit(replace))

    silence[0].result()
    assert heard == [True]
    assert seen == ["queued", "cancelled"]


def test_watching_a_sweep_that_is_not_there_is_refused(service):
    with pytest.raises(ServiceRefused, match="there is no sweep"):
        list(service.watch("0123456789ab"))


def test_no_service_is_a_sentence_that_says_what_to_do():
    with Client("http://127.0.0.1:9") as client:
        assert not client.is_ready()
        with pytest.raises(ServiceUnreachable, match="ndsweep serve"):
            client.get("0123456789ab")
        with pytest.raises(ServiceUnreachable):
            list(client.watch("0123456789ab", patience=0.3))


def test_another_program_at_the_address_is_told_apart(live):
    with Client(f"{live}/docs") as client, pytest.raises(ServiceRefused) as caught:
        client.get("0123456789ab")

    assert caught.value.status == 404
