"""Fixtures of the service's tests: a store, the application over it, and a sweep with results."""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from service.api.app import create_app
from service.api.http_protocol import Connection
from service.api.routes import events
from service.cli.app import app as command_line
from service.settings import Settings
from service.supervision.home import Endpoints, write_endpoints
from sweeps.records import Claim, NewTrial, Sweep, SweepState, TrialState
from sweeps.store.store import Store
from tests.service.analysed_routes import analyse_routes_once
from worker.config.train_config import config_key
from worker.data.prepared import Arrays, write_dataset
from worker.report import Report

URL = "http://127.0.0.1:8000"

analyse_routes_once()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests see no NDSWEEP_ variable of the person who runs them, and write to their own folder."""
    import os

    for name in list(os.environ):
        if name.startswith("NDSWEEP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NDSWEEP_DATA", str(tmp_path / "data"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data home with one prepared set, ``made-up``: 60 and 20 images of 8 x 8, two classes."""
    folder = tmp_path / "data"
    rng = np.random.default_rng(0)

    def images(count: int) -> Any:
        return rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)

    def labels(count: int) -> Any:
        return (np.arange(count) % 2).astype(np.uint16)

    arrays = Arrays(images(60), labels(60), images(20), labels(20))
    write_dataset("made-up", folder, arrays, classes=("even", "odd"), source="made up for tests")
    return folder


@pytest.fixture
def store(home: Path, empty_database: Path) -> Iterator[Store]:
    shutil.copy(empty_database, home / "store.db")
    store = Store(f"sqlite:///{home / 'store.db'}")
    yield store
    store.close()


@pytest.fixture
def settings(home: Path, data: Path) -> Settings:
    return Settings(home=home, data=data)


@pytest.fixture
def app(store: Store, settings: Settings) -> FastAPI:
    return create_app(store, settings)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=URL, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def live(app: FastAPI) -> Iterator[str]:
    """Address of the application behind a real server in a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        config = uvicorn.Config(
            app, http=Connection, ws="none", log_level="error", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def ndsweep(
    home: Path, data: Path, live: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run a command against the live service, as its endpoints.json names it."""
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)
    write_endpoints(home, Endpoints(1, live, "http://127.0.0.1:5000"))
    return lambda *arguments: CliRunner().invoke(command_line, [str(part) for part in arguments])


@pytest.fixture
def held_port() -> Iterator[int]:
    """A port that refuses connections until a test listens there; nobody else can take it."""
    with socket.socket() as holder:
        # What listens with the same option, as servers do, may bind it beside this one.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def assert_error() -> Callable[..., dict[str, Any]]:
    """The one shape: ``assert_error(response, status, name)``; returns the body."""

    def check(response: Any, status: int, name: str) -> dict[str, Any]:
        assert response.headers["content-type"] == "application/json", response.text[:300]
        body = response.json()
        assert (response.status_code, body["error"]) == (status, name), body
        assert set(body) == {"error", "detail", "fields"}
        assert body["detail"]
        assert "Traceback" not in response.text
        for item in body["fields"]:
            assert set(item) == {"path", "reason"}
            assert item["reason"]
        return body

    return check


@pytest.fixture
def spec() -> dict[str, Any]:
    """A sweep of 4 points with 2 seeds each that this machine could run."""
    return {
        "name": "alpha",
        "base": {
            "dataset": "made-up",
            "depth": 10,
            "widen_factor": 1.0,
            "steps": 20,
            "batch_size": 8,
        },
        "space": {"alpha_v": {"kind": "float", "low": 0.01, "high": 0.1, "log": True}},
        "num_points": 4,
        "replicates": 2,
        "tags": ["paper"],
        "notes": "first try",
    }


@pytest.fixture
def match_spec() -> dict[str, Any]:
    return {
        "name": "sgd-to-ndadam",
        "base": {
            "dataset": "made-up",
            "depth": 10,
            "widen_factor": 1.0,
            "steps": 20_000,
            "batch_size": 8,
            "lr_schedule": "constant",
        },
        "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001},
        "target": {"optimizer": "ndadam"},
    }


def _finish(
    store: Store,
    claim: Claim,
    number: int,
    attempt_id: int,
    ended: TrialState,
    objective: float | None,
) -> None:
    """End an attempt, and its trial in the same state."""
    store.finish_attempt(
        claim, number, attempt_id, ended, ended.value, trial_state=ended, objective=objective
    )


@pytest.fixture
def trained(store: Store, spec: dict[str, Any]) -> Sweep:
    """A complete sweep: two points, two seeds each; the second point's last seed diverged."""
    sweep, _ = store.create_sweep(
        "sweep", spec, name="trained", tags=["paper"], notes="", num_trials=4
    )
    claim = store.claim("tester")
    assert claim is not None
    new = [_new_trial(point, seed) for point in range(2) for seed in range(2)]
    for trial in store.add_trials(claim, new):
        attempt = store.start_attempt(claim, trial.number)
        ended = TrialState.DIVERGED if trial.number == 3 else TrialState.COMPLETE
        error = 0.1 + 0.1 * trial.point + 0.01 * trial.seed
        reports = [_report(10, 0.5, "running"), _report(20, error, "complete")]
        if ended == TrialState.DIVERGED:
            reports = [_report(10, 0.5, "running")]
        store.record(claim, trial.number, attempt.id, reports)
        objective = error if ended == TrialState.COMPLETE else None
        _finish(store, claim, trial.number, attempt.id, ended, objective)
    store.release(claim, SweepState.COMPLETE, "all done")
    return store.get_sweep(sweep.id)


@pytest.fixture
def finished(client: TestClient, store: Store, spec: dict[str, Any]) -> Callable[..., str]:
    """Makes a complete sweep of one point: its test errors by seed, its provenance."""

    def make(
        name: str,
        errors: Sequence[float | None],
        *,
        config: dict[str, Any] | None = None,
        provenance: dict[str, Any] | None = None,
        state: SweepState = SweepState.COMPLETE,
        lost: Sequence[float | None] = (),
        **changes: Any,
    ) -> str:
        sweep = client.post(
            "/api/v1/sweeps",
            json=spec | {"name": name, "replicates": max(1, len(errors))} | changes,
        ).json()
        claim = store.claim("tester")
        assert claim is not None
        config = {"optimizer": name.split()[0], "dataset": "made-up", "depth": 10} | (config or {})
        for seed, error in enumerate([*errors, *lost]):
            new = NewTrial(0, seed, {"alpha_v": 0.05}, config | {"seed": seed}, f"key-{name}")
            trial = store.add_trials(claim, [new])[0]
            attempt = store.start_attempt(claim, trial.number)
            ended = TrialState.COMPLETE if seed < len(errors) else TrialState.DIVERGED
            metrics = {} if error is None else {"test_error": error, "validation_error": 2 * error}
            report = Report(
                step=20,
                num_steps=20,
                status="complete",
                metrics=metrics,
                provenance=provenance or {"card": "H100", "versions": {"torch": "2.14"}},
            )
            store.record(claim, trial.number, attempt.id, [report])
            objective = None if error is None else 2 * error
            _finish(store, claim, trial.number, attempt.id, ended, objective)
        store.release(claim, state, "all done")
        return str(sweep["id"])

    return make


def _new_trial(point: int, seed: int) -> NewTrial:
    params = {"alpha_v": (0.05, 0.06)[point]}
    config = {"dataset": "made-up", "seed": seed, **params}
    return NewTrial(point, seed, params, config, config_key(config))


def _report(step: int, error: float, status: Any) -> Report:
    metrics = {"validation_error": error, "train_loss": 2 * error, "effective_lr/conv1": 0.01}
    return Report(
        step=step, num_steps=20, status=status, metrics=metrics, provenance={"host": "here"}
    )
