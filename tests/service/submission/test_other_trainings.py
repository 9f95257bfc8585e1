"""Routes and pages of sweeps whose config is none of images, with results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sweeps.analysis.whole import driver_analysis
from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.search.proposer import fixed_points
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store
from tests.worker.training.installed import on_path, write_package
from worker.report import Report

RATE = {"kind": "float", "low": 0.01, "high": 0.4, "log": True}
OWN = {
    "name": "own",
    "training": "mine",
    "base": {},
    "space": {"rate": RATE, "steps": {"kind": "int", "low": 3, "high": 9}},
    "objective": {"metric": "loss"},
}
EXTERNAL = {
    "name": "elsewhere",
    "training": "external",
    "base": {"data": "mine"},
    "space": {"rate": RATE, "net": {"kind": "choice", "values": ["a", "b"]}},
    "objective": {"metric": "accuracy"},
    "metrics": {"accuracy": {"direction": "maximize", "unit": "points"}},
}
SHARED = {"num_points": 6, "replicates": 2}


@pytest.fixture(params=[OWN, EXTERNAL], ids=["registered", "external"])
def sweep(
    request: pytest.FixtureRequest, client: TestClient, store: Store, tmp_path: Path
) -> Iterator[str]:
    """Id of a sweep that is complete."""
    with on_path(write_package(tmp_path / "package")):
        response = client.post("/api/v1/sweeps", json=request.param | SHARED)
        assert response.status_code == 201, response.text
        train(store, response.json()["id"])
        yield response.json()["id"]


def train(store: Store, sweep_id: str) -> None:
    """Record made-up trials as a driver does."""
    spec = SweepSpec.model_validate(store.get_sweep(sweep_id).spec)
    claim = store.claim("runner", 1000.0, external=spec.training == "external")
    assert claim is not None
    metric = spec.objective.metric
    for point, params in enumerate(fixed_points(spec)):
        for seed in range(spec.replicates):
            config = spec.config(params, seed)
            new = NewTrial(point, seed, params, config.stored(), config.key())
            (trial,) = store.add_trials(claim, [new])
            attempt = store.start_attempt(claim, trial.number)
            reports = [
                Report(
                    step=step,
                    num_steps=None,
                    status="running" if step < 3 else "complete",
                    metrics={metric: params["rate"] + 0.01 * seed + 1 / step, "extra/a": 1.0},
                    provenance={"training": spec.training, "host": "h"},
                )
                for step in (1, 2, 3)
            ]
            store.record(claim, trial.number, attempt.id, reports)
            done = TrialState.COMPLETE
            store.finish_attempt(
                claim, trial.number, attempt.id, done, "complete", trial_state=done
            )
    store.set_result(claim, driver_analysis(store, sweep_id))
    store.release(claim, SweepState.COMPLETE, "all done")


PATHS = [
    "/",
    "/api/v1/sweeps/{id}",
    "/api/v1/sweeps/{id}/analysis",
    "/api/v1/sweeps/{id}/analysis?format=markdown",
    "/api/v1/sweeps/{id}/export",
    "/api/v1/sweeps/{id}/trials",
    "/api/v1/sweeps/{id}/trials/0",
    "/sweeps/{id}",
    "/sweeps/{id}/parts/overview",
    "/sweeps/{id}/parts/results",
    "/sweeps/{id}/parts/leaderboard",
    "/sweeps/{id}/parts/trials",
    "/sweeps/{id}/plots/curves.json",
    "/sweeps/{id}/plots/sensitivity/rate.json",
    "/sweeps/{id}/plots/importance.json",
    "/sweeps/{id}/plots/variance.json",
    "/sweeps/{id}/plots/parallel.json",
    "/sweeps/{id}/plots/timeline.json",
    "/sweeps/{id}/trials/0",
    "/sweeps/{id}/trials/0/parts/overview",
    "/sweeps/{id}/trials/0/plots/metric/{metric}.json",
    "/sweeps/new?from={id}",
    "/compare?arms={id}",
]


def test_every_route_and_page_answers(client: TestClient, sweep: str) -> None:
    metric = client.get(f"/api/v1/sweeps/{sweep}").json()["spec"]["objective"]["metric"]
    found = {
        path: client.get(path.format(id=sweep, metric=metric), headers={"Accept": "text/html"})
        for path in PATHS
    }

    assert {path: got.text for path, got in found.items() if got.status_code != 200} == {}
    assert f"/plots/metric/{metric}" in found["/sweeps/{id}/trials/0"].text


def test_its_analysis_assumes_no_optimizer(client: TestClient, sweep: str) -> None:
    found: dict[str, Any] = client.get(f"/api/v1/sweeps/{sweep}/analysis").json()["analysis"]

    assert found["arm_fields"] == []
    assert (found["arms"][0]["points"], found["arms"][0]["objective"]["n"]) == (6, 2)
    assert {row["field"] for row in found["importance"]} <= {"rate", "steps", "net"}


def test_its_best_points_are_confirmed_on_fresh_seeds(client: TestClient, sweep: str) -> None:
    response = client.post(f"/api/v1/sweeps/{sweep}/confirm", json={"points": 2, "replicates": 3})
    spec = response.json()["spec"]

    assert response.status_code == 201, response.text
    original = client.get(f"/api/v1/sweeps/{sweep}").json()["spec"]
    for name in ("training", "metrics", "objective"):
        assert spec[name] == original[name]
    assert spec.get("package") == original.get("package")
    assert spec["base"]["seed"] == 2
    assert len(spec["initial_points"]) == 2


def test_it_has_no_validation_images_to_train_on(client: TestClient, sweep: str) -> None:
    response = client.post(f"/api/v1/sweeps/{sweep}/confirm", json={"full_training_set": True})

    assert response.status_code == 409
    assert "only training 'images' holds out validation images" in response.json()["detail"]
