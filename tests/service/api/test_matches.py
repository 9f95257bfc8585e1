"""``/matches``: the closed form, and the life of a measured match."""

import json
from pathlib import Path

import pytest

from sweeps.match.match_spec import MatchSpec
from sweeps.records import NewTrial, SweepState, TrialState
from worker.config.train_config import config_key
from worker.report import Report, Series

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
            ({"source": SGD | {"weight_decay": 0.0}}, "source.weight_decay"),
            ({"source": SGD | {"decay_on": "scalars"}}, "source.decay_on"),
            ({"source": {"optimizer": "adam", "lr": 0.001}}, "source.optimizer"),
            ({"target": {"optimizer": "adam"}}, "target.optimizer"),
            ({"target": {"optimizer": "adam", "weight_decay": 0.1}}, "target.optimizer"),
            ({"target": {"optimizer": "sgd", "weight_decay": 0.0}}, "target.weight_decay"),
            ({"source": SGD | {"momentum": 0.5}}, "level"),
            ({"source": SGD | {"lr": 100.0}}, "source.lr"),
            ({"lr_schedule": [[0, 0.0], [79_999, 0.0]]}, "lr_schedule"),
            ({"lr_schedule": [[0, 0.0], [90_000, 0.0], [100_000, 1.0]]}, "lr_schedule"),
            ({"lr_schedule": [[5, 1.0], [2, 0.5]]}, "lr_schedule"),
            ({"lr_schedule": [[0, 1.0], [0, 0.5]]}, "lr_schedule"),
            ({"warmup_steps": 80_001}, "warmup_steps"),
            ({"source": {"optimizer": "sgd", "lr": 0.1}}, "source.weight_decay"),
            ({"target": {"optimizer": "adamw"}}, "target.weight_decay"),
            ({"source": SGD | {"alpha_v": 0.05}}, "source.alpha_v"),
            ({"source": SGD | {"lr": 0.0}}, "source"),
            ({"source": SGD | {"lr": 1e-300}}, "source.weight_decay"),
            ({"target": {"optimizer": "sgd", "weight_decay": 1e300}}, "target.weight_decay"),
            (
                {
                    "source": {"optimizer": "ndadam", "alpha_v": 1e-300},
                    "target": {"optimizer": "adamw", "weight_decay": 0.1},
                },
                "source.alpha_v",
            ),
            ({"source": {"optimizer": "lion"}}, "source.optimizer"),
            ({"target": {"optimizer": "adamw", "dampening": 0.5}}, "target.dampening"),
            ({"source": SGD | {"optimizer": "sgdw", "nesterov": True}}, "source.nesterov"),
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
        assert response.json()["detail"].startswith(path)

    @pytest.mark.parametrize(
        ("change", "criterion"),
        [
            ({}, "stationary"),
            ({"lr_schedule": "cosine"}, "least_squares"),
            ({"warmup_steps": 100}, "least_squares"),
        ],
    )
    def test_the_usual_criterion_of_the_schedule_is_named(self, client, change, criterion):
        found = client.post(f"{MATCHES}/predict", json={"source": SGD} | change).json()

        assert found["criterion"] == criterion

    def test_with_decay_the_target_is_told_that_a_product_counts(self, client):
        target = {"optimizer": "adamw", "weight_decay": 0.5, "betas": [0.9, 0.999]}
        found = client.post(f"{MATCHES}/predict", json={"source": SGD, "target": target}).json()

        (warning,) = found["warnings"]
        assert "what counts is lr x weight_decay, 0.000991" in warning

    def test_published_values_that_the_answer_rests_on_are_named(self, client):
        bare = {"optimizer": "sgd", "weight_decay": 0.001}
        named, said = (
            client.post(f"{MATCHES}/predict", json=body).json()["warnings"]
            for body in (
                {"source": bare},
                {"source": SGD, "target": {"optimizer": "ndadam", "betas": [0.9, 0.99]}},
            )
        )

        assert named[-1] == (
            "Not given, so published values were taken: source.lr 0.1, source.momentum 0.9, "
            "target.betas (0.9, 0.999)."
        )
        assert not any("published" in warning for warning in said)

    def test_sgd_without_decay_is_told_what_it_has_instead(self, client):
        body = {"source": SGD | {"weight_decay": 0.0}}
        detail = client.post(f"{MATCHES}/predict", json=body).json()["detail"]

        assert "no stationary effective learning rate" in detail
        assert "a rate that falls with time, like one over the root of the steps done" in detail

    @pytest.mark.parametrize(
        ("source", "e"),
        [
            # 2 x lr x decay x (1 - dampening) / (1 + momentum), as torch's SGD steps.
            (SGD | {"dampening": 0.5}, (2 * 0.1 * 0.001 * 0.5 / 1.9) ** 0.5),
            # White noise: 2 ep (1 - mu) [(1 + mu)^2 + mu^4 / (1 - mu^2)].
            (SGD | {"nesterov": True}, (2e-4 * 0.1 * (1.9**2 + 0.9**4 / 0.19)) ** 0.5),
            # 2 ep (1 - b) / (1 + b) with b = mu (1 - ep).
            (
                SGD | {"optimizer": "sgdw", "weight_decay": 0.01},
                (2e-3 * (1 - 0.9 * 0.999) / (1 + 0.9 * 0.999)) ** 0.5,
            ),
        ],
    )
    def test_every_kind_of_sgd_that_theory_knows_is_answered(self, client, source, e):
        found = client.post(f"{MATCHES}/predict", json={"source": source}).json()

        assert found["effective_lr"] == pytest.approx(e, rel=1e-12)

    def test_sgdw_can_be_the_target(self, client):
        target = {"optimizer": "sgdw", "momentum": 0.9, "weight_decay": 0.01}
        found = client.post(f"{MATCHES}/predict", json={"source": SGD, "target": target}).json()

        assert found["rate_name"] == "lr"
        # ep = lr x decay = eta lambda / (1 - mu), to first order.
        assert found["criteria"][0]["rate"] == pytest.approx(0.1, rel=0.02)

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
    oracles = json.loads((Path(__file__).parents[2] / "ndadam" / "oracles.json").read_text())
    known = oracles["closed_forms"][setting]
    source = {"optimizer": "sgd"} | {key: known[key] for key in ("lr", "momentum", "weight_decay")}

    found = client.post(f"{MATCHES}/predict", json={"source": source}).json()

    assert found["effective_lr"] == pytest.approx(known["e_sgd"], rel=1e-12)
    assert found["criteria"][0]["rate"] == pytest.approx(
        known["alpha_closed_form_tangential"], rel=1e-12
    )


class TestOtherSources:
    def test_a_recorded_curve_is_stored_with_the_spec(self, client, match_spec):
        match_spec["source"]["curve"] = {"every": 4, "values": [0.0103] * 5000}
        response = client.post(MATCHES, json=match_spec)

        assert response.status_code == 201, response.text
        stored = response.json()["spec"]
        assert MatchSpec.model_validate(stored) == MatchSpec.model_validate(match_spec)

    def test_a_curve_in_percent_is_refused_by_its_field(self, client, match_spec):
        match_spec["source"]["curve"] = {"values": [1.03] * 20_000}
        response = client.post(MATCHES, json=match_spec)

        assert response.status_code == 422
        assert "divide percents by 100" in response.json()["detail"]

    def test_a_finished_trial_gives_the_match_its_base_and_source(
        self, client, store, match_spec, recorded_trial
    ):
        asked = {
            "source": {"sweep": recorded_trial.sweep_id, "trial": recorded_trial.number},
            "match": {"name": "of a trial", "target": match_spec["target"], "replicates": 2},
        }
        response = client.post(f"{MATCHES}/of-trial", json=asked)

        assert response.status_code == 201, response.text
        spec = MatchSpec.model_validate(response.json()["spec"])
        assert (spec.source.optimizer, spec.source.lr, spec.replicates) == ("sgd", 0.1, 2)
        assert spec.num_steps == 20_000
        assert spec.source.curve is not None
        assert spec.source.curve.values[:2] == (0.0103, 0.0103)

    def test_what_a_trial_recorded_step_by_step_is_handed_out_where_it_is_asked_for(
        self, client, recorded_trial
    ):
        url = f"/api/v1/sweeps/{recorded_trial.sweep_id}/trials/{recorded_trial.number}/metrics"
        asked = client.get(f"{url}?name=effective_lr&max_points=5000").json()["metrics"]

        assert len(asked["effective_lr"]) == 5000
        assert asked["effective_lr"][0] == [0, 0.0103]
        assert asked["effective_lr"][-1] == [19_998, 0.0103]
        assert "effective_lr" not in client.get(url).json()["metrics"]
        assert client.get(f"{url}?name=no_such").json()["metrics"] == {}

    def test_a_trial_that_recorded_nothing_is_trained_again(
        self, client, match_spec, unrecorded_trial
    ):
        asked = {
            "source": {"sweep": unrecorded_trial.sweep_id, "trial": unrecorded_trial.number},
            "match": {"name": "of a trial", "target": match_spec["target"]},
        }
        response = client.post(f"{MATCHES}/of-trial", json=asked)

        assert response.status_code == 201, response.text
        assert response.json()["spec"]["source"]["curve"] is None

    def test_trials_that_make_no_match_are_refused(self, client, trained, assert_error):
        def ask(trial, match):
            asked = {"source": {"sweep": trained.id, "trial": trial}, "match": match}
            return client.post(f"{MATCHES}/of-trial", json=asked)

        target = {"name": "x", "target": {"optimizer": "ndadam"}}
        assert_error(ask(99, target), 404, "TrialNotFound")
        assert_error(ask(3, target), 409, "TrialNotComplete")
        assert_error(ask(0, target), 422, "TrialMakesNoMatch")
        assert ask(0, target | {"base": {}}).json()["fields"][0]["path"] == "match.base"


def _ended(store, match_spec, *, with_curve):
    """A complete source trial of 20,000 steps in a sweep of its own."""
    spec = MatchSpec.model_validate(match_spec)
    sweep, _ = store.create_sweep(
        "sweep", match_spec, name="earlier", tags=[], notes="", num_trials=1
    )
    claim = store.claim("tester")
    config = spec.source_config.stored()
    (trial,) = store.add_trials(claim, [NewTrial(0, 0, {}, config, config_key(config))])
    attempt = store.start_attempt(claim, trial.number)
    piece = Series(start=0, every=2, values=[0.0103] * 10_000)
    report = Report(
        step=20_000,
        num_steps=20_000,
        status="complete",
        metrics={"train_loss": 1.0},
        series={"effective_lr": piece} if with_curve else {},
    )
    store.record(claim, trial.number, attempt.id, [report])
    store.finish_attempt(
        claim,
        trial.number,
        attempt.id,
        TrialState.COMPLETE,
        "complete",
        trial_state=TrialState.COMPLETE,
        objective=1.0,
    )
    store.release(claim, SweepState.COMPLETE, "all done")
    return store.trial(sweep.id, trial.number)


@pytest.fixture
def recorded_trial(store, match_spec):
    return _ended(store, match_spec, with_curve=True)


@pytest.fixture
def unrecorded_trial(store, match_spec):
    return _ended(store, match_spec, with_curve=False)
