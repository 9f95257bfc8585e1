"""Every test of the library draws the same random numbers, whatever ran before it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
