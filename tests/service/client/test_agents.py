"""Trials that run in this process: reports in the background, and requests that are repeated."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from service.client import Agent, Client, ServiceRefused, ServiceUnreachable
from service.client import agents as agents_module
from sweeps.store.store import Store
from tests.service.external_sweeps import SPEC, driven


@pytest.fixture
def service(live: str) -> Iterator[Client]:
    with Client(live) as client:
        yield client


@pytest.fixture
def sweep_id(
    service: Client, store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A driven sweep of four points."""
    monkeypatch.setattr(agents_module, "GATHER_SECONDS", 0.01)
    sweep = service.submit(SPEC)
    with driven(store, home):
        yield sweep.id


def until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


class LostAnswers(httpx2.HTTPTransport):
    """Carries requests out and loses every other answer, as a service that restarts does."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        self.count += 1
        if self.count % 2:
            answer.read()
            raise httpx2.ReadError("lost")
        return answer


def test_a_loop_over_all_trials(service: Client, sweep_id: str) -> None:
    agent = Agent(service, sweep_id, name="me")
    seen = set()
    while (trial := agent.ask()) is not None:
        seen.add(trial.number)
        with trial:
            assert trial.config == {"batch": 32, "seed": 0} | trial.params
            for step in range(1, 51):
                loss = trial.params["x"] + 1 / step
                assert trial.report(step=step, metrics={"loss": loss}, num_steps=50) is False
            assert trial.tell() == "complete"

    assert seen == {0, 1, 2, 3}
    assert agent.reason == "the sweep is complete: all done"
    sweep = service.get(sweep_id)
    assert sweep.trials["complete"] == 4
    assert [s for s, _ in service.metrics(sweep_id, 2)["loss"]] == list(range(1, 51))
    assert service.trial(sweep_id, 0).attempts[0].provenance == {"agent": "me"}


def test_nothing_counts_twice_where_answers_are_lost(live: str, sweep_id: str) -> None:
    with Client(live, transport=LostAnswers()) as client:
        agent = Agent(client, sweep_id)
        while (trial := agent.ask()) is not None:
            for step in range(1, 11):
                trial.report(step=step, metrics={"loss": step})
            assert trial.tell({"loss": 0.5}) == "complete"
    with Client(live) as client:
        trials = list(client.all_trials(sweep_id))
        assert [(one.state, one.objective) for one in trials] == [("complete", 0.5)] * 4
        assert [len(client.trial(sweep_id, n).attempts) for n in range(4)] == [1] * 4
        curve = client.metrics(sweep_id, 0)["loss"]
        assert curve == [*((s, float(s)) for s in range(1, 11)), (11, 0.5)]


def test_a_trial_hears_that_it_must_stop(service: Client, sweep_id: str) -> None:
    trial = Agent(service, sweep_id).ask()
    assert trial is not None
    service.cancel(sweep_id)
    step = 0
    with trial:
        while not trial.report(step=step, metrics={"loss": 0.5}):
            step += 1
            time.sleep(0.01)

    assert trial.should_stop
    assert "cancelled" in trial.stop_reason
    assert service.trial(sweep_id, trial.number).state == "cancelled"


def test_a_trial_without_reports_keeps_its_lease(
    service: Client, sweep_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = []
    heartbeat = Client.heartbeat
    monkeypatch.setattr(
        Client, "heartbeat", lambda *given: (beats.append(given), heartbeat(*given))[1]
    )
    monkeypatch.setattr(Agent, "_beat_seconds", 0.05)
    trial = Agent(service, sweep_id).ask()
    assert trial is not None
    until(lambda: len(beats) >= 3)

    assert trial.tell({"loss": 0.5}) == "complete"
    count = threading.active_count()
    until(lambda: threading.active_count() < count or not trial._agent._sender)


def test_what_is_refused_at_once(service: Client, sweep_id: str) -> None:
    trial = Agent(service, sweep_id).ask()
    assert trial is not None
    wrong: Any
    for wrong in ("0.5", True, [1.0], {"a": 1}, None):
        with pytest.raises(TypeError, match="metric 'loss' must be a number, got "):
            trial.report(step=1, metrics={"loss": wrong})
    with pytest.raises(TypeError, match=r"step must be an integer, got 1\.5"):
        trial.report(step=1.5, metrics={})  # type: ignore[arg-type]
    trial.report(step=np.int64(5), metrics={"loss": np.float32(0.5)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"trial \d is at step 5, got 4"):
        trial.report(step=4, metrics={"loss": 0.5})
    assert trial.tell() == "complete"


def test_a_refused_report_costs_no_other(service: Client, sweep_id: str) -> None:
    trial = Agent(service, sweep_id).ask()
    assert trial is not None
    for step in range(5):
        trial.report(step=step, metrics={"loss": 0.5, "test_error": 7.0 if step == 2 else 0.1})

    with pytest.raises(ServiceRefused, match="test_error must be a fraction from 0 to 1, got 7"):
        trial.tell()
    assert trial.tell() == "complete"
    assert [s for s, _ in service.metrics(sweep_id, trial.number)["loss"]] == [0, 1, 3, 4]


def test_a_value_that_is_not_finite_is_a_divergence(service: Client, sweep_id: str) -> None:
    trial = Agent(service, sweep_id).ask()
    assert trial is not None
    trial.report(step=3, metrics={"loss": math.nan})
    until(lambda: trial.should_stop)

    assert trial.stop_reason == "diverged at step 3"
    assert trial.tell(state="failed", reason="x") == "diverged"


def test_a_block_that_raises_is_a_failure(service: Client, sweep_id: str) -> None:
    agent = Agent(service, sweep_id)
    first, second, third = agent.ask(), agent.ask(), agent.ask()
    assert first is not None
    assert second is not None
    assert third is not None
    with pytest.raises(RuntimeError), first:
        raise RuntimeError("no disk\nno data")
    with second:
        pass
    with pytest.raises(KeyboardInterrupt), third:
        raise KeyboardInterrupt  # of this process, not of the trial

    found = [service.trial(sweep_id, one.number) for one in (first, second, third)]
    assert [(one.state, one.exit_cause) for one in found] == [
        ("failed", "RuntimeError: no data"),
        ("failed", "ended without a tell"),
        ("waiting", "given back by its agent: KeyboardInterrupt"),
    ]
    log = service.log(sweep_id, first.number)
    assert log.startswith("Traceback (most recent call last):")
    assert log.endswith("RuntimeError: no disk\nno data\nRuntimeError: no data\n")


def test_who_cannot_be_asked(service: Client, sweep_id: str, spec: dict[str, Any]) -> None:
    trained = service.submit(spec)
    with pytest.raises(ServiceRefused, match="runs its own trials"):
        Agent(service, trained.id).ask()
    assert [Agent(service, sweep_id).ask() is None for _ in range(4)] == [False] * 4
    agent = Agent(service, sweep_id)
    assert agent.ask(wait_seconds=0.1) is None
    assert agent.reason == "no trial waits, 4 run"
    with Client("http://127.0.0.1:9") as nobody, pytest.raises(ServiceUnreachable):
        Agent(nobody, sweep_id, patience=0.1).ask()


def test_a_trial_whose_client_was_closed_must_stop(
    live: str, sweep_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_beat_seconds", 0.05)
    with Client(live) as client:
        trial = Agent(client, sweep_id).ask()
        assert trial is not None

    until(lambda: trial.should_stop)
    assert trial.stop_reason == "its client was closed"
    assert trial.report(step=1, metrics={"loss": 0.5}) is True
