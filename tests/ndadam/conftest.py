"""Every test of the library draws the same random numbers, whatever ran before it."""

import pytest
import torch

from tests.interpreter import leave_out_idle_checks


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> None:
    leave_out_idle_checks()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
