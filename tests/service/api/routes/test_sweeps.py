"""``/api/v1/sweeps``: every route, and what each refuses."""

import json
import time

import pytest
import yaml

from sweeps.spec.sweep_spec import SweepSpec

SWEEPS = "/api/v1/sweeps"
UNKNOWN = "0123456789ab"


@pytest.fixture
def created(client, spec):
    return client.post(SWEEPS, json=spec).json()


class TestCreate:
    def test_answers_201_with_the_queued_sweep_and_where_it_is(self, client, spec):
        response = client.post(SWEEPS, json=spec)

        sweep = response.json()
        assert response.status_code == 201
        assert response.headers["location"] == f"{SWEEPS}/{sweep['id']}"
        assert (sweep["state"], sweep["kind"], sweep["num_trials"]) == ("queued", "sweep", 8)
        assert sweep["tags"] == ["paper"]
        assert sweep["created_at"].endswith("Z")
        assert client.get(response.headers["location"]).json() == sweep

    def test_yaml_and_json_create_the_same_spec(self, client, spec, created):
        response = client.post(
            SWEEPS, content=yaml.safe_dump(spec), headers={"Content-Type": "application/yaml"}
        )

        assert response.status_code == 201
        assert response.json()["spec"] == created["spec"]

    def test_what_is_stored_reads_as_the_same_spec_again(self, spec, created):
        stored = SweepSpec.model_validate(created["spec"])

        assert stored.config({"alpha_v": 0.05}, 1) == SweepSpec.model_validate(spec).config(
            {"alpha_v": 0.05}, 1
        )

    def test_the_same_key_answers_the_same_even_after_the_sweep_has_ended(self, client, spec):
        headers = {"Idempotency-Key": "once"}
        first = client.post(SWEEPS, json=spec, headers=headers).json()
        client.post(f"{SWEEPS}/{first['id']}/cancel")

        again = client.post(SWEEPS, json=spec, headers=headers)

        assert again.status_code == 201
        assert again.headers["location"] == f"{SWEEPS}/{first['id']}"
        assert (again.json()["id"], again.json()["state"]) == (first["id"], "cancelled")
        assert len(client.get(SWEEPS).json()["items"]) == 1

    def test_the_same_key_with_another_body_is_a_conflict(self, client, spec, assert_error):
        headers = {"Idempotency-Key": "once"}
        client.post(SWEEPS, json=spec, headers=headers)

        response = client.post(SWEEPS, json=spec | {"replicates": 3}, headers=headers)

        assert_error(response, 409, "IdempotencyConflict")

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"space": {"alpha_v": {"kind": "float", "low": 0, "high": 0.1, "log": True}}}, "low"),
            ({"space": {"alpha_v": {"kind": "float", "low": 0.1, "high": 0.001}}}, "space.alpha_v"),
            ({"space": {"alpha_v": {"kind": "choice", "values": []}}}, "space.alpha_v.values"),
            ({"space": {"alpha_w": {"kind": "float", "low": 0, "high": 1}}}, "space.alpha_w"),
            ({"base": {"dataset": "made-up", "optimizer": "adamm"}}, "base.optimizer"),
            ({"base": {"dataset": "made-up", "betas": [0.9, 1.0]}}, "base.betas.1"),
            ({"base": {"dataset": "made-up", "lr": 0.1}}, "base.lr"),
            ({"base": {"dataset": "not-there"}}, "base.dataset"),
            ({"base": {"dataset": "../../etc/passwd"}}, "base.dataset"),
            ({"base": {"dataset": "made-up", "batch_size": 100}}, "base.batch_size"),
            ({"resources": {"cpus": 1.0, "gpus": 2.0}}, "resources.gpus"),
            ({"num_points": 10_000_001}, "num_points"),
            ({"colour": "blue"}, "colour"),
            ({"name": ""}, "name"),
        ],
    )
    def test_a_spec_that_cannot_run_is_refused_by_its_field_and_nothing_is_created(
        self, client, spec, change, path
    ):
        response = client.post(SWEEPS, json=spec | change)

        body = response.json()
        assert response.status_code == 422
        assert any(path in item["path"] for item in body["fields"]), body
        assert client.get(SWEEPS).json()["items"] == []

    def test_a_grid_of_two_to_the_thirty_is_refused_at_once_with_its_size(self, client, spec):
        names = ["alpha_v", "alpha_s", "gamma_c", "lambda_c", "eps", "bn_eps", "bn_momentum"]
        domain = {"kind": "choice", "values": [0.1 + 0.001 * k for k in range(100)]}
        grid = {"sampler": "grid", "num_points": None, "space": dict.fromkeys(names, domain)}

        began = time.process_time()
        response = client.post(SWEEPS, json=spec | grid)
        took = time.process_time() - began

        assert response.status_code == 422
        assert "100,000,000,000,000" in response.json()["detail"]
        assert took < 1

    def test_resources_that_the_cluster_lacks_are_refused_with_what_it_has(
        self, client, store, spec, assert_error
    ):
        store.report_runner("runner", {"cluster": {"nodes": [{"cpus": 2.0, "gpus": 0.0}]}})

        response = client.post(SWEEPS, json=spec | {"resources": {"cpus": 64.0, "gpus": 0.0}})

        body = assert_error(response, 422, "ResourcesNeverFit")
        assert "64 CPUs" in body["detail"]
        assert "2 CPUs" in body["detail"]

    @pytest.mark.parametrize(
        ("resources", "gib", "path"),
        [
            ({"gpus": 1.0, "trials_per_gpu": 8}, 2, "resources.trials_per_gpu"),
            ({"gpus": 1.0}, 1, "base.batch_size"),
        ],
    )
    def test_trials_that_no_card_can_hold_are_refused_with_the_estimate(
        self, client, store, spec, assert_error, resources, gib, path
    ):
        """One such trial takes about 1.2 GiB, most of it the process itself."""
        nodes = [{"cpus": 2.0, "gpus": 1.0, "card_bytes": gib * 2**30}, {"cpus": 4.0, "gpus": 0.0}]
        store.report_runner("runner", {"cluster": {"nodes": nodes}})
        changed = spec | {"resources": resources}

        body = assert_error(client.post(SWEEPS, json=changed), 422, "ConfigDoesNotFit")

        assert body["fields"][0]["path"] == path
        assert f"the card has {gib}.00 GiB" in body["detail"]
        nodes[0]["card_bytes"] = 80 * 2**30
        store.report_runner("runner", {"cluster": {"nodes": nodes}})
        assert client.post(SWEEPS, json=changed).status_code == 201


class TestValidate:
    def test_says_what_a_spec_would_do_and_creates_nothing(self, client, spec):
        found = client.post(f"{SWEEPS}/validate", json=spec).json()

        assert (found["points"], found["replicates"], found["trials"]) == (4, 2, 8)
        assert found["steps"] == 160
        assert 0.001 < found["detectable_difference"] < 0.01
        assert client.get(SWEEPS).json()["items"] == []

    def test_more_seeds_show_smaller_differences(self, client, spec):
        def difference(seeds):
            body = spec | {"replicates": seeds}
            return client.post(f"{SWEEPS}/validate", json=body).json()["detectable_difference"]

        assert difference(1) is None
        assert difference(2) > difference(3) > difference(10)

    def test_lengths_that_vary_give_an_upper_bound(self, client, spec):
        base = {key: value for key, value in spec["base"].items() if key != "steps"}
        space = {"steps": {"kind": "int", "low": 10, "high": 50}}

        found = client.post(f"{SWEEPS}/validate", json=spec | {"base": base, "space": space}).json()

        assert found["steps"] == 8 * 50
        assert any("upper bound" in note for note in found["notes"])

    def test_refuses_what_create_refuses(self, client, spec, assert_error):
        response = client.post(f"{SWEEPS}/validate", json=spec | {"num_points": 0})

        assert_error(response, 422, "ValidationError")


class TestList:
    def test_filters_by_state_kind_tag_and_text(self, client, spec, trained, match_spec):
        waiting = client.post(SWEEPS, json=spec | {"name": "beta", "tags": []}).json()["id"]

        def ids(**query):
            return [item["id"] for item in client.get(SWEEPS, params=query).json()["items"]]

        assert ids() == [waiting, trained.id]
        assert ids(state="queued") == [waiting]
        assert ids(state="complete", kind="sweep") == [trained.id]
        assert ids(kind="match") == []
        assert ids(tag="paper") == [trained.id]
        assert ids(search="bet") == [waiting]
        assert ids(sort="name") == [waiting, trained.id]
        assert ids(sort="-name") == [trained.id, waiting]

    def test_pages_follow_each_other_without_gaps(self, client, spec):
        made = [client.post(SWEEPS, json=spec).json()["id"] for _ in range(5)]

        seen, cursor = [], None
        while True:
            query = {"limit": 2, "sort": "created_at"} | ({"cursor": cursor} if cursor else {})
            page = client.get(SWEEPS, params=query).json()
            assert len(page["items"]) <= 2
            seen += [item["id"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break

        assert seen == made

    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ({"limit": 0}, "ValidationError"),
            ({"limit": 501}, "ValidationError"),
            ({"limit": "many"}, "ValidationError"),
            ({"state": "done"}, "ValidationError"),
            ({"kind": "job"}, "ValidationError"),
            ({"sort": "colour"}, "InvalidSort"),
            ({"cursor": "made-up"}, "InvalidCursor"),
            ({"stat": "queued"}, "ValidationError"),
            ({"search": "a\0"}, "ValidationError"),
        ],
    )
    def test_a_question_without_an_answer_is_refused(self, client, query, name, assert_error):
        body = assert_error(client.get(SWEEPS, params=query), 422, name)

        assert body["fields"][0]["path"] == next(iter(query))

    def test_a_parameter_given_twice_or_in_vain_is_refused_and_not_ignored(
        self, client, trained, assert_error
    ):
        sweep_id = trained.id
        for path, reason in (
            (f"{SWEEPS}?limit=1&limit=2", "'limit' must be given once, got it 2 times"),
            (f"{SWEEPS}/{sweep_id}?limit=1", "'limit' is not a parameter here"),
            ("/api/v1/presets?name=quickstart", "'name' is not a parameter here"),
        ):
            body = assert_error(client.get(path), 422, "InvalidQuery")
            assert body["fields"][0]["reason"] == reason
        two = client.get(f"{SWEEPS}/{sweep_id}/trials/0/metrics?name=validation_error&name=none")
        assert list(two.json()["metrics"]) == ["validation_error"]


class TestOne:
    def test_shows_counts_and_the_best_point_marked_as_selected(self, client, trained):
        sweep = client.get(f"{SWEEPS}/{trained.id}").json()

        assert sweep["state"] == "complete"
        assert sweep["trials"]["complete"] == 3
        assert sweep["trials"]["diverged"] == 1
        assert sweep["best"]["point"] == 0
        assert sweep["best"]["mean"] == pytest.approx(0.105)
        assert sweep["best"]["label"] == "selected, optimistic"

    @pytest.mark.parametrize("bad", [UNKNOWN, "x", "..", "%00", "a" * 64])
    def test_an_id_that_is_not_there_is_not_found(self, client, bad):
        response = client.get(f"{SWEEPS}/{bad}")

        assert response.status_code in (404, 422)
        assert set(response.json()) == {"error", "detail", "fields"}

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/retry"),
            ("POST", "/extend"),
            ("POST", "/confirm"),
            ("PATCH", ""),
            ("GET", "/export"),
            ("GET", "/analysis"),
            ("GET", "/events"),
            ("GET", "/trials"),
            ("GET", "/trials/0"),
            ("GET", "/trials/0/metrics"),
            ("GET", "/trials/0/log"),
        ],
    )
    def test_every_route_below_an_unknown_sweep_is_not_found(
        self, client, method, path, assert_error
    ):
        body = {} if method == "PATCH" or path == "/extend" else None

        response = client.request(method, f"{SWEEPS}/{UNKNOWN}{path}", json=body)

        assert_error(response, 404, "SweepNotFound")


class TestSteering:
    def test_cancel_ends_a_waiting_sweep_and_asking_again_changes_nothing(self, client, created):
        path = f"{SWEEPS}/{created['id']}/cancel"

        first, second = client.post(path), client.post(path)

        assert (first.status_code, first.json()["state"]) == (200, "cancelled")
        assert (second.status_code, second.json()["state"]) == (200, "cancelled")
        assert second.json()["finished_at"] == first.json()["finished_at"]

    def test_a_cancelled_sweep_is_never_handed_to_a_runner(self, client, store, created):
        client.post(f"{SWEEPS}/{created['id']}/cancel")

        assert store.claim("runner") is None

    def test_cancelling_a_running_sweep_leaves_the_wish_to_its_driver(self, client, store, created):
        claim = store.claim("runner")

        sweep = client.post(f"{SWEEPS}/{created['id']}/cancel").json()

        assert (sweep["state"], sweep["requested"]) == ("running", "cancel")
        assert store.requested(claim) == "cancel"

    def test_pause_and_resume(self, client, created):
        path = f"{SWEEPS}/{created['id']}"

        assert client.post(f"{path}/pause").json()["state"] == "paused"
        assert client.post(f"{path}/pause").status_code == 200
        assert client.post(f"{path}/resume").json()["state"] == "queued"
        assert client.post(f"{path}/resume").status_code == 200

    @pytest.mark.parametrize("wish", ["cancel", "pause", "resume"])
    def test_a_complete_sweep_cannot_be_steered(self, client, trained, wish, assert_error):
        assert_error(client.post(f"{SWEEPS}/{trained.id}/{wish}"), 409, "SweepStateConflict")

    def test_delete_removes_a_finished_sweep_with_its_logs_and_checkpoints(
        self, client, trained, home
    ):
        folders = [home / kind / trained.id for kind in ("logs", "checkpoints")]
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "0.log").write_text("x")

        response = client.delete(f"{SWEEPS}/{trained.id}")

        assert (response.status_code, response.content) == (204, b"")
        assert client.get(f"{SWEEPS}/{trained.id}").status_code == 404
        assert not any(folder.exists() for folder in folders)


class TestAnalysis:
    def test_answers_with_tables_for_a_finished_sweep(self, client, trained):
        body = client.get(f"{SWEEPS}/{trained.id}/analysis").json()

        assert body["sweep_id"] == trained.id
        json.dumps(body, allow_nan=False)


def test_lengths_that_conditions_keep_apart_are_counted_apart(client, spec):
    base = {name: value for name, value in spec["base"].items() if name != "steps"}
    space = {
        "recipe": {"kind": "choice", "values": ["paper-tf", "paper-wrn"]},
        "steps": {"kind": "int", "low": 10, "high": 20, "when": {"recipe": ["paper-tf"]}},
        "epochs": {"kind": "int", "low": 1, "high": 2, "when": {"recipe": ["paper-wrn"]}},
    }

    found = client.post(f"{SWEEPS}/validate", json=spec | {"base": base, "space": space}).json()

    assert (found["trials"], found["steps"]) == (8, 8 * 20)


@pytest.mark.parametrize(
    ("base", "space", "path"),
    [
        ({"validation_fraction": 0.001}, {}, "base.validation_fraction"),
        ({"validation_fraction": 0.99}, {}, "base.validation_fraction"),
        (
            {},
            {"widen_factor": {"kind": "choice", "values": [0.5, 1.0]}},
            "space.widen_factor",
        ),
    ],
)
def test_what_no_trial_could_train_is_refused_and_nothing_is_created(
    client, store, spec, assert_error, base, space, path
):
    body = spec | {"base": spec["base"] | base, "space": spec["space"] | space}

    refused = assert_error(client.post(SWEEPS, json=body), 422, "ConfigDoesNotFit")

    assert refused["fields"][0]["path"] == path
    assert store.list_sweeps().items == []
