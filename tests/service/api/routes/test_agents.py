"""Agents over HTTP: ask, report, tell, and what each refuses."""

import json
import time

import pytest

from sweeps.store.store import Store
from tests.service.external_sweeps import SPEC, driven

SWEEPS = "/api/v1/sweeps"
#: Seconds to wait for a trial.
WAIT = {"agent": "a", "wait_seconds": 30}


@pytest.fixture
def sweep(client, store, home):
    """A driven sweep of agents; its address."""
    answer = client.post(SWEEPS, json=SPEC)
    assert answer.status_code == 201, answer.text
    with driven(store, home):
        yield f"{SWEEPS}/{answer.json()['id']}"


def ask(client, sweep, **fields):
    answer = client.post(f"{sweep}/ask", json=WAIT | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def leased(client, sweep):
    """A trial: its address and its lease."""
    (trial,) = ask(client, sweep)["trials"]
    return f"{sweep}/trials/{trial['number']}", trial["lease"]["token"]


def report(step, lease, **metrics):
    return {"lease": lease, "reports": [{"step": step, "metrics": metrics or {"loss": 0.5}}]}


def until(what):
    end = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_a_sweep_from_the_first_question_to_its_end(client, sweep):
    while (answer := ask(client, sweep))["trials"]:
        (trial,) = answer["trials"]
        assert trial["config"] == {"batch": 32, "seed": 0} | trial["params"]
        assert trial["lease"]["seconds"] == 60.0
        place = f"{sweep}/trials/{trial['number']}"
        lease = trial["lease"]["token"]
        heard = client.post(f"{place}/reports", json=report(1, lease, loss=0.9))
        assert heard.json() == {"stop": False, "reason": "", "lease_seconds": 60.0}
        beat = client.post(f"{place}/heartbeat", json={"lease": lease})
        assert beat.json() == heard.json()
        loss = trial["params"]["x"]
        told = {"lease": lease, "state": "complete", "metrics": {"loss": loss}}
        for _ in range(2):
            answer = client.post(f"{place}/tell", json=told)
            assert answer.json() == {"state": "complete", "reason": "complete"}

    assert (answer["state"], answer["retry_seconds"]) == ("complete", None)
    assert answer["reason"] == "the sweep is complete: all done"
    found = client.get(sweep).json()
    assert found["trials"]["complete"] == 4
    assert found["best"]["mean"] == pytest.approx(
        min(one["params"]["x"] for one in client.get(f"{sweep}/trials").json()["items"])
    )
    assert client.get(f"{sweep}/trials/0/metrics").json()["metrics"]["loss"][0] == [1, 0.9]
    page = sweep.removeprefix("/api/v1")
    for address in (page, f"{page}/trials/0", "/", f"{sweep}/analysis", f"{sweep}/export"):
        assert client.get(address).status_code == 200, address


def test_the_best_point_is_confirmed_on_fresh_seeds_and_the_sweep_extended(client, sweep):
    def run_all(address):
        while (answer := ask(client, address))["trials"]:
            (trial,) = answer["trials"]
            told = {"lease": trial["lease"]["token"], "state": "complete"}
            told["metrics"] = {"loss": trial["params"]["x"]}
            client.post(f"{address}/trials/{trial['number']}/tell", json=told)
        return client.get(address).json()

    run_all(sweep)
    answer = client.post(f"{sweep}/confirm", json={"points": 1, "replicates": 2})
    assert answer.status_code == 201, answer.text
    confirming = run_all(answer.headers["location"])
    assert (confirming["state"], confirming["trials"]["complete"]) == ("complete", 2)
    assert confirming["best"]["label"] == "confirmed on fresh seeds"
    assert client.post(f"{sweep}/extend", json={"num_points": 6}).status_code == 200
    assert run_all(sweep)["trials"]["complete"] == 6


def test_a_question_may_be_repeated(client, sweep):
    first, again = (
        client.post(f"{sweep}/ask", json=WAIT, headers={"Idempotency-Key": "k"}).json()
        for _ in range(2)
    )

    assert first == again
    assert len(first["trials"]) == 1


def test_no_trial_and_when_to_ask_again(client, sweep):
    ask(client, sweep, count=9)
    until(lambda: client.get(sweep).json()["trials"]["running"] == 4 or ask(client, sweep))
    answer = client.post(f"{sweep}/ask", json={"agent": "b"})

    body = answer.json()
    assert (body["trials"], body["reason"]) == ([], "no trial waits, 4 run")
    assert answer.headers["retry-after"] == "2"
    assert body["retry_seconds"] == 2.0
    client.post(f"{sweep}/pause")
    until(lambda: client.get(sweep).json()["state"] == "paused")
    paused = client.post(f"{sweep}/ask", json={"agent": "b"})
    assert (paused.json()["reason"], paused.headers["retry-after"]) == ("the sweep is paused", "30")


def test_a_cancelled_trial_hears_that_it_must_stop(client, sweep):
    place, lease = leased(client, sweep)
    client.post(f"{sweep}/cancel")
    until(lambda: client.get(sweep).json()["state"] == "cancelled")

    heard = client.post(f"{place}/reports", json=report(1, lease)).json()
    assert heard == {"stop": True, "reason": "cancelled", "lease_seconds": 0.0}
    told = client.post(f"{place}/tell", json={"lease": lease, "state": "failed", "reason": "x"})
    assert told.json()["state"] == "cancelled"


def test_a_trial_that_is_given_back_waits_for_the_next_agent(client, sweep):
    place, lease = leased(client, sweep)
    client.post(f"{place}/reports", json=report(1, lease))
    back = {"lease": lease, "state": "waiting", "reason": "its time is over"}
    first, again = (client.post(f"{place}/tell", json=back).json() for _ in range(2))
    assert first == again
    assert first == {"state": "waiting", "reason": "given back by its agent: its time is over"}
    assert client.post(f"{place}/heartbeat", json={"lease": lease}).json()["stop"] is True

    # As often as it likes: nothing of this counts as a loss, of which a trial has three.
    for _ in range(3):
        where, lease = leased(client, sweep)
        assert where == place
        answer = client.post(f"{place}/tell", json={"lease": lease, "state": "waiting"})
        assert answer.json() == {"state": "waiting", "reason": "given back by its agent"}
    where, lease = leased(client, sweep)
    told = {"lease": lease, "state": "complete", "metrics": {"loss": 0.5}}
    assert (where, client.post(f"{place}/tell", json=told).json()["state"]) == (place, "complete")
    attempts = client.get(place).json()["attempts"]
    assert [one["state"] for one in attempts] == ["cancelled"] * 4 + ["complete"]


#: Names of columns, of records, of layers, and of metrics that mean something here.
OURS = [
    "step", "seed", "point", "state", "number", "trial", "objective", "value", "mean", "x", "id",
    "metrics", "params.x", "metrics.loss", "config", "effective_lr/conv1", "angular_update/",
    "train_loss", "validation_error", "test_error", "images_per_second", "seconds", "usage",
]  # fmt: skip


def test_metrics_named_like_ours_are_metrics(client, sweep):
    place, lease = leased(client, sweep)
    values = {name: 0.25 + index / 100 for index, name in enumerate(OURS)} | {"loss": 0.5}
    body = {"lease": lease, "reports": [{"step": 1, "metrics": values}]}
    assert client.post(f"{place}/reports", json=body).status_code == 200
    told = {"lease": lease, "state": "complete", "metrics": values}
    assert client.post(f"{place}/tell", json=told).json()["state"] == "complete"

    trial = client.get(place).json()
    assert trial["metrics"] == values
    assert (trial["objective"], trial["seed"], trial["step"]) == (0.5, 0, 1)
    items = client.get(f"{sweep}/curves").json()["items"]
    (curves,) = [one for one in items if one["number"] == trial["number"]]
    names = {*OURS, "loss"} - {"effective_lr/conv1", "angular_update/"}
    assert curves["curves"].keys() == names
    page, number = sweep.removeprefix("/api/v1"), trial["number"]
    for address in (
        page,
        f"{page}/trials/{number}",
        f"{sweep}/analysis",
        f"{sweep}/export",
        f"{sweep}/export?format=csv",
        f"{place}/metrics",
    ):
        assert client.get(address).status_code == 200, address


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        ({"reports": []}, "reports", "reports should have at least 1 item"),
        ({"reports": [{"step": -1, "metrics": {}}]}, "reports.0.step", "got -1"),
        ({"reports": [{"step": 1, "metrics": {"loss": "0.5"}}]}, "reports.0.metrics.loss", "'0.5'"),
        ({"reports": [{"step": 1, "metrics": {"loss": True}}]}, "reports.0.metrics.loss", "True"),
        ({"reports": [{"step": 1, "metrics": {"loss": [1]}}]}, "reports.0.metrics.loss", "[1]"),
        ({"reports": [{"step": 1}]}, "reports.0.metrics", "metrics is missing"),
        (
            {"reports": [{"step": 1, "metrics": {"test_error": 3.5}}]},
            "reports.0.metrics.test_error",
            "test_error must be a fraction from 0 to 1, got 3.5",
        ),
        (
            {"reports": [{"step": 1, "metrics": {"1st": 0.5}}]},
            "reports.0.metrics.1st",
            "begins with a letter",
        ),
        (
            {"reports": [{"step": 1, "metrics": {}}], "lease": "a b"},
            "lease",
            "the token of a lease",
        ),
    ],
    ids=["none", "step", "text", "bool", "list", "missing", "fraction", "name", "lease"],
)
def test_reports_that_break_a_rule(client, sweep, assert_error, body, path, reason):
    answer = client.post(f"{sweep}/trials/0/reports", json={"lease": "0" * 32} | body)

    fields = assert_error(answer, 422, "ValidationError")["fields"]
    assert path in {one["path"] for one in fields}, fields
    assert any(reason in one["reason"] for one in fields), fields


def test_a_report_of_more_metrics_than_a_trial_may_have(client, sweep, assert_error):
    many = {f"m{i}": 0.0 for i in range(1001)}
    body = {"lease": "0" * 32, "reports": [{"step": 1, "metrics": many}]}
    answer = client.post(f"{sweep}/trials/0/reports", json=body)
    assert "at most 1,000 keys" in assert_error(answer, 422, "InvalidDocument")["detail"]


def test_what_the_store_refuses(client, sweep, assert_error):
    place, lease = leased(client, sweep)
    client.post(f"{place}/reports", json=report(40, lease))

    back = assert_error(
        client.post(f"{place}/reports", json=report(30, lease)), 422, "InvalidReport"
    )
    number = place.rpartition("/")[2]
    where = f"trial {number} is at step 40, got 30"
    assert back["detail"] == f"reports.0.step must not go backwards: {where}"
    assert back["fields"][0]["path"] == "reports.0.step"
    none = client.post(f"{place}/tell", json={"lease": "f" * 32, "state": "failed"})
    assert "is none of trial" in assert_error(none, 409, "LeaseEnded")["detail"]
    unknown = client.post(f"{sweep}/trials/99/heartbeat", json={"lease": lease})
    assert_error(unknown, 404, "TrialNotFound")
    nowhere = client.post(f"{SWEEPS}/0123456789ab/ask", json={"agent": "a"})
    assert_error(nowhere, 404, "SweepNotFound")
    torn = client.post(
        f"{place}/reports", content="{", headers={"Content-Type": "application/json"}
    )
    assert (
        "the body cannot be read: not valid JSON"
        in assert_error(torn, 422, "InvalidDocument")["detail"]
    )
    large = client.post(f"{place}/reports", content=b"{" + b" " * 1_000_000)
    assert_error(large, 413, "BodyTooLarge")
    nan = client.post(
        f"{place}/reports",
        content=json.dumps(report(41, lease, loss=float("nan"))),
        headers={"Content-Type": "application/json"},
    )
    assert "NaN" in assert_error(nan, 422, "InvalidDocument")["detail"]


def test_an_agent_cannot_have_trials_that_the_service_trains(client, spec, assert_error):
    sweep_id = client.post(SWEEPS, json=spec).json()["id"]

    refused = assert_error(
        client.post(f"{SWEEPS}/{sweep_id}/ask", json={"agent": "a"}), 409, "NotExternal"
    )
    assert "training must be 'external' for agents, got 'images'" in refused["detail"]


def test_one_request_that_fails_costs_no_other(client, sweep, store, monkeypatch):
    place, lease = leased(client, sweep)
    answers = Store.serve_agents
    calls = []

    def fail_once(self, requests):
        calls.append(len(requests))
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return answers(self, requests)

    monkeypatch.setattr(Store, "serve_agents", fail_once)
    refused = client.post(f"{place}/reports", json=report(1, lease))
    assert (refused.status_code, refused.json()["error"]) == (500, "InternalError")
    assert client.post(f"{place}/reports", json=report(1, lease)).json()["stop"] is False
