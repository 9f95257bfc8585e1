"""The function that every script of this folder sweeps, as it is before any tool is used."""

from collections.abc import Iterator

from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split


def train(learning_rate: float, depth: int, seed: int) -> Iterator[float]:
    """Yield the validation error after every ten trees per class, up to 50."""
    images, labels = load_digits(return_X_y=True)
    rest, _, rest_labels, _ = train_test_split(images, labels, random_state=0)
    part, held, part_labels, held_labels = train_test_split(rest, rest_labels, random_state=0)
    shape = {"learning_rate": learning_rate, "max_depth": depth, "max_features": "sqrt"}
    model = GradientBoostingClassifier(**shape, random_state=seed, warm_start=True)
    for trees in range(10, 51, 10):
        model.set_params(n_estimators=trees).fit(part, part_labels)
        yield 1 - model.score(held, held_labels)
