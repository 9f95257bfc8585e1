"""Packages of trainings are imported by other processes: the API stays small and answers."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.submission import training_reader
from tests.worker.training.installed import DESCENT, on_path, write_package

SPEC: dict[str, Any] = {
    "name": "own",
    "training": "mine",
    "base": {"steps": 5},
    "space": {"rate": {"kind": "float", "low": 0.01, "high": 0.4}},
    "num_points": 4,
    "objective": {"metric": "loss"},
}
RULED = DESCENT.replace(
    "steps: int = 20",
    """steps: int = 20

        def __post_init__(self) -> None:
            if self.rate * self.steps > 10:
                raise ValueError("rate times steps must be at most 10")
    """,
).replace("import ndsweep", "import ndsweep; print('words on importing')")

#: A network without torch, with a rule in code, and a metric.
PARTS = """
    from dataclasses import dataclass
    import ndsweep

    @dataclass
    class Net:
        depth: int = 2
        width: int = 8

        def __post_init__(self) -> None:
            if self.depth * self.width > 100:
                raise ValueError("depth times width must be at most 100")

    def net(config: Net, data): ...

    @ndsweep.metric("maximize", unit="points")
    def score(outputs, targets): ...

    @ndsweep.dataset("regression")
    def numbers(): ...
"""

Reads = Callable[[float], None]


@pytest.fixture
def reads() -> Iterator[Reads]:
    yield training_reader.begin
    training_reader.end()


def _listed(client: TestClient, name: str = "mine") -> dict[str, Any]:
    items: list[dict[str, Any]] = client.get("/api/v1/trainings").json()["items"]
    return next(item for item in items if item["name"] == name)


def _refusal(client: TestClient, **changes: Any) -> str:
    response = client.post("/api/v1/sweeps", json=SPEC | changes)
    assert response.status_code == 422, response.text
    (field,) = response.json()["fields"]
    return f"{field['path']}: {field['reason']}"


def test_a_package_is_described_and_its_rules_are_asked_for(
    client: TestClient, tmp_path: Path, reads: Reads
) -> None:
    folder = write_package(tmp_path / "package", RULED)
    with on_path(folder):
        reads(120.0)
        spec = client.post("/api/v1/sweeps", json=SPEC).json()["spec"]
        after = _listed(client)
        by_type = _refusal(client, base={"steps": "5"})
        by_range = _refusal(client, space={"rate": SPEC["space"]["rate"] | {"low": -1.0}})
        by_rule = _refusal(client, base={"steps": 50})
        assert "my_module" not in sys.modules

        # A process that is gone is replaced, and a file that has changed is read again.
        reader = training_reader.reader()
        assert reader is not None
        process = reader._known["mine"].process
        assert process is not None
        process._process.kill()
        assert _refusal(client, base={"steps": 50}) == by_rule
        (folder / "my_module.py").write_text("1 / 0")
        reader._known["mine"].at = 0.0
        assert "ZeroDivisionError: division by zero" in _refusal(client)

    assert (after["state"], after["version"], after["error"]) == ("ready", "1.2", "")
    assert after["metrics"]["loss"]["unit"] == "mm"
    assert after["config"]["properties"]["rate"]["exclusiveMinimum"] == 0
    assert spec["base"] == {"rate": 0.1, "steps": 5, "seed": 0}
    assert spec["package"] == {"name": "my-package", "version": "1.2"}
    assert by_type == "base.steps: steps should be a valid integer, got '5'"
    assert "greater than 0" in by_range
    assert by_rule == (
        "space.rate: the space has a point that cannot be trained: Config refuses these values: "
        "rate times steps must be at most 10"
    )


@pytest.mark.parametrize(
    ("source", "seconds", "sentence"),
    [
        (
            "import time; time.sleep(600)",
            3.0,
            "importing my_module:train of my-package 1.2 takes longer than 3 s; import heavy "
            "libraries inside the function, or raise NDSWEEP_TRAINING_SECONDS",
        ),
        (
            "import os, sys; print('no room', file=sys.stderr, flush=True); os._exit(3)",
            120.0,
            "importing my_module:train of my-package 1.2 ended its process (exit code 3: no room)",
        ),
        ("import nowhere", 120.0, "ModuleNotFoundError: No module named 'nowhere'"),
    ],
    ids=["slow", "dies", "raises"],
)
def test_a_package_that_cannot_be_imported_is_named_and_the_service_goes_on(
    client: TestClient, tmp_path: Path, reads: Reads, source: str, seconds: float, sentence: str
) -> None:
    with on_path(write_package(tmp_path / "package", source)):
        reads(seconds)
        # Where it sleeps, nobody who only asks what there is waits for it.
        before = _listed(client)["state"]
        refusal = _refusal(client)
        found = _listed(client)

    assert refusal.startswith("training: training 'mine' cannot be ")
    assert sentence in refusal
    assert before == "loading" or "sleep" not in source
    assert (found["state"], f"training: {found['error']}") == ("error", refusal)


def test_parts_of_the_built_in_training_are_described_too(
    client: TestClient, tmp_path: Path, reads: Reads
) -> None:
    registers = {"networks/net": "net", "metrics/score": "score", "datasets/numbers": "numbers"}
    base = {"network": "net", "dataset": "numbers", "metrics": ["score"], "steps": 5}
    widths = {"kind": "int", "low": 1, "high": 9}
    own = {
        "training": "images",
        "base": base,
        "space": {"network.width": widths},
        "objective": {"metric": "validation_score"},
    }
    with on_path(write_package(tmp_path / "package", PARTS, registers=registers)):
        reads(120.0)
        made = client.post("/api/v1/sweeps", json=SPEC | own)
        by_type = _refusal(client, **own | {"base": base | {"depth": True}})
        by_rule = _refusal(client, **own | {"base": base | {"depth": 20}})
        listed = client.get("/api/v1/parts").json()["items"]
        assert "my_module" not in sys.modules
    broken = tmp_path / "broken"
    with on_path(write_package(broken, "import nowhere", version="2", registers=registers)):
        missing = _refusal(client, **own)

    assert made.status_code == 201, made.text
    assert made.json()["spec"]["objective"]["direction"] == "maximize"
    assert made.json()["spec"]["metrics"]["validation_score"]["unit"] == "points"
    assert by_type.startswith("base.depth: ")
    assert "depth times width must be at most 100" in by_rule
    assert {item["field"] for item in listed} == {"network", "metrics", "dataset"}
    assert "ModuleNotFoundError: No module named 'nowhere'" in missing
