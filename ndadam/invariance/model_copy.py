"""Copies of a model to train or to probe, and randomness that is put back afterwards."""

import copy
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn


def copy_of(model: nn.Module) -> nn.Module:
    """A deep copy. Raises ValueError for a model that keeps what cannot be copied, by name."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        kept = [
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, Tensor) and value.grad_fn is not None
        ]
        what = (
            f"it keeps tensors of an earlier forward pass in {', '.join(kept)}; set them to None"
            if kept
            else str(error)
        )
        raise ValueError(f"model must be one that can be copied, and cannot: {what}") from error


def same_randomness_after() -> AbstractContextManager[Any]:
    """Put torch's generators of the CPU and of every card back at the end.

    Of every card, because ``torch.manual_seed`` seeds them all, wherever a model is.
    """
    is_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    count = torch.cuda.device_count() if is_in_use else 0
    return torch.random.fork_rng(devices=range(count))
