"""The first example in this process: a trial with its checkpoint, and specs that are refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweeps.search.proposer import fixed_points
from sweeps.spec.sweep_spec import SweepSpec, explain
from sweeps.spec.text import load_spec_text
from tests.project.documents import page
from tests.project.examples.packages import EXAMPLES, Example, install
from tests.worker.training.installed import on_path
from worker.report import Report
from worker.training.trial import trial_reports


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    install([first()], target, tmp_path_factory.mktemp("source"))
    return target


def first() -> Example:
    return next(example for example in EXAMPLES if example.name == "gradient-boosting")


def reports(installed: Path, folder: Path) -> list[Report]:
    """Of the first trial of its spec, which is due a checkpoint at every report."""
    with on_path(installed):
        spec = SweepSpec.model_validate(load_spec_text(first().read("sweep.yaml")))
        config = spec.config(next(fixed_points(spec)), spec.base.seed)
        task = {
            "training": spec.training,
            "config": config.stored(),
            "device": "cpu",
            "checkpoint_dir": str(folder),
            "objective": spec.objective.model_dump(),
            "checkpoint_seconds": 0.0,
        }
        return list(trial_reports(task))


def test_a_trial_learns_and_leaves_a_checkpoint(installed: Path, tmp_path: Path) -> None:
    found = reports(installed, tmp_path)
    values = [report.metrics["validation_error"] for report in found if report.metrics]

    assert found[-1].status == "complete"
    assert len(values) == 5
    assert values[-1] <= min(0.1, values[0])
    assert list(tmp_path.glob("saved-*"))


RATE = {"kind": "float", "low": 0.05, "high": 1.5, "log": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"space": {"learning_rate": RATE}},
        {"base": {"tree": 50}},
        {"objective": {"metric": "accuracy", "direction": "maximize"}},
        {"objective": {"metric": "test_error"}},
        {"objective": {"metric": "validation_error", "direction": "maximize"}},
    ],
    ids=["range", "field", "objective", "test-set", "direction"],
)
def test_a_spec_is_refused_as_the_guide_says(installed: Path, changes: dict[str, Any]) -> None:
    values = load_spec_text(first().read("sweep.yaml"))
    with on_path(installed), pytest.raises(ValidationError) as refused:
        SweepSpec.model_validate(values | changes)

    (reason,) = (field["reason"] for field in explain(refused.value))
    assert f"`{reason}` |" in page("your-own.md")
