"""The examples of the documentation print what it says."""

import json
import re
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from rich.console import Console
from typer.testing import CliRunner

from service.api.app import create_app
from service.cli.app import app as command_line
from service.cli.terminal.printing import print_validation
from service.contract.outputs import ValidationOut
from service.settings import Settings
from sweeps.store.store import Store
from tests.project.documents import (
    DOCS,
    Command,
    commands,
    fenced,
    first_names,
    page,
    plain,
    section,
)
from worker.config.train_config import TrainConfig
from worker.data.fetch import prepare_digits
from worker.data.import_set import check_arrays
from worker.data.prepared import Arrays
from worker.errors import DatasetRefused
from worker.report import Measurement
from worker.training.train import train

#: Answered without a service, a training or a port.
CHEAP = [
    command
    for command in commands()
    if command.arguments[:2] == ["match", "predict"]
    or "refused: " in command.output
    or command.env.get("NDSWEEP_HOST")
    or "no service answers" in command.output
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare_digits(folder)
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("home")
    store = Store(f"sqlite:///{home}/store.db")
    store.migrate()
    settings = Settings(home=home, data=data, host="127.0.0.1", token=None, token_file=None)
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1:8000") as found:
        yield found
    store.close()


def test_there_are_cheap_examples():
    assert len(CHEAP) >= 7


@pytest.mark.parametrize("command", CHEAP, ids=lambda c: f"{c.page}-{' '.join(c.arguments)}")
def test_a_command_prints_what_the_page_shows(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path))
    for name in ("HOST", "TOKEN", "TOKEN_FILE", "URL"):
        monkeypatch.delenv(f"NDSWEEP_{name}", raising=False)

    result = CliRunner().invoke(command_line, command.arguments, env=command.env)

    assert plain(result.output) == plain(command.output)


def shown_json(text: str, opening: str) -> list[Any]:
    """The lines of a page that begin like this, read as JSON."""
    return [json.loads(line) for line in map(str.strip, text.splitlines()) if opening in line[:30]]


def test_the_answer_to_an_unknown_sweep_is_the_one_shown(client):
    (shown,) = shown_json(section(page("api.md"), "## Errors"), '"SweepNotFound"')

    answer = client.get("/api/v1/sweeps/nope")

    assert (answer.status_code, answer.json()) == (404, shown)


def test_the_answer_to_an_incomplete_spec_is_the_one_shown(client):
    (shown,) = shown_json(section(page("api.md"), "## Errors"), '"ValidationError"')

    answer = client.post("/api/v1/sweeps", json={"name": "x"})

    assert (answer.status_code, answer.json()) == (422, shown)


def test_the_answer_of_validate_is_the_one_shown(client):
    (shown,) = shown_json(page("api.md"), '"kind":"sweep"')
    spec = fenced(DOCS / "api.md", "yaml")[0]

    answer = client.post(
        "/api/v1/sweeps/validate", content=spec, headers={"Content-Type": "application/yaml"}
    )

    assert answer.json() == shown


def test_a_dry_run_prints_what_the_page_shows(client):
    spec = fenced(DOCS / "sweeps.md", "yaml")[0]
    answer = client.post(
        "/api/v1/sweeps/validate", content=spec, headers={"Content-Type": "application/yaml"}
    )
    console = Console(width=200, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        print_validation(console, ValidationOut.model_validate(answer.json()))

    assert plain(captured.get()) in plain(page("sweeps.md"))


def test_a_prediction_answers_as_shown(client):
    text = section(page("api.md"), "## Predict a match")
    body = re.search(r"-d '(\{.*?\})'", text, re.DOTALL)
    assert body is not None

    answer = client.post("/api/v1/matches/predict", json=json.loads(body[1])).json()

    shown = plain(text).replace(" ", "")
    for name, value in answer.items():
        if not isinstance(value, list):
            assert f'"{name}":{json.dumps(value)}' in shown
    assert json.dumps(answer["criteria"][0], separators=(",", ":")).replace(" ", "") in shown


def arrays(**changed: Any) -> Arrays:
    images = np.zeros((60, 8, 8, 3), np.uint8)
    labels = np.arange(60) % 3
    values: dict[str, Any] = {
        "x_train": images,
        "y_train": labels,
        "x_test": images[:12],
        "y_test": labels[:12],
    }
    return Arrays(**(values | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"x_train": np.zeros((60, 8, 8, 3))},
        {"x_train": np.zeros(60, np.uint8)},
        {"y_train": np.arange(59) % 3},
        {"y_test": np.array([0, 5] * 6)},
        {"y_train": np.array([0, 2] * 30)},
    ],
    ids=["type", "dimensions", "count", "range", "classes"],
)
def test_the_sentences_about_data_are_those_that_people_see(changed):
    with pytest.raises(DatasetRefused) as refused:
        check_arrays(arrays(**changed), num_classes=None, source="mine.npz")

    sentence = str(refused.value).removeprefix("mine.npz: ")
    assert f"`{sentence}`" in section(page("data.md"), "## What is checked")


def test_the_documented_metrics_are_those_that_trials_report(data):
    config = TrainConfig(
        dataset="digits",
        recipe="paper-tf",
        optimizer="sgd",
        depth=10,
        widen_factor=1.0,
        batch_size=32,
        steps=12,
        report_every=12,
        validation_fraction=0.05,
    )
    # The gain is measured from step 5 / (1 - 0.5) on.
    measurement = Measurement(shadow_betas=(0.5, 0.9))

    *_, last = train(config, data_home=data, measurement=measurement)

    following = TrainConfig(
        dataset="digits", network="mlp", depth=1, batch_size=32, steps=2, follow=((0, 0.01),)
    )
    *_, followed = train(following, data_home=data)
    names = {*last.metrics, *followed.metrics}

    reported = {re.sub("/(conv|linear)[0-9]+$", "/LAYER", n) for n in names} | {*last.series}
    assert reported == set(first_names(section(page("config.md"), "## Metrics")))
