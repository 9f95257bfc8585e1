"""Extend, confirm, label, delete: every state, and each of them twice."""

import pytest

from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.retention.deletion import remove_marked
from sweeps.spec.sweep_spec import SweepSpec
from worker.report import Report

SWEEPS = "/api/v1/sweeps"
GRID = {"alpha_v": {"kind": "float", "low": 0.01, "high": 0.1, "step": 0.01}}


def submitted(client, spec, **changes):
    answer = client.post(SWEEPS, json=spec | changes)
    assert answer.status_code == 201, answer.text
    return answer.json()


def train(store, sweep_id, errors, *, state=SweepState.COMPLETE, reason="all done"):
    """Carry a queued sweep out: (params, seed, error or None for cancelled) for each trial."""
    claim = store.claim("tester")
    assert claim is not None
    assert claim.sweep_id == sweep_id
    spec = SweepSpec.model_validate(store.get_sweep(sweep_id).spec)
    points = {}
    for params, seed, error in errors:
        point = points.setdefault(repr(params), len(points))
        config = spec.config(params, seed)
        new = NewTrial(point, seed, params, config.stored(), config.key())
        trial = store.add_trials(claim, [new])[0]
        attempt = store.start_attempt(claim, trial.number)
        ended = TrialState.CANCELLED if error is None else TrialState.COMPLETE
        metrics = {} if error is None else {"validation_error": error, "test_error": error + 0.1}
        store.record(
            claim,
            trial.number,
            attempt.id,
            [Report(step=20, num_steps=20, status="running", metrics=metrics, provenance={})],
        )
        store.finish_attempt(
            claim,
            trial.number,
            attempt.id,
            ended,
            "budget spent" if error is None else "complete",
            trial_state=ended,
            objective=error,
        )
    store.release(claim, state, reason)
    return store.get_sweep(sweep_id)


class TestExtend:
    @pytest.mark.parametrize("wish", ["queued", "paused", "complete"])
    def test_points_are_added_in_every_state_but_cancelled(self, client, store, spec, wish):
        sweep = submitted(client, spec)
        if wish == "paused":
            client.post(f"{SWEEPS}/{sweep['id']}/pause")
        elif wish == "complete":
            train(store, sweep["id"], [({"alpha_v": 0.05}, 0, 0.2)])

        first = client.post(f"{SWEEPS}/{sweep['id']}/extend", json={"num_points": 54})
        second = client.post(f"{SWEEPS}/{sweep['id']}/extend", json={"num_points": 54})

        assert first.status_code == 200, first.text
        assert first.json()["spec"]["num_points"] == 54
        assert first.json()["num_trials"] == 108
        assert first.json()["state"] == {"complete": "queued"}.get(wish, wish)
        assert second.json() == first.json()

    def test_a_running_sweep_takes_it_up_when_its_driver_is_done(self, client, store, spec):
        sweep = submitted(client, spec)
        claim = store.claim("driver")

        answer = client.post(f"{SWEEPS}/{sweep['id']}/extend", json={"replicates": 3})

        assert (answer.json()["state"], answer.json()["num_trials"]) == ("running", 12)
        assert store.get_sweep(claim.sweep_id).spec["replicates"] == 3

    def test_trials_that_the_old_budget_cut_off_wait_again(self, client, store, spec):
        sweep = submitted(client, spec, budget={"wall_seconds": 1})
        cut = [({"alpha_v": 0.05}, 0, 0.2), ({"alpha_v": 0.05}, 1, None)]
        train(store, sweep["id"], cut, reason="budget spent: 1 s of wall time")

        answer = client.post(
            f"{SWEEPS}/{sweep['id']}/extend", json={"budget": {"wall_seconds": None}}
        ).json()

        assert answer["state"] == "queued"
        assert answer["spec"]["budget"]["wall_seconds"] is None
        assert (answer["trials"]["waiting"], answer["trials"]["cancelled"]) == (1, 0)

    def test_a_part_of_a_grid_grows_up_to_all_of_it(self, client, spec, assert_error):
        part = submitted(client, spec, sampler="grid", space=GRID, num_points=4)
        path = f"{SWEEPS}/{part['id']}/extend"

        assert client.post(path, json={"num_points": 10}).json()["num_trials"] == 20
        body = assert_error(client.post(path, json={"num_points": 11}), 422, "ValidationError")
        assert "at most the 10 points" in body["fields"][0]["reason"]

    @pytest.mark.parametrize(
        ("less", "path"),
        [
            ({"num_points": 3}, "num_points"),
            ({"replicates": 1}, "replicates"),
            ({"budget": {"trials": 5}}, "budget.trials"),
            ({"budget": {"steps": 5}}, "budget.steps"),
            ({"num_points": 9_000_000}, "num_points"),
            ({"points": 9}, "points"),
        ],
    )
    def test_a_sweep_never_gets_smaller_or_too_large(self, client, spec, less, path, assert_error):
        sweep = submitted(client, spec, budget={"trials": 6})

        body = assert_error(
            client.post(f"{SWEEPS}/{sweep['id']}/extend", json=less), 422, "ValidationError"
        )

        assert body["fields"][0]["path"] == path
        assert client.get(f"{SWEEPS}/{sweep['id']}").json()["spec"] == sweep["spec"]

    def test_a_cancelled_sweep_and_a_match_cannot_be_extended(
        self, client, spec, match_spec, assert_error
    ):
        sweep = submitted(client, spec)
        client.post(f"{SWEEPS}/{sweep['id']}/cancel")
        match = client.post("/api/v1/matches", json=match_spec).json()

        for one in (sweep, match):
            answer = client.post(f"{SWEEPS}/{one['id']}/extend", json={"num_points": 9})
            assert_error(answer, 409, "SweepStateConflict")

    def test_of_two_that_extend_at_once_one_is_told_to_look_again(self, client, store, spec):
        sweep = submitted(client, spec)
        seen = store.get_sweep(sweep["id"]).spec
        store.extend(sweep["id"], seen | {"replicates": 4}, num_trials=16, was=seen)

        with pytest.raises(Exception, match="was changed meanwhile"):
            store.extend(sweep["id"], seen | {"replicates": 3}, num_trials=12, was=seen)


class TestConfirm:
    @pytest.fixture
    def searched(self, client, store, spec):
        base = spec["base"] | {"validation_fraction": 0.2}
        space = {
            "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]},
            "weight_decay": {"kind": "float", "low": 0.0001, "high": 0.01, "log": True},
        }
        sweep = submitted(client, spec, base=base, space=space)
        results = [
            ({"optimizer": optimizer, "weight_decay": decay}, seed, error + 0.01 * seed)
            for optimizer, decay, error in (
                ("sgd", 0.001, 0.3),
                ("sgd", 0.002, 0.2),
                ("ndadam", 0.001, 0.1),
                ("ndadam", 0.002, 0.4),
            )
            for seed in range(2)
        ]
        return train(store, sweep["id"], results)

    def test_the_best_point_of_each_optimizer_is_trained_on_fresh_seeds(self, client, searched):
        answer = client.post(f"{SWEEPS}/{searched.id}/confirm", json={"replicates": 3})

        sweep = answer.json()
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == f"{SWEEPS}/{sweep['id']}"
        spec = SweepSpec.model_validate(sweep["spec"])
        assert [point["weight_decay"] for point in spec.initial_points] == [0.001, 0.002]
        assert spec.confirms.points == [2, 1]
        assert (spec.sampler, spec.base.seed, sweep["num_trials"]) == ("list", 2, 6)
        assert spec.base.test_evaluation == "end"

    def test_asking_again_answers_the_same_and_asking_otherwise_takes_other_seeds(
        self, client, searched
    ):
        path = f"{SWEEPS}/{searched.id}/confirm"
        first, again = client.post(path), client.post(path, json={})
        other = client.post(path, json={"points": 2})

        assert again.json()["id"] == first.json()["id"]
        assert other.json()["id"] != first.json()["id"]
        assert first.json()["spec"]["base"]["seed"] == 2
        assert other.json()["spec"]["base"]["seed"] == 7

    def test_the_full_training_set_leaves_the_test_error_as_objective(self, client, searched):
        sweep = client.post(
            f"{SWEEPS}/{searched.id}/confirm", json={"full_training_set": True}
        ).json()

        assert sweep["spec"]["base"]["validation_fraction"] == 0
        assert sweep["spec"]["objective"]["metric"] == "test_error"

    def test_a_confirmed_best_is_no_longer_selected(self, client, store, searched):
        confirming = client.post(f"{SWEEPS}/{searched.id}/confirm", json={"replicates": 2}).json()
        spec = SweepSpec.model_validate(confirming["spec"])
        results = [
            (params, seed, 0.25 + 0.01 * seed) for params in spec.initial_points for seed in (2, 3)
        ]
        train(store, confirming["id"], results)

        found = client.get(f"{SWEEPS}/{searched.id}/analysis").json()["analysis"]
        shown = client.get(f"{SWEEPS}/{confirming['id']}").json()["best"]

        assert [row["point"] for row in found["confirmed"]] == [2, 1]
        assert found["confirmed"][0]["seeds"] == [2, 3]
        assert found["confirmed"][0]["objective"]["mean"] == pytest.approx(0.275)
        assert shown["label"] == "confirmed on fresh seeds"

        tables = client.get(f"{SWEEPS}/{confirming['id']}/analysis").json()["analysis"]
        assert [arm["selected"] for arm in tables["arms"]] == [False, False]
        assert len(tables["comparisons"]) == 1
        assert not any("selected" in note for note in tables["notes"])

    def test_only_a_finished_sweep_with_a_mean_can_be_confirmed(
        self, client, spec, match_spec, assert_error
    ):
        waiting = submitted(client, spec)
        cancelled = submitted(client, spec)
        client.post(f"{SWEEPS}/{cancelled['id']}/cancel")
        match = client.post("/api/v1/matches", json=match_spec).json()

        for one, why in ((waiting, "queued"), (cancelled, "has a mean"), (match, "match")):
            answer = client.post(f"{SWEEPS}/{one['id']}/confirm")
            assert why in assert_error(answer, 409, "SweepStateConflict")["detail"]


class TestLabels:
    def test_tags_and_notes_are_replaced_and_what_is_left_out_stays(self, client, spec):
        sweep = submitted(client, spec)
        path = f"{SWEEPS}/{sweep['id']}"

        client.patch(path, json={"tags": ["b", "a", "a"]})
        found = client.patch(path, json={"notes": "second thoughts"}).json()

        assert (found["tags"], found["notes"]) == (["a", "b"], "second thoughts")
        assert client.get(SWEEPS, params={"tag": "b"}).json()["items"][0]["id"] == sweep["id"]
        assert client.get(SWEEPS, params={"tag": "paper"}).json()["items"] == []
        assert client.get(SWEEPS, params={"search": "THOUGHTS"}).json()["items"]

    @pytest.mark.parametrize(
        "bad", [{"tags": [""]}, {"tags": "a"}, {"notes": "\x07"}, {"name": "x"}]
    )
    def test_what_no_page_could_show_is_refused(self, client, spec, bad, assert_error):
        sweep = submitted(client, spec)

        assert_error(client.patch(f"{SWEEPS}/{sweep['id']}", json=bad), 422, "ValidationError")


class TestDelete:
    @pytest.mark.parametrize("wish", [None, "pause", "cancel"])
    def test_a_sweep_that_nobody_drives_goes_at_once(self, client, spec, wish):
        sweep = submitted(client, spec)
        if wish:
            client.post(f"{SWEEPS}/{sweep['id']}/{wish}")

        assert client.delete(f"{SWEEPS}/{sweep['id']}").status_code == 204
        assert client.get(f"{SWEEPS}/{sweep['id']}").status_code == 404

    def test_a_running_one_is_marked_and_goes_when_its_driver_has_stopped(
        self, client, store, home, spec
    ):
        sweep = submitted(client, spec)
        path = f"{SWEEPS}/{sweep['id']}"
        logs = home / "logs" / sweep["id"]
        logs.mkdir(parents=True)
        claim = store.claim("driver")

        first, second = client.delete(path), client.delete(path)
        still_there = client.get(path).json()
        remove_marked(store, home)
        untouched = client.get(path).status_code
        wish = store.requested(claim)
        store.release(claim, SweepState.CANCELLED, "cancelled", seen=store.get_sweep(sweep["id"]))
        remove_marked(store, home)

        assert (first.status_code, second.status_code) == (202, 202)
        assert (still_there["state"], still_there["requested"]) == ("running", "delete")
        assert (untouched, wish) == (200, "delete")
        assert client.get(path).status_code == 404
        assert not logs.exists()

    def test_a_deletion_is_not_softened_and_outlives_the_driver(self, client, store, home, spec):
        sweep = submitted(client, spec)
        path = f"{SWEEPS}/{sweep['id']}"
        claim = store.claim("driver")
        client.post(f"{path}/cancel")
        client.delete(path)
        for wish in ("pause", "cancel"):
            client.post(f"{path}/{wish}")
        resumed = client.post(f"{path}/resume")

        # What its runner does for a driver that died.
        store.release(claim, SweepState.QUEUED, "its driver ended; another takes over")
        marked = store.get_sweep(sweep["id"])
        remove_marked(store, home)

        assert resumed.status_code == 409
        assert (marked.state, marked.requested) == (SweepState.CANCELLED, "delete")
        assert client.get(path).status_code == 404


class TestRetry:
    def test_only_failed_trials_wait_again_and_asking_twice_changes_nothing(
        self, client, store, spec
    ):
        sweep = submitted(client, spec)
        claim = store.claim("tester")
        for seed, state in enumerate((TrialState.COMPLETE, TrialState.FAILED)):
            new = NewTrial(0, seed, {"alpha_v": 0.05}, {"seed": seed}, "key")
            trial = store.add_trials(claim, [new])[0]
            attempt = store.start_attempt(claim, trial.number)
            store.finish_attempt(
                claim, trial.number, attempt.id, state, "x", trial_state=state, objective=0.1
            )
        store.release(claim, SweepState.COMPLETE, "all done; 1 trial failed")
        path = f"{SWEEPS}/{sweep['id']}/retry"

        first = client.post(path).json()
        again = client.post(path).json()
        store.claim("driver")
        while_running = client.post(path)

        assert (first["state"], first["trials"]["waiting"]) == ("queued", 1)
        assert first["trials"]["complete"] == 1
        assert again == first
        assert while_running.status_code == 200


class TestFromSweep:
    @pytest.fixture
    def earlier(self, client, store, spec):
        sweep = submitted(client, spec | {"base": spec["base"] | {"validation_fraction": 0.2}})
        results = [({"alpha_v": rate}, 0, error) for rate, error in ((0.02, 0.3), (0.05, 0.1))]
        return train(store, sweep["id"], results)

    def body(self, spec, earlier, **changes):
        base = spec["base"] | {"validation_fraction": 0.2}
        asked = {"sweep": earlier.id, "initial_points": 1}
        return spec | {"base": base, "sampler": "tpe", "from_sweep": asked} | changes

    def test_results_and_the_best_points_are_copied_at_submission(self, client, spec, earlier):
        sweep = client.post(SWEEPS, json=self.body(spec, earlier)).json()

        assert sweep["spec"]["prior"] == [
            {"params": {"alpha_v": 0.02}, "value": 0.3},
            {"params": {"alpha_v": 0.05}, "value": 0.1},
        ]
        assert sweep["spec"]["initial_points"] == [{"alpha_v": 0.05}]

    def test_a_replay_answers_the_same_though_the_earlier_sweep_has_gone(
        self, client, spec, earlier
    ):
        headers = {"Idempotency-Key": "prior"}
        body = self.body(spec, earlier)
        first = client.post(SWEEPS, json=body, headers=headers).json()
        client.delete(f"{SWEEPS}/{earlier.id}")

        again = client.post(SWEEPS, json=body, headers=headers)

        assert (again.status_code, again.json()["id"]) == (201, first["id"])

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"from_sweep": {"sweep": "0123456789ab"}}, "from_sweep.sweep"),
            ({"sampler": "random"}, "from_sweep"),
            ({"objective": {"metric": "train_loss"}}, "from_sweep.sweep"),
            (
                {"space": {"alpha_s": {"kind": "float", "low": 0.01, "high": 0.1}}},
                "from_sweep.sweep",
            ),
        ],
    )
    def test_what_cannot_be_learnt_from_is_refused(
        self, client, spec, earlier, change, path, assert_error
    ):
        for route in (SWEEPS, f"{SWEEPS}/validate"):
            answer = client.post(route, json=self.body(spec, earlier, **change))

            body = assert_error(answer, 422, "ValidationError")
            assert body["fields"][0]["path"] == path

    def test_nobody_confirms_a_sweep_by_saying_so(self, client, spec, earlier, assert_error):
        says = {"confirms": {"sweep": earlier.id, "points": [0]}}

        for route in (SWEEPS, f"{SWEEPS}/validate"):
            body = assert_error(client.post(route, json=spec | says), 422, "ValidationError")
            assert body["fields"][0]["path"] == "confirms"
