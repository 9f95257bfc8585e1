"""Parameters sharded over processes: which can be updated shard by shard, and their shards.

A weight vector that is whole on its process is turned there as if nothing was sharded. One that is
cut cannot: its norm would be that of a part.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_distributed(t: Tensor) -> "TypeGuard[DTensor]":
    """Whether ``t`` is a ``DTensor``; loads nothing that is not loaded already."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(t, module.DTensor)


def local(t: Tensor) -> Tensor:
    """The part of ``t`` that this process holds: all of it, unless it is distributed."""
    return t.to_local() if is_distributed(t) else t


def local_grad(p: Tensor) -> Tensor:
    """The part of the gradient of ``p`` that belongs to this process' part of ``p``."""
    grad = p.grad
    assert grad is not None  # parameters without a gradient have been left out
    if is_distributed(p) and is_distributed(grad):
        return grad.redistribute(placements=p.placements).to_local()
    return local(grad)


def like_distributed(p: "DTensor", part: Tensor, shape: torch.Size) -> Tensor:
    """A distributed tensor of ``shape`` placed like ``p``, whose part on this process is ``part``.

    The shape is said because shards need not be equally large.
    """
    from torch.distributed.tensor import DTensor

    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        part, p.device_mesh, p.placements, run_check=False, shape=shape, stride=strides
    )


def refuse_cut_vectors(name: str, p: Tensor, vector_dim: int | None) -> None:
    """Refuse a parameter whose weight vectors are spread over processes.

    Raises:
        ValueError: It is sharded along another dimension than ``vector_dim``, or holds parts of
            sums.
    """
    if not is_distributed(p):
        return
    for placement in p.placements:
        if placement.is_partial():
            raise ValueError(f"{name} holds partial sums ({placement}); redistribute it first")
        if vector_dim is None or placement.is_replicate():
            continue
        if placement.is_shard(vector_dim % p.dim()):
            continue
        raise ValueError(
            f"{name} of shape {tuple(p.shape)} is sharded through its weight vectors "
            f"({placement}, vectors along dimension {vector_dim}): no process would see a whole "
            f"one. Shard it along dimension {vector_dim} (fully_shard takes shard_placement_fn), "
            "replicate it, or put it into a group with vector_dim=None"
        )
