"""Small data sets and configs for the worker's tests."""

import numpy as np
import pytest
import torch

from tests.interpreter import hasten_interpreter
from worker import TrainConfig
from worker.data.fetch import prepare_digits
from worker.data.prepared import Arrays, write_dataset


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    # Two test processes on two cores would fight, and sums depend on the number of threads.
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _interpreter():
    hasten_interpreter()


@pytest.fixture(autouse=True)
def _on_the_cpu(request, monkeypatch):
    """Runs that choose a device by themselves take the CPU, whose sums are the same each time.

    What is about a card is in tests/worker/cuda.
    """
    if request.path.parent.name != "cuda":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def made_up_arrays(side=8, channels=3, classes=4, train=96, test=24, seed=0):
    """Images whose colour tells their class, under noise."""
    rng = np.random.default_rng(seed)

    colour = rng.integers(40, 215, (classes, 1, 1, channels), np.int64)

    def draw(count):
        labels = np.arange(count) % classes
        noise = rng.integers(-30, 31, (count, side, side, channels))
        return np.clip(colour[labels] + noise, 0, 255).astype(np.uint8), labels.astype("<u2")

    return Arrays(*draw(train), *draw(test))


def result_of(turns):
    """What a generator of turns returns."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="session")
def made_up_cifar():
    """Arrays of a tiny set of 32 x 32 RGB images in ten classes, as CIFAR-10 has them."""
    return made_up_arrays(side=32, classes=10, train=60, test=20)


@pytest.fixture(scope="session")
def data_home(tmp_path_factory):
    """A data home with ``digits`` and ``colours`` (96 + 24 images of 8 x 8 x 3, 4 classes)."""
    home = tmp_path_factory.mktemp("data")
    prepare_digits(home)
    write_dataset("colours", home, made_up_arrays(), classes=tuple("abcd"), source="made up")
    return home


@pytest.fixture(scope="session")
def tiny_config():
    """Twelve steps of a WRN-10-1 on ``colours``: three epochs of four batches."""
    return TrainConfig(
        dataset="colours",
        depth=10,
        widen_factor=1.0,
        crop_pad=1,
        batch_size=20,
        steps=12,
        validation_fraction=0.125,
        optimizer="ndadam",
        alpha_s=0.01,
    )
