"""What workers run in tests of shared cards: real training, on a CPU that stands for the card."""

from typing import Any

from worker.tune_trainable import trainable


def on_cpu(params: dict[str, Any]) -> None:
    """Train as on a card, where there is none."""
    trainable({"task": params["task"] | {"device": "cpu"}})
