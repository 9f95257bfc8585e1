"""Specs of trainings that packages register: what submission fills in, and what it refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sweeps.store.store import Store
from tests.worker.training.installed import DESCENT, on_path, write_package
from worker.config.training import FIXED_METRICS

SPEC = {
    "name": "own",
    "training": "mine",
    "base": {"steps": 5, "seed": 3},
    "space": {"rate": {"kind": "float", "low": 0.01, "high": 0.4, "log": True}},
    "num_points": 4,
    "replicates": 2,
    "objective": {"metric": "loss"},
}
LOSS = {"direction": "minimize", "unit": "mm", "description": "", "test": False}
TEST_LOSS = {"direction": "minimize", "unit": "", "description": "", "test": True}

Check = Callable[..., dict[str, Any]]


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    with on_path(write_package(tmp_path / "package")):
        yield tmp_path


def workers_have(store: Store, **trainings: dict[str, str]) -> None:
    store.report_runner("host-1", {"cluster": None, "trainings": trainings})


def submitted(client: TestClient, **changes: Any) -> Any:
    return client.post("/api/v1/sweeps", json=SPEC | changes)


def test_metrics_and_package_are_filled_in(client: TestClient, package: Path) -> None:
    response = submitted(client)
    spec = response.json()["spec"]

    assert response.status_code == 201
    assert spec["training"] == "mine"
    assert spec["package"] == {"name": "my-package", "version": "1.2"}
    assert spec["metrics"] == {"loss": LOSS, "test_loss": TEST_LOSS}
    assert spec["base"] == {"rate": 0.1, "steps": 5, "seed": 3}


def test_a_request_that_is_sent_again_finds_its_sweep(client: TestClient, package: Path) -> None:
    key = {"Idempotency-Key": "once"}
    first, second = (client.post("/api/v1/sweeps", json=SPEC, headers=key) for _ in range(2))

    assert first.json()["id"] == second.json()["id"]


def test_what_a_spec_would_do_is_said_as_far_as_it_is_known(
    client: TestClient, package: Path
) -> None:
    found = client.post("/api/v1/sweeps/validate", json=SPEC).json()

    assert (found["trials"], found["steps"], found["assumed_seed_deviation"]) == (8, None, None)
    assert found["notes"] == [
        "how long it takes is not known: only training 'images' says before it runs"
    ]


def test_a_spec_that_says_the_same_is_accepted(
    client: TestClient, package: Path, store: Store
) -> None:
    workers_have(store, mine={"package": "my-package", "version": "1.2"})
    found = submitted(
        client, metrics={"loss": LOSS}, package={"name": "my-package", "version": "1.2"}
    )

    assert found.status_code == 201


#: Changes of a good spec -> path, and part of the reason that it is refused with.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"metrics": {"loss": LOSS | {"unit": "m"}}},
        "metrics.loss",
        "metrics are those that my-package 1.2 declares (loss, test_loss): leave them out",
    ),
    (
        {"package": {"name": "my-package", "version": "1.3"}},
        "package.version",
        "package must be my-package 1.2, which this service has; got my-package 1.3: run pip "
        "install my-package==1.3 where",
    ),
    ({"package": {"name": "other", "version": "1.2"}}, "package.name", "got other 1.2"),
    ({"base": {"steps": "5"}}, "base.steps", "valid integer, got '5'"),
    ({"base": {"trees": 5}}, "base.trees", "not a field here"),
    ({"base": {"rate": -1.0}}, "base.rate", "greater than 0"),
    (
        {"space": {"rate": {"kind": "float", "low": 0.0, "high": 1.0}}},
        "space.rate",
        "cannot be trained (rate = 0.0): rate should be greater than 0, got 0.0",
    ),
    (
        {"space": {"lr": {"kind": "float", "low": 0.0, "high": 1.0}}},
        "space.lr",
        "not a field of a training config",
    ),
    (
        {"objective": {"metric": "validation_error"}},
        "objective.metric",
        "one of the metrics of training 'mine' (loss, test_loss), got 'validation_error'",
    ),
    (
        {"objective": {"metric": "loss", "direction": "maximize"}},
        "objective.direction",
        "must be 'minimize', which is better for loss; got 'maximize'",
    ),
    ({"objective": {"metric": "test_loss"}}, "objective.metric", "where results steer the search"),
    ({"training": "yours"}, "training", "one of external, images, mine, got 'yours'"),
    (
        {"resources": {"gpus": 1, "trials_per_gpu": 2}},
        "resources.trials_per_gpu",
        "must be 1 for training 'mine'",
    ),
]


@pytest.mark.parametrize(("changes", "path", "reason"), REFUSED)
def test_a_spec_that_breaks_a_rule_is_refused_by_its_field(
    client: TestClient,
    package: Path,
    changes: dict[str, Any],
    path: str,
    reason: str,
) -> None:
    response = submitted(client, **changes)
    (field,) = response.json()["fields"]

    assert response.status_code == 422
    assert field["path"] == path
    assert reason in field["reason"]


def test_a_field_without_a_default_must_be_set(client: TestClient, tmp_path: Path) -> None:
    source = DESCENT.replace("rate: Annotated[float, Gt(0)] = 0.1", "rate: Annotated[float, Gt(0)]")
    space = {"steps": {"kind": "int", "low": 3, "high": 9}}
    with on_path(write_package(tmp_path, source)):
        swept = submitted(client)
        unset = submitted(client, base={}, space=space)
        fixed = submitted(client, base={"rate": 0.2}, space=space)

    assert (swept.status_code, fixed.status_code) == (201, 201)
    assert swept.json()["spec"]["base"] == {"steps": 5, "seed": 3}
    (field,) = unset.json()["fields"]
    assert field == {
        "path": "base.rate",
        "reason": "rate has no default in training 'mine': set it in base or, without a "
        "condition, in space; got none",
    }


@pytest.mark.parametrize(
    ("trainings", "sentence"),
    [
        ({}, "which have none; run pip install my-package==1.2 there"),
        ({"mine": {"package": "my-package", "version": "1.1"}}, "which have my-package 1.1; run"),
        ({"mine": {"package": "other", "version": "1.2"}}, "which have other 1.2; run"),
    ],
)
def test_a_training_that_the_workers_lack_is_refused(
    client: TestClient,
    package: Path,
    store: Store,
    assert_error: Check,
    trainings: dict[str, dict[str, str]],
    sentence: str,
) -> None:
    workers_have(store, **trainings)
    body = assert_error(submitted(client), 422, "TrainingNotInstalled")

    assert body["fields"][0]["path"] == "training"
    assert f"needs my-package 1.2 on the workers, {sentence}" in body["detail"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("train = 3", "is not decorated with @ndsweep.training"),
        (
            "import ndsweep\n@ndsweep.training()\ndef train(config: dict, run): ...",
            "the config of my_module:train of my-package 1.2: dict must be a dataclass",
        ),
        (
            "import ndsweep\nbest = ndsweep.Metric('maximize')\n"
            "@ndsweep.training(metrics={'train_loss': best})\ndef train(config, run): ...",
            "ValueError: metric 'train_loss' has a fixed meaning",
        ),
    ],
)
def test_a_package_that_gives_no_training_is_refused(
    client: TestClient, tmp_path: Path, source: str, sentence: str
) -> None:
    with on_path(write_package(tmp_path / "broken", source)):
        response = submitted(client)
    (field,) = response.json()["fields"]

    assert (response.status_code, field["path"]) == (422, "training")
    assert sentence in field["reason"]
    assert client.get("/healthz").status_code == 200


def test_a_sweep_of_another_version_is_not_extended(
    client: TestClient, package: Path, tmp_path: Path
) -> None:
    sweep = submitted(client).json()["id"]
    with on_path(write_package(tmp_path / "newer", version="1.3")):
        response = client.post(f"/api/v1/sweeps/{sweep}/extend", json={"num_points": 9})
    (field,) = response.json()["fields"]

    assert field["path"] == "package.version"
    assert "must be my-package 1.3, which this service has; got my-package 1.2" in field["reason"]
    extended = client.post(f"/api/v1/sweeps/{sweep}/extend", json={"num_points": 9}).json()
    assert extended["spec"]["package"] == {"name": "my-package", "version": "1.2"}


def test_a_sweep_is_read_where_its_package_is_not_installed(
    client: TestClient, tmp_path: Path
) -> None:
    with on_path(write_package(tmp_path / "package")):
        sweep = submitted(client).json()["id"]

    refused = client.post(f"/api/v1/sweeps/{sweep}/extend", json={"num_points": 9})

    assert (refused.status_code, refused.json()["fields"][0]["path"]) == (422, "training")
    assert client.get(f"/api/v1/sweeps/{sweep}").json()["spec"]["metrics"]["loss"] == LOSS
    for path in (f"/sweeps/{sweep}", f"/api/v1/sweeps/{sweep}/analysis"):
        assert client.get(path).status_code == 200


def test_trainings_are_listed_with_their_fields_and_metrics(
    client: TestClient, package: Path, tmp_path: Path
) -> None:
    with on_path(
        package / "package",
        write_package(tmp_path / "b", "1 / 0", package="b", name="b", module="b_module"),
    ):
        items = client.get("/api/v1/trainings").json()["items"]
    found = {item["name"]: item for item in items}
    mine, refused = found["mine"], found["b"]

    assert list(found) == ["b", "external", "images", "mine"]
    assert (mine["package"], mine["version"], mine["error"]) == ("my-package", "1.2", "")
    assert mine["metrics"] == {"loss": LOSS, "test_loss": TEST_LOSS}
    assert mine["config"]["properties"]["rate"] == {
        "default": 0.1,
        "exclusiveMinimum": 0,
        "title": "Rate",
        "type": "number",
    }
    assert set(found["images"]["metrics"]) == set(FIXED_METRICS)
    assert "alpha_v" in found["images"]["config"]["properties"]
    assert found["external"]["package"] is None
    assert (refused["version"], refused["config"]) == ("1.2", {})
    assert refused["error"].endswith("ZeroDivisionError: division by zero")


def test_a_match_names_its_package_too(client: TestClient, tmp_path: Path, store: Store) -> None:
    spec = {
        "name": "own",
        "training": "mine",
        "base": {"steps": 600},
        "source": {"optimizer": "sgd", "lr": 0.2, "weight_decay": 0.05},
        "target": {"optimizer": "ndadam", "betas": [0.0, 0.95]},
        "level": "step",
    }
    fields = """steps: int = 600
        optimizer: str = "sgd"
        lr: float = 0.1
        alpha_v: float = 0.1
        weight_decay: float = 0.0
        betas: tuple[float, float] = (0.9, 0.99)
    """
    with on_path(write_package(tmp_path, DESCENT.replace("steps: int = 20", fields))):
        made = client.post("/api/v1/matches", json=spec)
        match = made.json()["id"]
        pages = [client.get(f"/matches/{match}{part}").status_code for part in ("", *PARTS)]
        workers_have(store)
        refused = client.post("/api/v1/matches", json=spec)

    assert made.json()["spec"]["package"] == {"name": "my-package", "version": "1.2"}
    assert pages == [200] * len(pages)
    assert (refused.status_code, refused.json()["error"]) == (422, "TrainingNotInstalled")


PARTS = ("/parts/overview", "/parts/verdict", "/parts/details", "/parts/trials")
