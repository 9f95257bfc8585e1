"""``/matches``: the closed form, and the life of a measured match."""

import json
from pathlib import Path

import pytest

from sweeps.match_spec import MatchSpec

MATCHES = "/api/v1/matches"
SGD = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001}


class TestPredict:
    def test_the_papers_setting_gives_the_papers_alpha_v(self, client):
        """sqrt(2 x 0.1 x 0.001 / (1 - 0.9)) = 0.0447, to the small correction of the norm."""
        found = client.post(f"{MATCHES}/predict", json={"source": SGD}).json()

        by_name = {one["criterion"]: one for one in found["criteria"]}
        assert found["rate_name"] == "alpha_v"
        assert by_name["stationary"]["rate"] == pytest.approx(0.0447, rel=0.01)
        assert found["effective_lr"] == pytest.approx(0.010260, rel=1e-4)
        assert found["tau_steps"] == pytest.approx(250)

    def test_under_a_cosine_every_criterion_has_its_answer_and_schedule_its_points(self, client):
        body = {"source": SGD, "lr_schedule": "cosine", "steps": 80_000}

        found = client.post(f"{MATCHES}/predict", json=body).json()

        by_name = {one["criterion"]: one for one in found["criteria"]}
        assert by_name["least_squares"]["rate"] == pytest.approx(0.0503, rel=0.01)
        assert len(by_name["schedule"]["points"]) > 100
        assert by_name["least_squares"]["points"] is None
        assert found["curve"][0][0] == 0
        assert found["warnings"]

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"source": SGD | {"lr": -1.0}}, "source.lr"),
            ({"source": SGD | {"weight_decay": 0.0}}, "source"),
            ({"source": SGD | {"alpha_v": 0.05}}, "source.alpha_v"),
            ({"source": SGD | {"lr": 0.0}}, "source"),
            ({"source": {"optimizer": "lion"}}, "source.optimizer"),
            ({"target": {"optimizer": "ndadam", "alpha_v": 0.05}}, "target.alpha_v"),
            ({"steps": 0}, "steps"),
            ({"steps": 10**12}, "steps"),
            ({"gain": 0}, "gain"),
            ({"lr_schedule": "cosine_epoch"}, "lr_schedule"),
            ({"level": "both"}, "level"),
        ],
    )
    def test_what_has_no_answer_is_refused_by_its_field(self, client, change, path):
        response = client.post(f"{MATCHES}/predict", json={"source": SGD} | change)

        assert response.status_code == 422, response.text
        assert response.json()["fields"][0]["path"].startswith(path)

    def test_it_creates_nothing_and_needs_no_store(self, client, store):
        store.close()

        assert client.post(f"{MATCHES}/predict", json={"source": SGD}).status_code == 200


class TestMeasured:
    def test_a_match_is_created_listed_and_cancelled(self, client, match_spec):
        response = client.post(MATCHES, json=match_spec)
        match = response.json()

        assert (response.status_code, match["kind"], match["state"]) == (201, "match", "queued")
        assert response.headers["location"] == f"{MATCHES}/{match['id']}"
        assert client.get(f"{MATCHES}/{match['id']}").json() == match
        assert [one["id"] for one in client.get(MATCHES).json()["items"]] == [match["id"]]
        assert client.get("/api/v1/sweeps", params={"kind": "sweep"}).json()["items"] == []
        cancelled = client.post(f"{MATCHES}/{match['id']}/cancel").json()
        assert cancelled["state"] == "cancelled"

    def test_what_is_stored_reads_as_the_same_spec_again(self, client, match_spec):
        stored = client.post(MATCHES, json=match_spec).json()["spec"]

        assert MatchSpec.model_validate(stored) == MatchSpec.model_validate(match_spec)

    def test_it_is_idempotent(self, client, match_spec, assert_error):
        headers = {"Idempotency-Key": "match"}
        first, second = (client.post(MATCHES, json=match_spec, headers=headers) for _ in range(2))

        assert first.json()["id"] == second.json()["id"]
        other = client.post(MATCHES, json=match_spec | {"replicates": 2}, headers=headers)
        assert_error(other, 409, "IdempotencyConflict")

    def test_a_key_used_for_a_sweep_is_taken_for_matches(
        self, client, spec, match_spec, assert_error
    ):
        headers = {"Idempotency-Key": "once"}
        client.post("/api/v1/sweeps", json=spec, headers=headers)

        response = client.post(MATCHES, json=match_spec, headers=headers)

        assert_error(response, 409, "IdempotencyConflict")

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            (
                {"base": {"dataset": "not-there", "steps": 20_000, "lr_schedule": "constant"}},
                "base.dataset",
            ),
            ({"tolerance": 0}, "tolerance"),
            ({"criterion": "exact"}, "criterion"),
            ({"source": SGD | {"weight_decay": 0.0}}, "source"),
            ({"target": {"optimizer": "ndadam", "alpha_v": 0.05}}, "target.alpha_v"),
        ],
    )
    def test_a_match_that_cannot_end_well_is_refused_by_its_field(
        self, client, match_spec, change, path
    ):
        response = client.post(MATCHES, json=match_spec | change)

        assert response.status_code == 422, response.text
        assert response.json()["fields"][0]["path"].startswith(path)
        assert client.get(MATCHES).json()["items"] == []

    def test_a_sweep_is_not_found_among_the_matches(self, client, trained, assert_error):
        for method, tail in (("GET", ""), ("POST", "/cancel"), ("GET", "/events")):
            response = client.request(method, f"{MATCHES}/{trained.id}{tail}")
            assert_error(response, 404, "SweepNotFound")


@pytest.mark.parametrize("setting", ["paper_setting_1", "paper_setting_2"])
def test_the_closed_form_equals_an_independent_derivation(client, setting):
    oracles = json.loads((Path(__file__).parents[1] / "ndadam" / "oracles.json").read_text())
    known = oracles["closed_forms"][setting]
    source = {"optimizer": "sgd"} | {key: known[key] for key in ("lr", "momentum", "weight_decay")}

    found = client.post(f"{MATCHES}/predict", json={"source": source}).json()

    assert found["effective_lr"] == pytest.approx(known["e_sgd"], rel=1e-12)
    assert found["criteria"][0]["rate"] == pytest.approx(
        known["alpha_closed_form_tangential"], rel=1e-12
    )
