"""What a spec says about its training: the class of its config, its metrics, its package."""

from typing import Any

import pytest
from pydantic import ValidationError

from sweeps.analysis.formatting import metric_title, metric_with_unit
from sweeps.figures.quantities import quantity
from sweeps.search.early_stopping import MedianScheduler, PointScheduler
from sweeps.search.protocol import Proposal
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.validation_messages import explain
from tests.sweeps.sweep_cases import stored_sweep, sweep_spec, waiting_trial
from worker.config.train_config import TrainConfig
from worker.config.trial_config import MAX_FREE_FIELDS, FreeConfig

RATE = {"kind": "float", "low": 0.001, "high": 1.0, "log": True}
ACCURACY = {"accuracy": {"direction": "maximize", "unit": "%"}}


def external(**fields: Any) -> SweepSpec:
    spec = {
        "name": "elsewhere",
        "training": "external",
        "base": {"dataset": "mine", "layers": [8, 8], "seed": 3},
        "space": {"lr": RATE},
        "num_points": 4,
        "objective": {"metric": "loss"},
    }
    return SweepSpec.model_validate(spec | fields)


def refusal(**fields: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        external(**fields)
    (one,) = explain(caught.value)
    return one["path"], one["reason"]


# --- Images -----------------------------------------------------------------------------------


def test_a_spec_without_a_training_trains_on_images_and_is_stored_as_before() -> None:
    spec = sweep_spec()
    stored = spec.model_dump(mode="json")

    assert spec.training == "images"
    assert isinstance(spec.base, TrainConfig)
    assert not {"training", "metrics", "package"} & stored.keys()
    assert spec.model_dump(mode="json") == sweep_spec(training="images").model_dump(mode="json")
    assert stored_sweep(stored).training == "images"


def test_the_schema_shows_the_fields_of_images() -> None:
    schema = SweepSpec.model_json_schema()

    assert schema["properties"]["base"]["$ref"] == "#/$defs/TrainConfig"


# --- Trainings elsewhere ----------------------------------------------------------------------


def test_an_external_sweep_has_free_fields_and_comes_back_from_the_store() -> None:
    spec = external(metrics=ACCURACY, objective={"metric": "accuracy"})
    stored = spec.model_dump(mode="json")
    config = spec.config({"lr": 0.1}, seed=4)

    assert stored["base"] == {"seed": 3, "dataset": "mine", "layers": [8, 8]}
    assert SweepSpec.model_validate(stored) == spec
    assert config.stored() == {"seed": 4, "dataset": "mine", "layers": [8, 8], "lr": 0.1}
    assert config.key() == spec.config({"lr": 0.1}, seed=5).key()
    assert config.key() != spec.config({"lr": 0.2}, seed=4).key()
    assert stored_sweep(stored).training == "external"
    assert stored_sweep(stored).metrics["accuracy"]["unit"] == "%"


def test_an_objective_takes_the_direction_that_its_metric_declares() -> None:
    spec = external(metrics=ACCURACY, objective={"metric": "accuracy"})

    assert spec.objective.direction == "maximize"
    assert spec.model_dump(mode="json")["objective"]["direction"] == "maximize"


#: changes of a good external spec -> path and part of the reason that it is refused with.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"training": "mine"}, "training", "one of external, images, got 'mine'"),
    ({"training": 3}, "training", "valid string, got 3"),
    ({"base": {"lr": 0.1}}, "space.lr", "in base or in space, not in both; got 0.1 in base"),
    ({"base": {"a b": 1}}, "base.a b", "letters, digits, _, . and - alone, at most 100; got 'a b'"),
    ({"base": {"x" * 101: 1}}, f"base.{'x' * 79}…", "at most 100"),
    ({"base": {"x": {"deep": 1}}}, "base.x", "valid number, got {'deep': 1}"),
    ({"base": {"x": float("nan")}}, "base.x", "finite number, got nan"),
    ({"base": {"seed": -1}}, "base.seed", "greater than or equal to 0, got -1"),
    (
        {"base": {f"x{i}": i for i in range(MAX_FREE_FIELDS + 1)}},
        "base",
        "1,000 fields, this one has 1,001",
    ),
    ({"space": {"seed": {"kind": "int", "low": 0, "high": 3}}}, "space.seed", "replicates vary it"),
    ({"space": {"a b": RATE}}, "space.a b", "not a field of a training config"),
    (
        {"metrics": ACCURACY},
        "objective.metric",
        "one of the metrics of training 'external' (accuracy), got 'loss'",
    ),
    (
        {"metrics": ACCURACY, "objective": {"metric": "accuracy", "direction": "minimize"}},
        "objective.direction",
        "must be 'maximize', which is better for accuracy; got 'minimize'",
    ),
    ({"objective": {"metric": "test_accuracy"}}, "objective.metric", "must not be 'test_accuracy'"),
    (
        {"metrics": {"loss": {"test": True}}},
        "objective.metric",
        "must not be 'loss' where results steer the search",
    ),
    (
        {"metrics": {"loss": {}, "train_loss": {"direction": "maximize"}}},
        "metrics.train_loss.direction",
        "train_loss has a fixed meaning, direction 'minimize'",
    ),
    (
        {"metrics": {"loss": {}, "validation_error": {"unit": "mm"}}},
        "metrics.validation_error.unit",
        "fixed meaning, unit '%': give it another name, or leave unit out; got 'mm'",
    ),
    (
        {"resources": {"gpus": 1, "trials_per_gpu": 2}},
        "resources.trials_per_gpu",
        "must be 1 for training 'external'",
    ),
    ({"package": {"name": "mine", "version": "1"}}, "package", "none for training 'external'"),
]


@pytest.mark.parametrize(("changes", "path", "reason"), REFUSED)
def test_an_external_spec_that_breaks_a_rule_is_refused_by_its_field(
    changes: dict[str, Any], path: str, reason: str
) -> None:
    found = refusal(**changes)

    assert found[0] == path
    assert reason in found[1]


def test_images_declare_their_metrics_themselves() -> None:
    with pytest.raises(ValidationError, match="declared by training 'images' itself"):
        sweep_spec(metrics=ACCURACY)


def test_a_test_metric_may_be_the_objective_of_a_grid() -> None:
    grid = {"kind": "choice", "values": [0.1, 0.2]}
    spec = external(space={"lr": grid}, sampler="grid", objective={"metric": "test_accuracy"})

    assert spec.objective.metric == "test_accuracy"


def test_a_field_that_is_named_like_a_method_is_a_field() -> None:
    fields = {"key": "a", "stored": 1, "_x": [1, 2], "model_config": 0.5}

    assert FreeConfig.model_validate(fields).stored() == {"seed": 0, **fields}


# --- Where no field is assumed ----------------------------------------------------------------


def test_points_are_judged_together_where_there_is_no_optimizer() -> None:
    scheduler = PointScheduler(MedianScheduler(min_steps=0, min_points=2))
    for point, loss in enumerate([1.0, 2.0, 3.0]):
        params = {"lr": 0.1 * (point + 1)}
        trial = waiting_trial(point, Proposal(point, params, external().config(params, 0)))
        scheduler.started(trial)
        scheduler.reported(trial, 10, loss)

    assert [scheduler.cause(point) is None for point in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("metric", "unit", "title", "value"),
    [
        ("validation_error", "", "validation error %", "25.00 %"),
        ("abs_error", "mm", "abs error mm", "0.25 mm"),
        ("abs_error", "", "abs error", "0.25"),
    ],
)
def test_only_the_three_errors_are_fractions(
    metric: str, unit: str, title: str, value: str
) -> None:
    what = quantity(metric, {metric: {"unit": unit}})

    assert metric_title(metric, unit) == title
    assert metric_with_unit(metric, 0.25, unit) == value
    assert what.unit == (unit or ("%" if metric == "validation_error" else ""))
    assert what.is_fraction == (metric == "validation_error")
