"""Specs whose trials have parts of packages: what submission fills in, and what it refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.cli.train import parse_assignments
from sweeps.figures.quantities import quantity
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store
from tests.worker.training.installed import on_path, write_package
from tests.worker.training.parts_package import REGISTERS, write_parts
from worker.config.train_config import FieldError

SPEC: dict[str, Any] = {
    "name": "parts",
    "base": {"network": "net", "dataset": "numbers", "metrics": ["worst"], "steps": 5},
    "space": {
        "optimizer": {"kind": "choice", "values": ["two-rates", "sgd"]},
        "lr": {"kind": "float", "low": 0.01, "high": 0.4, "log": True},
        "network.hidden": {"kind": "int", "low": 2, "high": 9},
    },
    "num_points": 4,
    "replicates": 2,
    "objective": {"metric": "validation_worst"},
}
HERE = {"name": "my-parts", "version": "1.2"}
NAMED = ("datasets/numbers", "metrics/worst", "networks/net", "optimizers/two-rates")

Check = Callable[..., dict[str, Any]]


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    with on_path(write_parts(tmp_path / "package")):
        yield tmp_path


def submitted(client: TestClient, **changes: Any) -> Any:
    return client.post("/api/v1/sweeps", json=SPEC | changes)


def test_packages_metrics_and_direction_are_filled_in(client: TestClient, package: Path) -> None:
    response = submitted(client)
    assert response.status_code == 201, response.text
    spec = response.json()["spec"]

    assert spec["parts"] == dict.fromkeys(NAMED, HERE)
    assert spec["objective"] == {"metric": "validation_worst", "direction": "maximize"}
    assert spec["metrics"]["validation_worst"]["unit"] == "points"
    assert spec["metrics"]["test_worst"]["test"] is True
    assert "validation_error" not in spec["metrics"]
    assert spec["base"] == SPEC["base"]
    again = SweepSpec.model_validate(spec)
    config = again.config({"optimizer": "sgd", "lr": 0.1, "network.hidden": 3}, 0).stored()
    assert (config["depth"], config["network.hidden"], "flip" in config) == (2, 3, False)


def test_what_a_spec_would_do_is_said_without_loading_its_data(
    client: TestClient, package: Path
) -> None:
    found = client.post("/api/v1/sweeps/validate", json=SPEC).json()
    epochs = SPEC["base"] | {"epochs": 3}
    del epochs["steps"]
    unknown = client.post("/api/v1/sweeps/validate", json=SPEC | {"base": epochs}).json()

    assert (found["trials"], found["steps"], found["assumed_seed_deviation"]) == (8, 40, None)
    assert unknown["steps"] is None


def test_a_sweep_whose_networks_alone_are_of_a_package_keeps_the_metrics_of_images(
    client: TestClient, package: Path, data: Path
) -> None:
    spec = {
        "name": "net",
        "base": {"network": "net", "dataset": "made-up", "optimizer": "sgd", "batch_size": 8},
        "space": {"network.hidden": {"kind": "int", "low": 2, "high": 9}},
        "num_points": 2,
    }
    response = client.post("/api/v1/sweeps", json=spec)
    assert response.status_code == 201, response.text

    assert response.json()["spec"]["parts"] == {"networks/net": HERE}
    assert "metrics" not in response.json()["spec"]


def base(**fields: Any) -> dict[str, Any]:
    return {"base": SPEC["base"] | fields}


def space(**fields: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in fields.items()}
    return {"space": SPEC["space"] | named}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (base(loss="focal"), "base.loss", "loss must be one of scaled, got 'focal'; if a package"),
    (
        space(network__hidden={"kind": "int", "low": 0, "high": 9}),
        "space.network.hidden",
        "network.hidden should be greater than or equal to 1, got 0 (network 'net')",
    ),
    (
        space(network__width={"kind": "int", "low": 1, "high": 9}),
        "space.network.width",
        "network.width is not a field of network 'net'; remove it",
    ),
    (
        space(width={"kind": "int", "low": 1, "high": 9}),
        "space.width",
        "'width' is not a field of a training config",
    ),
    (base(depth=9), "base.depth", "depth should be less than or equal to 8, got 9"),
    (base(init="kaiming_normal"), "base.init", "init is not used by network 'net'; remove it"),
    (base(flip=False), "base.flip", "flip is not used by dataset 'numbers'; remove it"),
    (
        {"objective": {"metric": "validation_error"}},
        "objective.metric",
        "must be one of the metrics of training 'images' (loss, validation_loss, test_loss,",
    ),
    (
        {"objective": {"metric": "validation_worst", "direction": "minimize"}},
        "objective.direction",
        "must be 'maximize', which is better for validation_worst",
    ),
    (
        {"objective": {"metric": "test_worst"}},
        "objective.metric",
        "must not be 'test_worst' where results steer the search",
    ),
    (
        base(validation_fraction=0.0),
        "base.validation_fraction",
        "must be above 0 for objective 'validation_worst'",
    ),
    (
        {"parts": {"networks/net": {"name": "my-parts", "version": "1.1"}}},
        "parts.networks/net.version",
        "network 'net' must be my-parts 1.2, which this service has; got my-parts 1.1: run pip "
        "install my-parts==1.1",
    ),
]


@pytest.mark.parametrize(("changes", "path", "reason"), REFUSED)
def test_a_spec_that_breaks_a_rule_of_a_part_is_refused_by_its_field(
    client: TestClient, package: Path, changes: dict[str, Any], path: str, reason: str
) -> None:
    response = submitted(client, **changes)
    (field,) = response.json()["fields"]

    assert response.status_code == 422
    assert field["path"] == path
    assert reason in field["reason"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nowhere", "cannot be imported from my_module:make of my-package 1.2: "),
        ("make = 3", "which is no function"),
        ("def make(config, data): ...", "argument 'config' of the function has no type"),
        ("def make(a, b, c, d): ...", "must take 1 or, with a config first, 2 arguments"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
            "def make(config: A, data): ...",
            "field 'x' needs a default, because a spec may leave it out",
        ),
    ],
)
def test_a_package_that_gives_no_part_is_refused(
    client: TestClient, tmp_path: Path, source: str, sentence: str
) -> None:
    broken = write_package(tmp_path / "broken", source, registers={"networks/mine": "make"})
    with on_path(broken):
        response = submitted(client, base={"network": "mine", "steps": 5})
        listed = client.get("/api/v1/parts").json()["items"]
    (field,) = response.json()["fields"]

    assert (response.status_code, field["path"]) == (422, "base.network")
    assert sentence in field["reason"]
    assert [one["error"] for one in listed] == [field["reason"]]


def test_two_packages_with_one_name_are_refused(
    client: TestClient, package: Path, tmp_path: Path
) -> None:
    other = write_package(
        tmp_path / "other", package="other", version="3", registers={"networks/net": "train"}
    )
    with on_path(package / "package", other):
        (field,) = submitted(client).json()["fields"]

    assert field["path"] == "base.network"
    assert field["reason"] == (
        "network 'net' is registered by my-parts 1.2 and other 3: uninstall all but one of them"
    )


@pytest.mark.parametrize("version", ["", "1.1"])
def test_a_part_that_the_workers_lack_is_refused(
    client: TestClient, package: Path, store: Store, assert_error: Check, version: str
) -> None:
    there = {key: HERE for key in NAMED if key != "networks/net"}
    if version:
        there["networks/net"] = HERE | {"version": version}
    store.report_runner("host-1", {"cluster": None, "trainings": {}, "parts": there})
    body = assert_error(submitted(client), 422, "TrainingNotInstalled")

    assert body["fields"][0]["path"] == "network"
    assert body["detail"].endswith(
        "network 'net' needs my-parts 1.2 on the workers, which have "
        f"{f'my-parts {version}' if version else 'none'}; run pip install my-parts==1.2 there"
    )


def test_a_sweep_is_read_and_shown_where_its_parts_are_not_installed(
    client: TestClient, tmp_path: Path
) -> None:
    with on_path(write_parts(tmp_path / "package")):
        sweep = submitted(client).json()["id"]

    refused = client.post(f"/api/v1/sweeps/{sweep}/extend", json={"num_points": 9})

    assert refused.status_code == 422
    assert client.get(f"/api/v1/sweeps/{sweep}").json()["spec"]["parts"]["networks/net"] == HERE
    page = client.get(f"/sweeps/{sweep}")
    assert page.status_code == 200
    assert "numbers" in page.text


def test_parts_are_listed_with_their_fields(client: TestClient, package: Path) -> None:
    items = client.get("/api/v1/parts").json()["items"]
    found = {f"{item['field']}/{item['name']}": item for item in items}

    assert len(found) == len(REGISTERS)
    assert found["network/net"]["fields"].keys() == {"depth", "network.hidden"}
    assert found["network/net"]["fields"]["network.hidden"]["minimum"] == 1
    assert found["optimizer/two-rates"]["fields"].keys() == {
        "lr",
        "optimizer.scalar_lr",
        "weight_decay",
    }


def test_the_command_line_takes_fields_of_parts(package: Path) -> None:
    found = parse_assignments(["network=net", "dataset=numbers", "network.hidden=3"])

    assert found.stored()["network.hidden"] == 3
    with pytest.raises(FieldError, match="no field 'network_hidden'"):
        parse_assignments(["network_hidden=3"])


def test_pages_write_fields_of_parts_with_their_owner() -> None:
    keys = ("loss.gamma", "optimizer.beta3", "network.hidden_units", "augmentation.alpha")
    words = ("loss γ", "optimizer β3", "network hidden units", "augmentation α")

    assert tuple(quantity(key).short for key in keys) == words


def test_a_match_has_optimizers_of_packages_on_both_sides(
    client: TestClient, package: Path
) -> None:
    match = {
        "name": "match",
        "base": {"network": "net", "dataset": "numbers", "steps": 2000, "lr_schedule": "cosine"},
        "source": {"optimizer": "two-rates", "lr": 0.1, "optimizer.scalar_lr": 0.2},
        "target": {"optimizer": "ndadam"},
        "level": "step",
    }
    made = client.post("/api/v1/matches", json=match)
    assert made.status_code == 201, made.text
    constant = client.post(
        "/api/v1/matches", json=match | {"base": match["base"] | {"lr_schedule": "constant"}}
    )
    target = client.post(
        "/api/v1/matches",
        json=match | {"target": {"optimizer": "two-rates"}, "source": {"optimizer": "sgd"}},
    )
    unknown = client.post("/api/v1/matches", json=match | {"target": {"optimizer": "lino"}})

    assert made.json()["spec"]["parts"].keys() == {
        "networks/net",
        "datasets/numbers",
        "optimizers/two-rates",
    }
    assert made.json()["spec"]["source"]["optimizer.scalar_lr"] == 0.2
    assert client.get(f"/matches/{made.json()['id']}").status_code == 200
    assert "'two-rates' comes from a package; its curve" in constant.json()["detail"]
    assert target.status_code == 201, target.text
    assert "optimizers/two-rates" in target.json()["spec"]["parts"]
    assert unknown.json()["fields"][0]["path"] == "target.optimizer"
