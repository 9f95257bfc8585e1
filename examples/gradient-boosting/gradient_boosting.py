"""Gradient boosting on scikit-learn's digits: a training function without torch."""

from dataclasses import dataclass
from typing import Annotated

import joblib
from pydantic import Field
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

import ndsweep  # ndsweep

ERROR = ndsweep.Metric("minimize", unit="%")  # ndsweep
TEST_ERROR = ndsweep.Metric("minimize", unit="%", test=True)  # ndsweep


@dataclass(frozen=True)
class Config:
    learning_rate: Annotated[float, Field(gt=0, le=1, description="Weight of each tree.")] = 0.1
    depth: Annotated[int, Field(ge=1, le=10, description="Levels of a tree.")] = 3
    trees: Annotated[int, Field(ge=10, le=1000, description="Trees per class.")] = 50


@ndsweep.training(metrics={"validation_error": ERROR, "test_error": TEST_ERROR})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    """Add ten trees per class at a time; report the errors on data held out."""
    images, labels = load_digits(return_X_y=True)
    rest, test, rest_labels, test_labels = train_test_split(images, labels, random_state=0)
    part, held, part_labels, held_labels = train_test_split(rest, rest_labels, random_state=0)
    model = GradientBoostingClassifier(
        learning_rate=config.learning_rate,
        max_depth=config.depth,
        n_estimators=0,
        max_features="sqrt",
        random_state=run.seed,  # ndsweep
        warm_start=True,
    )
    folder = run.restore()  # ndsweep
    model = joblib.load(folder / "model") if folder else model  # ndsweep
    for trees in range(model.n_estimators + 10, config.trees + 1, 10):
        model.set_params(n_estimators=trees).fit(part, part_labels)
        errors = {"validation_error": 1 - model.score(held, held_labels)}
        if trees + 10 > config.trees:
            errors["test_error"] = 1 - model.score(test, test_labels)
        run.report(step=trees, metrics=errors, num_steps=config.trees)  # ndsweep
        run.checkpoint(lambda folder: joblib.dump(model, folder / "model"))  # ndsweep
