"""Every test of the library draws the same random numbers, whatever ran before it."""

import pytest
import torch

from tests.interpreter import hasten_interpreter


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> None:
    hasten_interpreter()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
