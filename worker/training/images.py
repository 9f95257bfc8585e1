"""The built-in training, as a training function: networks on images, see ``worker.train``.

A generator, which other functions are not: it hands on the turn between steps, so that several
trials of a card may run in one thread.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from worker.config.train_config import TrainConfig
from worker.config.training import FIXED_METRICS, training
from worker.report import Report
from worker.training.handle import Run
from worker.training.train import train_in_turns

if TYPE_CHECKING:
    from worker.steps.turns import Turn


@training(metrics=FIXED_METRICS)
def train(config: TrainConfig, run: Run) -> Generator["Turn | None", None, None]:
    """Train a network; yield a turn every few steps, and None when there is a report."""
    turns = train_in_turns(
        config,
        data_home=run.data_home,
        checkpoint_dir=run.folder,
        checkpoint_seconds=run.checkpoint_seconds,
        measurement=run.measurement,
        stop=run.should_stop,
        threads=run.threads,
    )
    try:
        for item in turns:
            if isinstance(item, Report):
                run.give(item)
                yield None
            else:
                yield item
    finally:
        turns.close()
