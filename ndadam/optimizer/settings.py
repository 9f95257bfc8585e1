"""What ND-Adam refuses: group settings outside their range, parameters it cannot update.

Where torch refuses the same, the message begins with torch's.
"""

import math
import numbers
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from ndadam.vectors.sharding import refuse_cut_vectors


def check_group(group: dict[str, Any]) -> None:
    """Refuse settings of one parameter group. Raises ValueError with the value in the text."""
    _check_rates(group)
    _check_betas(group["betas"])
    vector_dim = group["vector_dim"]
    if vector_dim is not None and (isinstance(vector_dim, bool) or not isinstance(vector_dim, int)):
        raise ValueError(f"vector_dim must be a whole number or None, got {vector_dim!r}")
    check_decay(group)


def check_loaded(saved_groups: list[dict[str, Any]]) -> None:
    """Refuse the groups of another optimizer, with which vectors would become scalars unnoticed."""
    for index, group in enumerate(saved_groups):
        if "vector_dim" not in group:
            raise ValueError(
                f"group {index} of the loaded state has no vector_dim, so another optimizer than "
                f"NDAdam has saved it: it holds {sorted(set(group) - {'params'})}. Its moments are "
                "those of other steps; start NDAdam without them"
            )


def check_decay(group: dict[str, Any]) -> None:
    """Refuse weight decay on weight vectors."""
    if group["vector_dim"] is not None and group["weight_decay"] != 0:
        raise ValueError(
            "weight_decay must be 0 in a group with vector_dim: the norm of weight vectors is "
            f"pinned to 1, so decay on them does nothing; got {group['weight_decay']}. "
            "Set weight_decay=0 in that group and decay the scalars' group"
        )


def check_parameter(name: str, p: Tensor, vector_dim: int | None) -> None:
    """Refuse a parameter that cannot be updated with this ``vector_dim``."""
    if is_lazy(p):
        raise ValueError(
            f"{name} has no shape yet: run one batch through the model, which gives its lazy "
            "modules their shapes, and make the optimizer then"
        )
    if p.is_complex():
        raise ValueError(f"{name} is complex ({p.dtype}); NDAdam takes real parameters only")
    if not p.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {p.dtype}")
    if vector_dim is not None and p.dim() < 2:
        raise ValueError(
            f"weight vectors need a parameter of 2 or more dimensions, got {name} of shape "
            f"{tuple(p.shape)}; put it into a group with vector_dim=None. If a sharding wrapper "
            "has flattened it, use one that keeps rows, such as fully_shard"
        )
    if vector_dim is not None and not -p.dim() <= vector_dim < p.dim():
        raise ValueError(
            f"vector_dim must be a dimension of every parameter of its group, got {vector_dim} "
            f"for {name} of shape {tuple(p.shape)}"
        )
    refuse_cut_vectors(name, p, vector_dim)


def _check_rates(group: dict[str, Any]) -> None:
    for key, torchs_name in _RATES.items():
        value = group[key]
        if isinstance(value, Tensor):
            if key != "lr":
                raise ValueError(f"{key} must be a number, got {value!r}")
            if value.numel() != 1:
                raise ValueError(
                    f"Tensor lr must be 1-element, got one of shape {tuple(value.shape)}"
                )
        elif not isinstance(value, numbers.Real):
            raise ValueError(f"{key} must be a number, got {value!r}")
        if not 0 <= value < math.inf:
            raise ValueError(f"Invalid {torchs_name}: {value}; {key} must be >= 0 and finite")


_RATES = {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value"}


def _check_betas(betas: Any) -> None:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers, got {betas!r}")
    for i, beta in enumerate(betas):
        if not isinstance(beta, float | int):
            raise ValueError(f"betas must be two numbers, got {beta!r} at index {i}")
        if not 0.0 <= beta < 1.0:
            raise ValueError(
                f"Invalid beta parameter at index {i}: {beta}; betas must be in [0, 1)"
            )
