"""Refusals in words that say what is wrong and what to do, one case for each that once did not."""

import socket
import threading

import pytest
from typer.testing import CliRunner

from service.api import _migrate
from service.cli import app
from service.outside import silent_parts
from service.settings import Settings
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


@pytest.mark.parametrize("command", [["export", "a"], ["compare", "a", "b"]])
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
    monkeypatch.setattr("service.api.RETRY_SECONDS", 0.01)
    failures = [error, error]

    def migrate():
        if failures:
            raise failures.pop()

    done = threading.Event()
    _migrate(migrate, done)

    assert done.is_set()
    assert failures == []


def test_what_does_not_answer_is_said_on_the_terminal(home, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
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
