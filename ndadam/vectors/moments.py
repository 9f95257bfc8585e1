"""The state of one parameter: its step count and its two moments, and how they are loaded."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ndadam.cuda import has_values
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


def check_kinds(name: str, p: Tensor, saved: Any) -> None:
    """Refuse saved state that holds something else than numbers, before torch looks at it.

    Raises:
        ValueError: With the parameter's name, the part and what it is.
    """
    if not isinstance(saved, dict):
        raise ValueError(f"the loaded state of {name} must be a dict, got {type(saved).__name__}")
    for key in saved.keys() & _PARTS:
        value = saved[key]
        part = f"{key} of {name} in the loaded state"
        if not isinstance(value, Tensor):
            is_count = isinstance(value, Real) and not isinstance(value, bool)
            if key == "step" and is_count:  # as in older states
                continue
            raise ValueError(f"{part} must be a tensor, got {type(value).__name__}")
        if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
            kind = value.dtype if value.layout is torch.strided else value.layout
            raise ValueError(f"{part} must be a dense tensor of real numbers, got {kind}")
        if has_values(p) and not has_values(value):
            raise ValueError(
                f"{part} has a shape and no numbers (device {value.device}): it was saved, or "
                "loaded, without them"
            )


def fitted_moments(
    name: str, p: Tensor, vector_dim: int | None, saved: dict[str, Any]
) -> dict[str, Tensor]:
    """Saved state on the device, in the type and with the strides that a new one would have.

    Raises:
        ValueError: A part is missing, has another shape, or values that no step leaves.
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
        _refuse_values(key, name, local(value), is_vector=vector_dim is not None)
    return state


_PARTS = frozenset(("step", "exp_avg", "exp_avg_sq"))


def _refuse_values(key: str, name: str, value: Tensor, *, is_vector: bool) -> None:
    """Refuse a part of a state with which weights would become NaN, or a step would fail."""
    if not has_values(value) or value.numel() == 0:
        return
    if key == "step":
        count = value.item()
        if not (count >= 0 and float(count).is_integer()):
            raise ValueError(f"step of {name} must be a whole number >= 0, got {count}")
        return
    if key == "exp_avg":
        rule, wrong = "finite", value.isfinite().logical_not_()
    elif is_vector:
        rule, wrong = ">= 0 and finite", value.isfinite().logical_and_(value >= 0).logical_not_()
    else:
        # The square of a large gradient of a scalar is inf, as in torch's Adam: it rests then.
        rule, wrong = ">= 0", (value >= 0).logical_not_()
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            f"{key} of {name} must be {rule}, the loaded state has {value[at].item()} at {at} "
            f"(of {int(wrong.sum())} such values)"
        )


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
