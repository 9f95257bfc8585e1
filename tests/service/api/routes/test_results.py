"""``/points``, ``/curves`` and ``/best``: a sweep's results in bulk."""

import base64
import hashlib
import json
import math

import pytest

from sweeps.retention.best_weights import weights_of
from sweeps.store.queries import curves
from tests.sweeps.store_cases import claimed, finished_trial, report, run
from tests.sweeps.store_cases import trial as new_trial
from worker.report import Series

WEIGHTS = b"weights of trial 1"


@pytest.fixture
def path(trained):
    return f"/api/v1/sweeps/{trained.id}"


@pytest.fixture
def kept(home, trained):
    file = weights_of(home, trained.id)
    file.parent.mkdir(parents=True)
    file.write_bytes(WEIGHTS)
    about = {"trial": 1, "objective": 0.11, "params": {"alpha_v": 0.05}}
    (file.parent / "best.json").write_text(json.dumps(about))


def test_points_have_intervals_over_seeds(client, path):
    """t for one degree of freedom is 12.706, on the logit scale; a single seed has no interval."""
    first, second = client.get(f"{path}/points").json()["items"]

    assert (first["number"], first["params"], first["n"]) == (0, {"alpha_v": 0.05}, 2)
    assert first["mean"] == pytest.approx(0.105)
    assert first["sd"] == pytest.approx(0.01 / math.sqrt(2))
    high = math.log(0.105 / 0.895) + 12.7062 * 0.005 / (0.105 * 0.895)
    assert first["high"] == pytest.approx(1 / (1 + math.exp(-high)), rel=1e-4)
    # A replicate of the second diverged: it has no mean.
    assert (second["n"], second["mean"], second["sd"], second["low"]) == (1, None, None, None)


def test_points_are_sorted_and_paged(client, path, assert_error):
    first = client.get(f"{path}/points", params={"sort": "-number", "limit": 1}).json()
    asked = {"sort": "-number", "limit": 1, "cursor": first["next"]}
    second = client.get(f"{path}/points", params=asked).json()

    assert [page["items"][0]["number"] for page in (first, second)] == [1, 0]
    assert second["next"] is None
    assert_error(client.get(f"{path}/points", params={"sort": "nope"}), 422, "InvalidSort")


def test_curves_come_whole_without_those_of_layers(client, path):
    items = client.get(f"{path}/curves").json()["items"]

    assert [(one["number"], one["point"], one["seed"]) for one in items] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
        (3, 1, 1),
    ]
    assert set(items[0]["curves"]) == {"validation_error", "train_loss"}
    assert items[0]["curves"]["train_loss"] == {
        "steps": [10, 20],
        "values": [1.0, pytest.approx(0.2)],
    }


def test_only_named_curves_and_dynamics_where_they_are_asked_for(client, path):
    def names(**query):
        items = client.get(f"{path}/curves", params=query).json()["items"]
        return [sorted(one["curves"]) for one in items]

    assert names(name=["train_loss", "nope"]) == [["train_loss"]] * 4
    assert names(kind="dynamics") == [["effective_lr/conv1"]] * 4
    assert names(kind="dynamics", name="train_loss") == [[]] * 4


def test_records_of_every_step_are_dynamics(client, store):
    claim = claimed(store)
    store.add_trials(claim, [new_trial()])
    attempt = store.start_attempt(claim, 0)
    series = {"effective_lr": Series(start=4, every=2, values=[0.5, 0.25])}
    store.record(claim, 0, attempt.id, [report(100, series=series)])
    path = f"/api/v1/sweeps/{claim.sweep_id}/curves"

    [trial] = client.get(path, params={"kind": "dynamics"}).json()["items"]

    assert trial["curves"] == {"effective_lr": {"steps": [4, 6], "values": [0.5, 0.25]}}
    assert "effective_lr" not in client.get(path).json()["items"][0]["curves"]


def test_a_page_of_curves_ends_early_where_trials_hold_many_values(client, store, monkeypatch):
    monkeypatch.setattr(curves, "_TRIALS_AT_ONCE", 2)
    monkeypatch.setattr(curves, "_MOST_VALUES", 3)
    claim = claimed(store, num_trials=7)
    store.add_trials(claim, [new_trial(point) for point in range(7)])
    for number in range(7):
        run(store, claim, number, 0.5)
    path = f"/api/v1/sweeps/{claim.sweep_id}/curves"

    pages, cursor = [], None
    while cursor is not None or not pages:
        page = client.get(path, params={"cursor": cursor} if cursor else {}).json()
        pages.append([one["number"] for one in page["items"]])
        cursor = page["next"]

    assert pages == [[0, 1, 2, 3], [4, 5, 6]]


def test_the_best_trial_and_its_weights(client, path, kept):
    about = client.get(f"{path}/best").json()
    answer = client.get(f"{path}/best/weights")

    digest = hashlib.sha256(WEIGHTS)
    assert (about["trial"], about["point"], about["seed"]) == (1, 0, 1)
    assert (about["bytes"], about["sha256"]) == (len(WEIGHTS), digest.hexdigest())
    assert answer.content == WEIGHTS
    assert answer.headers["content-length"] == str(len(WEIGHTS))
    expected = base64.b64encode(digest.digest()).decode()
    assert answer.headers["repr-digest"] == f"sha-256=:{expected}:"


def test_without_weights_the_answer_says_why(client, path, spec, match_spec, assert_error):
    def why(sweep_path):
        both = [client.get(f"{sweep_path}/{tail}") for tail in ("best", "best/weights")]
        first, second = [assert_error(answer, 404, "WeightsNotKept") for answer in both]
        assert first == second
        return first["detail"]

    waiting = client.post("/api/v1/sweeps", json=spec).json()["id"]
    match = client.post("/api/v1/matches", json=match_spec).json()["id"]

    assert "another NDSWEEP_HOME" in why(path)
    queued = why(f"/api/v1/sweeps/{waiting}")
    assert "none of its trials is complete (the sweep is queued)" in queued
    assert "the trials of a match are measured" in why(f"/api/v1/sweeps/{match}")


def test_a_sweep_without_a_finite_objective_keeps_none(client, finished, assert_error):
    diverged = finished("sgd", [None])

    answer = client.get(f"/api/v1/sweeps/{diverged}/best")

    detail = assert_error(answer, 404, "WeightsNotKept")["detail"]
    assert "no complete trial has a finite objective" in detail


def test_an_imported_sweep_keeps_none(client, store, assert_error):
    done = store.import_sweep(
        {"name": "a"},
        [finished_trial(0, 0.5)],
        key="import-1",
        name="a",
        tags=[],
        notes="",
        num_trials=1,
    )

    answer = client.get(f"/api/v1/sweeps/{done.sweep.id}/best")

    detail = assert_error(answer, 404, "WeightsNotKept")["detail"]
    assert "its results were imported" in detail


@pytest.mark.parametrize("tail", ["points", "curves", "best", "best/weights"])
def test_a_sweep_that_is_not_there_is_not_found(client, tail, assert_error):
    assert_error(client.get(f"/api/v1/sweeps/0123456789ab/{tail}"), 404, "SweepNotFound")
