"""One optimizer step for parameters of a group that have taken equally many steps.

Chooses how the mathematics in ``turning`` and in ``adam_`` (Kingma and Ba, arXiv:1412.6980) is
called: many small parameters per call, large ones alone and on the CPU in pieces that fit a cache,
half-precision ones through a float32 copy.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ndadam.cuda import has_values
from ndadam.optimizer.skipped_vectors import SkippedVectors
from ndadam.vectors.moments import Pair
from ndadam.vectors.sharding import is_distributed, local, local_grad
from ndadam.vectors.turning import (
    Rates,
    foreach_turn_vectors_,
    lengths_of,
    normalise_vectors_,
    rates_of,
    staying,
    turn_vectors_,
)
from ndadam.vectors.vector_numbers import KeptNumbers


def adam_(
    params: list[Tensor],  # updated in place
    grads: list[Tensor],
    exp_avgs: list[Tensor],  # first moments; updated in place
    exp_avg_sqs: list[Tensor],  # second moments; updated in place
    *,
    step: float,  # 1 on the first call
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Take one Adam step for every element, with L2 weight decay in the gradient.

    As in ``torch.optim.Adam``, eps is added after bias correction. With eps = 0 an element that
    has never seen a gradient stays where it is.
    """
    beta1, beta2 = betas
    if weight_decay != 0:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, value=1 - beta2)

    denominators = list(torch._foreach_sqrt(exp_avg_sqs))
    torch._foreach_div_(denominators, math.sqrt(1 - beta2**step))
    torch._foreach_add_(denominators, eps)
    if eps == 0:
        for denominator in denominators:
            denominator.masked_fill_(denominator == 0, 1)
    torch._foreach_addcdiv_(params, exp_avgs, denominators, value=-lr / (1 - beta1**step))


# On the CPU parameters of up to this many elements share foreach calls; larger ones are updated in
# pieces, whose operands stay in the cache from one operation to the next.
_SHARED_ELEMENTS = 1 << 18

_PIECE_ELEMENTS = 1 << 18

# On other devices parameters of up to this many elements are stacked. A larger one keeps the device
# busy for longer than its launches take, and stacking would only copy it.
_STACKED_ELEMENTS = 1 << 20

_ONE = torch.tensor(1.0, device="cpu")


class StepOperands(NamedTuple):
    """Tensors of one parameter's step, in the precision that it is computed in."""

    parameter: Tensor
    shard: Tensor  # what this process holds of it
    w: Tensor  # the shard itself, or a copy in float32
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


def stored_operands(p: Tensor, state: dict[str, Tensor]) -> StepOperands:
    """The operands of a step of ``p`` as they are stored."""
    exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
    shard, grad = p, p.grad
    assert grad is not None  # parameters without a gradient have been left out
    if is_distributed(p):
        shard, grad = local(p), local_grad(p)
        exp_avg, exp_avg_sq = local(exp_avg), local(exp_avg_sq)
    return StepOperands(p, shard, shard, grad, exp_avg, exp_avg_sq)


def operands(p: Tensor, state: dict[str, Tensor], maximize: bool) -> StepOperands:
    """The operands of a step of ``p``, ready to descend; its gradient is not changed."""
    stored = stored_operands(p, state)
    if stored.w.dtype != stored.exp_avg.dtype:
        dtype = stored.exp_avg.dtype
        stored = stored._replace(w=stored.w.to(dtype))
    if stored.grad.dtype != stored.exp_avg.dtype:  # also where only gradients are kept short
        stored = stored._replace(grad=stored.grad.to(stored.exp_avg.dtype))
    return stored._replace(grad=-stored.grad) if maximize else stored


def advance_(pairs: list[Pair]) -> None:
    """Count one step for each parameter, on the host: the fused step counts on the device."""
    for _, state in pairs:
        if not state["step"].is_cpu and has_values(state["step"]):
            state["step"] = state["step"].cpu()
    steps = [state["step"] for _, state in pairs]
    if steps and has_values(steps[0]):
        # A tensor: a Python number would be wrapped into one for each parameter.
        torch._foreach_add_(steps, _ONE, alpha=1)
    else:
        for step in steps:  # fake ones add no real tensor
            step += 1


def batches_by_step(pairs: list[Pair], group: dict[str, Any]) -> dict[float, list[StepOperands]]:
    """StepOperands by step count, which is advanced: parameters count their own steps."""
    advance_(pairs)
    batches: dict[float, list[StepOperands]] = {}
    for p, state in pairs:
        o = operands(p, state, group["maximize"])
        if o.w.numel() > 0:  # a process may hold nothing of a sharded parameter
            batches.setdefault(state["step"].item(), []).append(o)
    return batches


def update_scalars_(batch: list[StepOperands], group: dict[str, Any], step: float) -> None:
    """Take Adam's step for every parameter of ``batch``."""
    _, shards, ws, grads, exp_avgs, exp_avg_sqs = map(list, zip(*batch, strict=True))
    adam_(
        ws,
        grads,
        exp_avgs,
        exp_avg_sqs,
        step=step,
        lr=float(group["lr"]),
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group["weight_decay"],
    )
    for shard, w in zip(shards, ws, strict=True):
        if w is not shard:
            shard.copy_(w)


def update_vectors_(
    batch: list[StepOperands],
    group: dict[str, Any],
    step: float,
    skipped: SkippedVectors,
    kept: KeptNumbers,
) -> None:
    """Take ND-Adam's step for every parameter of ``batch``; counts vectors that sit it out."""
    vector_dim, foreach = group["vector_dim"], group["foreach"]
    copies: dict[Tensor, Tensor | None] = {}  # lengths of parameters that are stepped as copies
    if any(o.w is not o.shard for o in batch):
        batch = [_from_direction(o, vector_dim, copies) for o in batch]
    numbers = step, float(group["lr"]), group["betas"], group["eps"]
    together: dict[tuple[torch.device, torch.dtype, torch.dtype], list[StepOperands]] = {}
    broken: list[Tensor | None] = []
    done: list[StepOperands] = []
    for o in batch:
        if _shares_calls(o.w, foreach):
            together.setdefault((o.w.device, o.w.dtype, o.shard.dtype), []).append(o)
        else:
            done.append(o)
            rates = rates_of(*numbers, o.shard.dtype)
            broken.append(_turn_in_pieces_(o, vector_dim, rates))
    for (_, _, dtype), members in together.items():
        done += members
        broken += _turn_together_(members, vector_dim, rates_of(*numbers, dtype), kept)
    if copies or any(marks is not None for marks in broken):
        _finish(done, broken, copies, skipped)


def _from_direction(
    o: StepOperands, vector_dim: int, copies: dict[Tensor, Tensor | None]
) -> StepOperands:
    """The operands with unit vectors, where they are copies, and the gradient that these have.

    The lengths of the vectors go into ``copies``, by shard.
    """
    if o.w is o.shard:
        return o
    dims = other_dims(o.w.dim(), vector_dim)
    lengths = copies[o.shard] = lengths_of(o.w, dims, rounding_of_lengths(o.shard.dtype))
    # Rounding to half precision has moved the norm: project with exact unit vectors.
    normalise_vectors_(o.w, dims)
    return o if lengths is None else o._replace(grad=o.grad * lengths)


def rounding_of_lengths(dtype: torch.dtype) -> float:
    """How far the length of a unit vector kept in half precision may be from 1.

    One unit in the last place, twice what rounding to nearest does.
    """
    return torch.finfo(dtype).eps


@functools.cache
def other_dims(num_dims: int, vector_dim: int) -> tuple[int, ...]:
    """The dimensions that one vector spans."""
    return tuple(d for d in range(num_dims) if d != vector_dim % num_dims)


def _shares_calls(w: Tensor, foreach: bool | None) -> bool:
    if foreach is None:
        return not w.is_cpu or w.numel() <= _SHARED_ELEMENTS
    return foreach


def _finish(
    batch: list[StepOperands],
    broken: list[Tensor | None],
    copies: dict[Tensor, Tensor | None],  # lengths before the step, by shard
    skipped: SkippedVectors,
) -> None:
    """Round to half precision where parameters have it, and count the vectors left out."""
    for o, marks in zip(batch, broken, strict=True):
        if o.w is not o.shard:
            rests = o.exp_avg_sq == 0
            stays = staying(rests if marks is None else rests | marks, marks, copies[o.shard])
            o.shard.copy_(torch.where(stays, o.shard.to(o.w.dtype), o.w))
    found = [(o, marks) for o, marks in zip(batch, broken, strict=True) if marks is not None]
    if found:
        counts = [skipped.counts_of(o.parameter, o.exp_avg_sq) for o, _ in found]
        skipped.add(counts, [marks for _, marks in found])


def _turn_in_pieces_(o: StepOperands, vector_dim: int, rates: Rates) -> Tensor | None:
    """Update runs of vectors one after the other."""
    count = o.w.shape[vector_dim]
    length = o.w.numel() // count
    rows = max(_PIECE_ELEMENTS // length, 1) if o.w.device.type == "cpu" else count
    dims = other_dims(o.w.dim(), vector_dim)
    pieces = [torch.split(x, rows, vector_dim) for x in o[2:]]
    broken = [
        turn_vectors_(w, grad, exp_avg, exp_avg_sq, rates, dims)
        for w, grad, exp_avg, exp_avg_sq in zip(*pieces, strict=True)
    ]
    if all(marks is None for marks in broken):
        return None
    return torch.cat(
        [
            torch.zeros_like(second, dtype=torch.bool) if marks is None else marks
            for marks, second in zip(broken, pieces[3], strict=True)
        ],
        vector_dim,
    )


def _turn_together_(
    batch: list[StepOperands], vector_dim: int, rates: Rates, kept: KeptNumbers
) -> list[Tensor | None]:
    """Update parameters of one device and type in few calls."""
    if not batch[0].w.is_cpu:
        return _turn_stacked_(batch, vector_dim, rates, kept, _STACKED_ELEMENTS)
    found: list[Tensor | None] = []
    for part in _parts(batch, _SHARED_ELEMENTS):
        _, _, ws, grads, exp_avgs, exp_avg_sqs = map(list, zip(*part, strict=True))
        dims = [other_dims(w.dim(), vector_dim) for w in ws]
        numbers = kept.like(exp_avg_sqs)
        broken = foreach_turn_vectors_(ws, grads, exp_avgs, exp_avg_sqs, rates, dims, numbers)
        found += [None] * len(part) if broken is None else broken
    return found


def _parts(batch: list[StepOperands], largest: int) -> Iterator[list[StepOperands]]:
    """Neighbours of together ``largest`` elements or fewer, whose operands the cache can hold."""
    part: list[StepOperands] = []
    held = 0
    for o in batch:
        if part and held + o.w.numel() > largest:
            yield part
            part, held = [], 0
        part.append(o)
        held += o.w.numel()
    yield part


def _turn_stacked_(
    batch: list[StepOperands], vector_dim: int, rates: Rates, kept: KeptNumbers, largest: int
) -> list[Tensor | None]:
    """Stack vectors of equal length, update the stacks, and put the parts back.

    A launch on a device costs more than the copies, and torch's foreach calls launch once for each
    tensor where one number per vector is spread over it. A network has few lengths.
    """
    members = _stacked_members(batch, vector_dim, largest)
    rows = [[_rows_of(o[k], vector_dim) for o in batch] for k in range(2, 6)]
    stacks = [[_join([r[i] for i in m]) for m in members] for r in rows]
    ws, grads, exp_avgs, exp_avg_sqs = stacks
    dims: list[tuple[int, ...]] = [(1,)] * len(members)
    numbers = kept.like(exp_avg_sqs)
    broken = foreach_turn_vectors_(ws, grads, exp_avgs, exp_avg_sqs, rates, dims, numbers)
    for k in (0, 2, 3):  # all but the gradients
        _put_back_([o[2 + k] for o in batch], rows[k], stacks[k], members, vector_dim)
    if broken is None:
        return [None] * len(batch)
    marks: list[Tensor | None] = [None] * len(batch)
    for m, stack in zip(members, broken, strict=True):
        parts = stack.split_with_sizes([rows[3][i].shape[0] for i in m])
        for i, part in zip(m, parts, strict=True):
            marks[i] = part.view(batch[i].exp_avg_sq.shape)
    return marks


def _stacked_members(batch: list[StepOperands], vector_dim: int, largest: int) -> list[list[int]]:
    """Positions of the parameters of each stack; those above ``largest`` elements are alone."""
    stacks: dict[int, list[int]] = {}
    for i, o in enumerate(batch):
        size = o.w.numel()
        stacks.setdefault(size // o.w.shape[vector_dim] if size <= largest else -1 - i, []).append(
            i
        )
    return list(stacks.values())


def _rows_of(t: Tensor, vector_dim: int) -> Tensor:
    """The vectors of ``t`` as rows, (V, D); shares its memory where that has room for it."""
    return (t if vector_dim == 0 else t.movedim(vector_dim, 0)).flatten(1)


def _join(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _put_back_(
    targets: list[Tensor],
    rows: list[Tensor],  # of each target
    stacks: list[Tensor],
    members: list[list[int]],
    vector_dim: int,
) -> None:
    """Copy the rows of each stack into the tensors that it was made from."""
    places, parts = [], []
    have_places = has_values(targets[0])  # fake tensors lie nowhere
    for m, stack in zip(members, stacks, strict=True):
        are_views = [have_places and rows[i].data_ptr() == targets[i].data_ptr() for i in m]
        if are_views == [True]:
            continue  # a single one was updated where it is
        split = stack.split_with_sizes([rows[i].shape[0] for i in m])
        for i, part, is_view in zip(m, split, are_views, strict=True):
            place = rows[i] if is_view else targets[i].movedim(vector_dim, 0)
            places.append(place)
            parts.append(part if is_view else part.view(place.shape))
    if places:
        torch._foreach_copy_(places, parts)
