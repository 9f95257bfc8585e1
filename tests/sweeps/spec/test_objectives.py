"""Several objectives in a spec: what they make of ``objective``, and what is refused."""

from typing import Any

import pytest

from sweeps.records import SweepObjective
from sweeps.spec.sweep_spec import SweepSpec
from tests.sweeps.spec.test_training import ACCURACY, external, refusal
from tests.sweeps.sweep_cases import stored_sweep, sweep_spec

TWO = [{"metric": "loss"}, {"metric": "seconds"}]


def several(**fields: Any) -> SweepSpec:
    """A spec that says nothing of ``objective``."""
    values = external().model_dump(mode="json", exclude={"objective"}) | {"objectives": TWO}
    return SweepSpec.model_validate(values | fields)


def test_the_first_is_the_objective_of_everything_that_shows_one() -> None:
    spec = several(
        objectives=[{"metric": "accuracy", "reference": 0.5}, {"metric": "seconds"}],
        metrics=ACCURACY | {"seconds": {"direction": "minimize", "unit": "s"}},
    )
    stored = spec.model_dump(mode="json")
    sweep = stored_sweep(stored)

    # The direction is the one that the metric declares.
    assert stored["objective"] == {"metric": "accuracy", "direction": "maximize"}
    assert sweep.objective == SweepObjective("accuracy", "maximize")
    assert sweep.objectives == (
        SweepObjective("accuracy", "maximize", 0.5),
        SweepObjective("seconds", "minimize"),
    )
    assert sweep.has_front
    assert SweepSpec.model_validate(stored) == spec


def test_a_spec_with_one_objective_is_stored_as_before() -> None:
    stored = sweep_spec().model_dump(mode="json")

    assert "objectives" not in stored
    assert not stored_sweep(stored).has_front
    assert stored_sweep(stored).objectives == (SweepObjective("validation_error", "minimize"),)


def test_images_have_several_objectives_too() -> None:
    spec = sweep_spec(objectives=[{"metric": "validation_error"}, {"metric": "train_loss"}])

    assert [one.metric for one in spec.every_objective] == ["validation_error", "train_loss"]


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"objectives": TWO[:1]}, "objectives", "two or more; a single one, loss, belongs in"),
        ({"objectives": TWO + TWO[:1]}, "objectives", "must differ, and loss is there twice"),
        (
            {"objectives": TWO, "objective": {"metric": "seconds"}},
            "objective",
            "be the first of them, minimize loss; got minimize seconds",
        ),
        (
            {"objectives": TWO, "scheduler": {"kind": "median"}},
            "scheduler",
            "none is stopped early; got 'median'",
        ),
        (
            {"objectives": [*TWO, {"metric": "test_loss"}]},
            "objectives.2.metric",
            "must not be 'test_loss' where results steer",
        ),
        (
            {
                "objectives": TWO,
                "sampler": "tpe",
                "prior": [{"params": {"lr": 0.1}, "value": 1.0}],
            },
            "prior",
            "has one value for a point, and this sweep has 2 objectives",
        ),
        ({"objectives": [{"metric": f"m{i}"} for i in range(6)]}, "objectives", "at most 5"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], path: str, words: str) -> None:
    where, reason = refusal(**fields)

    assert where == path
    assert words in reason
