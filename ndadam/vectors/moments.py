"""The state of one parameter: its step count and its two moments, and how they are loaded."""

from typing import Any

import torch
from torch import Tensor

from ndadam.vectors.sharding import is_distributed, like_distributed, local

#: A parameter with its state.
Pair = tuple[Tensor, dict[str, Tensor]]


def new_moments(p: Tensor, vector_dim: int | None) -> dict[str, Tensor]:
    """State before the first step: on the parameter's device, in its strides, float32 for half."""
    dtype = p.dtype if p.dtype == torch.float64 else torch.float32
    return {
        # On the host, like torch's: bias correction then waits for no device.
        "step": torch.tensor(0.0, dtype=torch.float32, device="cpu"),
        "exp_avg": torch.zeros_like(p, dtype=dtype),
        "exp_avg_sq": _second_moment(p, vector_dim, dtype),
    }


def fitted_moments(
    name: str, p: Tensor, vector_dim: int | None, saved: dict[str, Any]
) -> dict[str, Tensor]:
    """Saved state on the device, in the type and with the strides that a new one would have.

    Raises:
        ValueError: A part is missing, or has another shape.
    """
    state = new_moments(p, vector_dim)
    for key, value in state.items():
        if key not in saved:
            raise ValueError(f"the loaded state of {name} has no {key}: it holds {sorted(saved)}")
        loaded = saved[key]
        if not isinstance(loaded, Tensor):  # older states hold plain numbers
            loaded = torch.tensor(loaded, device="cpu")
        if loaded.shape != value.shape:
            raise ValueError(
                f"{key} of {name} must have shape {tuple(value.shape)}, "
                f"the loaded state has {tuple(loaded.shape)}"
            )
        value.copy_(loaded)
    return state


def _second_moment(p: Tensor, vector_dim: int | None, dtype: torch.dtype) -> Tensor:
    """Zeros: one for each element, or (V, 1) for weight vectors."""
    if vector_dim is None:
        return torch.zeros_like(p, dtype=dtype)
    part = local(p)
    zeros = part.new_zeros(_one_per_vector(part.shape, vector_dim), dtype=dtype)
    if not is_distributed(p):
        return zeros
    return like_distributed(p, zeros, _one_per_vector(p.shape, vector_dim))


def _one_per_vector(shape: torch.Size, vector_dim: int) -> torch.Size:
    kept = vector_dim % len(shape)
    return torch.Size([size if d == kept else 1 for d, size in enumerate(shape)])
