"""Refusals in words that say what is wrong and what to do, one case for each that once did not."""

import socket
import threading

import pytest
from typer.testing import CliRunner

from service.api.__main__ import _migrate
from service.cli.app import app
from service.settings import Settings
from service.supervision.doctor import silent_parts
from sweeps.errors import StoreUnavailable

SWEEPS = "/api/v1/sweeps"


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ([[1, "x"]], "space.betas.values.0.1", "values[0][1] should be a valid integer"),
        ([[[1, [2]]]], "space.betas.values.0.0.1", "values[0][0][1] should be a valid integer"),
        ([{"a": 1}], "space.betas.values.0", "values[0] should be a valid boolean"),
    ],
)
def test_a_nested_value_is_named_by_its_place_and_by_nothing_else(
    client, spec, values, path, words, assert_error
):
    space = {"betas": {"kind": "choice", "values": values}}

    body = assert_error(client.post(SWEEPS, json=spec | {"space": space}), 422, "ValidationError")

    reasons = {field["path"]: field["reason"] for field in body["fields"]}
    assert words in reasons[path]
    assert not any("constrained" in f["path"] + f["reason"] for f in body["fields"])


@pytest.mark.parametrize("command", [["export", "a"], ["compare", "a", "b"], ["report", "a"]])
def test_a_format_that_there_is_not_is_refused_with_those_there_are(command):
    result = CliRunner().invoke(app, [*command, "--format", "xml"])

    text = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert "must be one of" in text
    assert "got 'xml'" in text
    assert "Value error" not in text


def test_a_field_without_a_value_is_no_default():
    result = CliRunner().invoke(app, ["match", "predict", "lr="])

    assert result.exit_code == 2
    assert "lr has no value" in result.stderr


def test_a_page_elsewhere_is_refused_by_what_its_browser_said(client, assert_error):
    headers = {"Sec-Fetch-Site": "cross-site"}

    body = assert_error(client.post(SWEEPS, json={}, headers=headers), 403, "OriginNotAllowed")

    assert "Sec-Fetch-Site: cross-site" in body["detail"]
    assert "''" not in body["detail"]


@pytest.mark.parametrize("media", [None, "", ";charset=utf-8"])
def test_a_body_that_does_not_say_what_it_is_is_refused(client, media, assert_error):
    headers = {} if media is None else {"Content-Type": media}

    body = assert_error(
        client.post(SWEEPS, content=b"{}", headers=headers), 415, "UnsupportedMediaType"
    )

    assert body["detail"].endswith("got none")


def test_an_empty_body_is_a_missing_spec_whatever_it_says(client, assert_error):
    assert_error(client.post(SWEEPS), 422, "ValidationError")


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("no disk")])
def test_a_store_that_cannot_be_migrated_is_tried_again_whatever_the_reason(monkeypatch, error):
    monkeypatch.setattr("service.api.__main__.RETRY_SECONDS", 0.01)
    failures = [error, error]

    def migrate():
        if failures:
            raise failures.pop()

    done = threading.Event()
    _migrate(migrate, done)

    assert done.is_set()
    assert failures == []


def test_what_does_not_answer_is_said_on_the_terminal(home, monkeypatch, held_port):
    nobody = f"127.0.0.1:{held_port}"
    monkeypatch.setenv("RAY_ADDRESS", nobody)
    settings = Settings(
        home=home,
        store_url=f"postgresql+psycopg://user@{nobody}/db",
        mlflow_url=f"http://{nobody}",
    )

    found = list(silent_parts(settings))

    assert [sentence.split()[:2] for sentence in found] == [
        ["the", "database"],
        ["no", "Ray"],
        ["no", "MLflow"],
    ]
    assert all(nobody.rpartition(":")[2] in sentence for sentence in found)


def test_what_answers_or_runs_here_is_not_mentioned(home, store, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        settings = Settings(home=home, store_url=store.url, mlflow_url=f"http://{address}")

        assert list(silent_parts(settings)) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[]", "the document must be a mapping of fields to values, got []"),
        ("null", "the document must be a mapping of fields to values, got None"),
        ("", "the document is missing"),
        ('{"base": 1' + "0" * 5000 + "}", "integers must fit in 64 bits"),
    ],
)
def test_a_body_that_is_no_spec_at_all_is_refused_in_plain_words(client, body, words, assert_error):
    answer = client.post(SWEEPS, content=body, headers={"Content-Type": "application/json"})

    error = "InvalidDocument" if "64 bits" in words else "ValidationError"
    assert words in assert_error(answer, 422, error)["detail"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (("GET", f"{SWEEPS}?limit=abc", None), "limit should be a valid integer, got 'abc'"),
        (("POST", "/api/v1/comparisons", {"arms": []}), "should have at least 1 item, got []"),
        (
            ("POST", "/api/v1/comparisons", {"arms": [{"sweep": "nope"}]}),
            "sweep must be 12 hexadecimal digits, as in the address of a sweep, got 'nope'",
        ),
        (
            ("GET", f"{SWEEPS}/a.b", None),
            "sweep_id must be letters, digits, - and _ alone, at most 64, got 'a.b'",
        ),
    ],
)
def test_a_pattern_or_a_parser_is_explained_in_words(client, ask, words, assert_error):
    method, path, body = ask

    answer = client.request(method, path, json=body)
    assert words in assert_error(answer, 422, "ValidationError")["detail"]


def test_an_idempotency_key_that_cannot_be_one_is_explained(client, spec, assert_error):
    answer = client.post(SWEEPS, json=spec, headers={"Idempotency-Key": "a b"})

    words = "must be 1 to 200 printable ASCII characters without spaces, got 'a b'"
    assert words in assert_error(answer, 422, "ValidationError")["detail"]


@pytest.mark.parametrize(
    ("changes", "error", "path"),
    [
        ({"precision": "tf32"}, "ConfigDoesNotFit", "base.precision"),
        ({"precision": "tf32", "device": "cpu"}, "ValidationError", "base.precision"),
    ],
)
def test_arithmetic_that_a_cpu_lacks_is_refused_at_submission(
    client, spec, changes, error, path, assert_error
):
    answer = client.post(SWEEPS, json=spec | {"base": spec["base"] | changes})

    body = assert_error(answer, 422, error)
    assert body["fields"][0]["path"] == path
    assert "a CPU" in body["detail"]
    assert client.get(SWEEPS).json()["items"] == []


def test_precisions_to_choose_from_are_held_to_it_too(client, spec, match_spec, assert_error):
    space = spec["space"] | {"precision": {"kind": "choice", "values": ["fp32", "tf32"]}}
    base = match_spec["base"] | {"precision": "tf32"}

    sweep = client.post(SWEEPS, json=spec | {"space": space})
    match = client.post("/api/v1/matches", json=match_spec | {"base": base})

    chosen = assert_error(sweep, 422, "ConfigDoesNotFit")
    matched = assert_error(match, 422, "ConfigDoesNotFit")

    assert chosen["fields"][0]["path"] == "space.precision"
    assert matched["fields"][0]["path"] == "base.precision"


@pytest.mark.parametrize("asked", [{"cpus": 0.00001}, {"gpus": 0.00001}])
def test_less_of_a_processor_than_ray_counts_is_refused(client, spec, asked, assert_error):
    answer = client.post(SWEEPS, json=spec | {"resources": asked})

    body = assert_error(answer, 422, "ValidationError")

    assert body["fields"][0]["path"] == f"resources.{next(iter(asked))}"
    assert "0.0001" in body["detail"]


def test_an_extension_cannot_give_a_limit_to_what_has_none(client, spec, assert_error):
    made = client.post(SWEEPS, json=spec).json()

    answer = client.post(f"{SWEEPS}/{made['id']}/extend", json={"budget": {"trials": 5}})

    body = assert_error(answer, 422, "ValidationError")

    assert "has no limit in this sweep" in body["detail"]
