"""docker-compose.yml and the image's files, checked without an engine."""

import re
import tomllib
from typing import Any

import compose_spec
import pytest
from packaging.requirements import Requirement

from tests.project import compose_file

ROOT = compose_file.COMPOSE.parent
OUR_IMAGE = {"token", "mlflow", "api", "ray-head", "ray-worker", "runner"}
RAY = {"ray-head", "ray-worker", "runner"}
#: Which of the secrets each service can read: whoever may submit sweeps joins no cluster, and code
#: of trials reads neither the API's token nor the database's password.
SECRETS = {
    "token": {"api", "ray", "database"},
    "postgres": {"database"},
    "mlflow": {"database"},
    "api": {"api", "database"},
    "ray-head": {"ray"},
    "ray-worker": {"ray"},
    "runner": {"ray", "database"},
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = compose_file.read()["services"]
    return found


def mounted(service: dict[str, Any]) -> dict[str, str]:
    """Volume -> path in the container, and :ro where it cannot be written."""
    return dict(volume.split(":", 1) for volume in service.get("volumes", []))


def test_the_file_follows_the_compose_specification() -> None:
    compose = compose_spec.PyCompose.from_json(compose_file.as_json(compose_file.read()))

    assert set(compose.service_names()) == OUR_IMAGE | {"postgres"}


def test_the_file_for_gpus_follows_it_too() -> None:
    document = compose_file.read(files=[compose_file.COMPOSE, compose_file.GPU])

    assert compose_spec.PyCompose.from_json(compose_file.as_json(document))


def test_a_misspelt_key_would_be_noticed() -> None:
    document = compose_file.read()
    document["services"]["api"]["comand"] = document["services"]["api"].pop("command")

    with pytest.raises(ValueError, match="comand"):
        compose_spec.PyCompose.from_json(compose_file.as_json(document))


def test_one_image_is_built_once_and_serves_every_service_but_the_database(
    services: dict[str, Any],
) -> None:
    images = {name: service["image"] for name, service in services.items()}
    assert set(images.pop("postgres").split(":")) == {"postgres", "17"}
    assert set(images) == OUR_IMAGE
    assert len(set(images.values())) == 1
    assert [name for name, service in services.items() if "build" in service] == ["token"]
    # Nobody else's image of that name is taken instead.
    policies = {services[name]["pull_policy"] for name in OUR_IMAGE - {"token"}}
    assert policies == {"never"}


def test_images_can_be_pinned_by_digest() -> None:
    pinned = {"POSTGRES_IMAGE": "postgres@sha256:0", "PYTHON_IMAGE": "python@sha256:1"}
    services = compose_file.read(pinned)["services"]

    assert services["postgres"]["image"] == "postgres@sha256:0"
    assert services["token"]["build"]["args"]["PYTHON_IMAGE"] == "python@sha256:1"
    stages = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert set(stages) == {"${PYTHON_IMAGE}"}


def test_ports_are_published_on_loopback_unless_somebody_says_otherwise(
    services: dict[str, Any],
) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert published == {"api": ["127.0.0.1:8000:8000"], "mlflow": ["127.0.0.1:5000:5000"]}

    opened = compose_file.read({"NDSWEEP_BIND": "0.0.0.0"})["services"]
    assert opened["api"]["ports"] == ["0.0.0.0:8000:8000"]
    assert opened["mlflow"]["ports"] == ["127.0.0.1:5000:5000"]


def test_what_listens_for_clients_asks_for_a_token_of_its_own(services: dict[str, Any]) -> None:
    assert services["api"]["environment"]["NDSWEEP_TOKEN_FILE"] == "/secrets/api/token"
    for name in RAY:
        environment = services[name]["environment"]
        assert environment["RAY_AUTH_MODE"] == "token", name
        assert environment["RAY_AUTH_TOKEN_PATH"] == "/secrets/ray/token", name


def test_each_service_reads_its_own_secrets_and_writes_none(services: dict[str, Any]) -> None:
    found = {}
    for name, service in services.items():
        paths = [path for volume, path in mounted(service).items() if volume.startswith("secret-")]
        found[name] = {path.split("/")[2].removesuffix(":ro") for path in paths}
        assert name == "token" or all(path.endswith(":ro") for path in paths), name
        for key in service["environment"]:
            if re.search("PASS|TOKEN|SECRET", key):
                assert service["environment"][key].startswith("/secrets/"), (name, key)

    assert found == SECRETS


def test_the_file_holds_no_password() -> None:
    text = compose_file.COMPOSE.read_text("utf-8")

    assert re.findall(r"://\S*:\S*@", text) == []
    assert re.findall(r"PASSWORD:", text) == []


def test_nobody_is_root_or_writes_outside_volumes(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["user"] == ("postgres" if name == "postgres" else "1000:1000"), name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert any(path.startswith("/tmp") for path in service["tmpfs"]), name


def test_every_folder_that_a_volume_begins_with_is_the_users(services: dict[str, Any]) -> None:
    """A volume takes the owner that its folder has in the image; without one it is root's."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    made = re.search(r"mkdir -p ([/\w ]+) \\\n\s+&& chown -R ndsweep: ([/\w ]+)", dockerfile)
    assert made is not None
    folders, owned = made[1].split(), made[2].split()
    targets = {
        path.removesuffix(":ro") for name in OUR_IMAGE for path in mounted(services[name]).values()
    }

    assert targets == set(folders)
    assert all(any(f"{path}/".startswith(f"{top}/") for top in owned) for path in targets)
    assert "useradd --uid 1000" in dockerfile
    assert "USER 1000:1000" in dockerfile


def test_every_service_that_stays_says_whether_it_is_well(services: dict[str, Any]) -> None:
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"token"}
    for service in services.values():
        for other, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other == "token" else "service_healthy"
            assert how == {"condition": wanted}


def test_who_has_work_to_put_down_has_the_time_for_it(services: dict[str, Any]) -> None:
    # Ray drains for up to 30 s, and an engine kills after 10 where nothing is said.
    for name in RAY:
        assert services[name]["stop_grace_period"] == "40s"
    assert services["api"]["stop_grace_period"] == "15s"
    assert services["postgres"]["stop_grace_period"] == "60s"


def test_the_machines_cpus_are_counted_once_with_gpus_and_without() -> None:
    for files in ([compose_file.COMPOSE], [compose_file.COMPOSE, compose_file.GPU]):
        services = compose_file.read(files=files)["services"]
        starts = {name: " ".join(s["command"]) for name, s in services.items() if "command" in s}
        nodes = {name: line for name, line in starts.items() if line.startswith("ray start")}

        assert [name for name, line in nodes.items() if "--num-cpus=0" not in line] == [
            "ray-worker"
        ]
        has_gpus = "deploy" in services["ray-worker"]
        assert has_gpus == (compose_file.GPU in files)
        assert has_gpus != ("--num-gpus=0" in nodes["ray-worker"])


def locked(name: str) -> dict[str, set[str]]:
    """Package -> its entries in a lock, each with version, markers and hashes."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=[a-z])", (ROOT / name).read_text()):
        package = re.match(r"([a-z0-9._-]+)==", entry)
        if package:
            found.setdefault(package[1], set()).add(entry.strip())
    return found


def test_the_image_has_what_the_project_needs_as_locked_and_no_tools_of_developers() -> None:
    image, lock = locked("requirements-image.lock"), locked("requirements.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {Requirement(one).name.lower() for one in requirements}

    needed = names(project["dependencies"])
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    assert needed <= set(image)
    # What torch needs of them is no tool.
    assert (names(extras) - needed) & set(image) == {"mpmath", "setuptools"}
    assert all(image[name] == lock[name] for name in image)
    assert "requirements-image.lock" in (ROOT / "Dockerfile").read_text()
