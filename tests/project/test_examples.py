"""The packages in ``examples/``: each is installed, its spec validated, its first trial trained."""

import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeps.search.proposer import fixed_points
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.text import load_spec_text
from tests.project.documents import fenced
from tests.worker.training.installed import on_path
from worker.training.trial import trial_reports

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/pyproject.toml"))
#: Lines of an example's module, and seconds of one of its trials on two cores.
LINES, SECONDS = 60, 30
#: Of the last report of a trial -> the largest value that is worth showing.
GOOD = {"gradient-boosting": ("validation_error", 0.1)}


@dataclass(frozen=True)
class Example:
    folder: Path
    project: dict[str, Any]
    spec: SweepSpec


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.name)
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    """An example as pip installs it, from a copy: building leaves files beside the source."""
    source = tmp_path_factory.mktemp("source")
    for path in request.param.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    target = tmp_path_factory.mktemp("installed")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, cwd=source)
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    with on_path(target):
        values = load_spec_text((source / "sweep.yaml").read_text("utf-8"))
        yield Example(request.param, project, SweepSpec.model_validate(values))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= len(GOOD) >= 1


def test_an_example_is_short(example: Example) -> None:
    for path in example.folder.glob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= LINES, path


def test_the_guide_shows_the_first_example_as_it_is() -> None:
    guide = ROOT / "docs" / "your-own.md"
    shown = [fenced(guide, language)[0] for language in ("python", "toml", "yaml")]
    names = ("gradient_boosting.py", "pyproject.toml", "sweep.yaml")
    folder = ROOT / "examples" / "gradient-boosting"

    assert shown == [(folder / name).read_text("utf-8") for name in names]


def test_an_example_trains(example: Example, tmp_path: Path) -> None:
    spec = example.spec
    config = spec.config(next(fixed_points(spec)), spec.base.seed)
    task = {
        "training": spec.training,
        "config": config.stored(),
        "device": "cpu",
        "checkpoint_dir": str(tmp_path),
        "objective": spec.objective.model_dump(),
        "checkpoint_seconds": 0.0,
    }
    began = time.monotonic()
    reports = list(trial_reports(task))
    took = time.monotonic() - began
    metric, most = GOOD[example.folder.name]
    values = [report.metrics[metric] for report in reports if metric in report.metrics]

    assert reports[-1].status == "complete"
    assert len(values) > 1
    assert values[-1] <= min(most, values[0])
    assert list(tmp_path.glob("saved-*"))
    assert took < SECONDS
