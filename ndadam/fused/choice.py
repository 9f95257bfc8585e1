"""Which parameters of an optimizer take the fused step, and what the step has to know of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ndadam.cuda import HAS_TRITON, is_capturing
from ndadam.vectors.moments import Pair

if TYPE_CHECKING:
    from ndadam.fused.launch import FusedGroup
    from ndadam.fused.plan import FusedPlan
    from ndadam.fused.step import FusedStep


def new_fused_step() -> "FusedStep | None":
    """The fused step of one optimizer, None where Triton is not installed."""
    if not HAS_TRITON:
        return None
    from ndadam.fused.step import FusedStep

    return FusedStep()


def new_plan(
    param_groups: Sequence[dict[str, Any]],
    state: Mapping[Tensor, dict[str, Tensor]],
    steps: "Mapping[int, FusedGroup]",
) -> "FusedPlan":
    """What has just been updated, to be recognised in the next step."""
    from ndadam.fused.plan import FusedPlan

    return FusedPlan(param_groups, state, steps)


def check_fused(group: dict[str, Any]) -> None:
    """Refuse ``fused=True`` where nothing can be fused, with torch's error type.

    Raises:
        RuntimeError: Together with ``foreach=True``, without Triton, or for parameters that are
            not on a CUDA device.
    """
    if not group["fused"]:
        return
    if group["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if not HAS_TRITON:
        raise RuntimeError("fused=True needs Triton, which is not installed; leave fused out")
    for p in group["params"]:
        if not p.is_cuda:
            raise RuntimeError(
                f"fused=True needs parameters on a CUDA device, got one of shape {tuple(p.shape)} "
                f"on {p.device}; leave fused out to have it chosen"
            )


def wants_fused(group: dict[str, Any], *, compiled: bool = False) -> bool:
    """Whether a group's settings allow the fused step: unless something else is asked for."""
    if group["fused"] is None:
        return group["foreach"] is None and not compiled
    return bool(group["fused"])


def fused_group(pairs: Sequence[Pair], group: dict[str, Any]) -> "FusedGroup":
    """The operands of one group's fused step; step counts move to the parameters' device."""
    from ndadam.fused.launch import FusedGroup

    params, states = zip(*pairs, strict=True)
    on_cuda = params[0].is_cuda
    for p, state in pairs:
        if state["step"].is_cuda is not on_cuda:
            state["step"] = state["step"].to(p.device)
    return FusedGroup(
        params=params,
        grads=[p.grad for p in params],
        exp_avgs=[state["exp_avg"] for state in states],
        exp_avg_sqs=[state["exp_avg_sq"] for state in states],
        steps=[state["step"] for state in states],
        lr=group["lr"],
        betas=group["betas"],
        eps=group["eps"],
        vector_dim=group["vector_dim"],
        weight_decay=group["weight_decay"],
        maximize=group["maximize"],
    )


def refuse_new_state_in_capture(p: Tensor) -> None:
    """Refuse a first step inside a CUDA graph capture: each replay would be a first step."""
    if is_capturing(p.device):
        raise RuntimeError(
            "NDAdam cannot create its state inside a CUDA graph capture: take one step with these "
            "parameters before capturing"
        )


def prepare_capture(
    group: dict[str, Any],
    device: torch.device,
    kept: dict[int, Tensor],
    index: int,
    *,
    is_fused: bool,
) -> None:
    """Keep the learning rate of a capturable group on the device; refuse captures that go wrong.

    A number that a scheduler has assigned goes into the tensor of the steps before, which is the
    one that captured graphs read; ``kept`` remembers it by the group's ``index``.

    Raises:
        RuntimeError: In a capture: without ``capturable``; for parameters whose steps are counted
            on the host; with a learning rate that is a number, which every replay would repeat.
    """
    if is_capturing(device):
        _refuse_unsafe_capture(group, is_fused=is_fused)
    elif group["capturable"]:
        lr = group["lr"]
        if not isinstance(lr, Tensor):
            known = kept.get(index)
            if known is None or known.device != device:
                known = torch.tensor(float(lr), dtype=torch.float32, device=device)
            group["lr"] = known.fill_(float(lr))
        kept[index] = group["lr"]


def _refuse_unsafe_capture(group: dict[str, Any], *, is_fused: bool) -> None:
    if not group["capturable"]:
        raise RuntimeError(
            "Attempting CUDA graph capture of step() for an instance of NDAdam but "
            "param_groups' capturable is False"
        )
    if not is_fused:
        raise RuntimeError(
            "only NDAdam's fused step can be captured in a CUDA graph: this group has parameters "
            "that it does not take (float64, vectors that are not dense in memory, fused=False)"
        )
    if not isinstance(group["lr"], Tensor) or not group["lr"].is_cuda:
        raise RuntimeError(
            f"the learning rate to capture must be a tensor on the device, got {group['lr']!r}: "
            "take one step before capturing, which makes a number one"
        )
