"""docker-compose.yml, checked without an engine."""

import compose_spec
import pytest

from tests.project import compose_file

OUR_IMAGE = {"token", "mlflow", "api", "ray-head", "ray-worker", "ray-gpu-worker", "runner"}


def test_the_file_follows_the_compose_specification():
    compose = compose_spec.PyCompose.from_json(compose_file.as_json(compose_file.read()))

    assert set(compose.service_names()) == OUR_IMAGE | {"postgres"}


def test_a_misspelt_key_would_be_noticed():
    document = compose_file.read()
    document["services"]["api"]["comand"] = document["services"]["api"].pop("command")

    with pytest.raises(ValueError, match="comand"):
        compose_spec.PyCompose.from_json(compose_file.as_json(document))


def test_one_image_serves_every_service_but_the_database():
    services = compose_file.read()["services"]

    images = {name: service["image"] for name, service in services.items()}
    assert set(images.pop("postgres").split(":")) == {"postgres", "17"}
    assert set(images) == OUR_IMAGE
    assert len(set(images.values())) == 1


def test_ports_are_published_on_loopback_unless_somebody_says_otherwise():
    services = compose_file.read()["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert published == {"api": ["127.0.0.1:8000:8000"], "mlflow": ["127.0.0.1:5000:5000"]}

    services = compose_file.read({"NDSWEEP_BIND": "0.0.0.0"})["services"]
    assert services["api"]["ports"] == ["0.0.0.0:8000:8000"]
    assert services["mlflow"]["ports"] == ["127.0.0.1:5000:5000"]


def test_everything_that_listens_for_clients_asks_for_the_token():
    services = compose_file.read()["services"]

    for name in ("api", "runner", "ray-head", "ray-worker", "ray-gpu-worker"):
        environment = services[name]["environment"]
        assert environment["NDSWEEP_TOKEN_FILE"] == "/state/token", name
        assert environment["RAY_AUTH_MODE"] == "token", name
        assert services[name]["depends_on"], name


def test_only_the_gpu_profile_reserves_gpus():
    services = compose_file.read()["services"]
    reserving = [name for name, service in services.items() if "deploy" in service]

    assert reserving == ["ray-gpu-worker"]
    assert services["ray-gpu-worker"]["profiles"] == ["gpu"]
