"""Gives a model unit weight vectors without changing what it computes."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ndadam.cuda import has_values
from ndadam.invariance.structure import batch_norms_behind
from ndadam.optimizer.foreach_step import other_dims
from ndadam.vectors.scaled import VectorScale
from ndadam.vectors.sharding import is_distributed
from ndadam.vectors.turning import normalise_vectors_
from ndadam.vectors.weight_vectors import Assignment, assign_parameters, places_of


@dataclass(frozen=True)
class Prepared:
    """What ``prepare`` has done.

    Attributes:
        folded: Weights whose norms are in the batch normalisation that follows now.
        scaled: Weights whose norms are trainable scales now.
        kept: Weights that are as they were, and why: plain Adam is to train them.
        rules: For ``param_groups(model, rules=…)``: the caller's, and None for what is kept.
        largest_difference: Between the outputs before and after, in evaluation mode, over the
            largest output; None without a batch.
    """

    folded: tuple[str, ...]
    scaled: tuple[str, ...]
    kept: dict[str, str]
    rules: dict[Any, int | None] = field(repr=False)
    largest_difference: float | None


def prepare(
    model: nn.Module,
    batch: Any = None,
    *,
    rules: Mapping[Any, int | None] | None = None,
    exclude: Iterable[Any] = (),
) -> Prepared:
    """Bring the weight vectors of ``model`` to unit norm, in place, and keep its outputs.

    For networks that are trained already: ``NDAdam`` gives the vectors unit norm when it is made,
    which changes what layers compute that no normalisation follows. Here the norms go into the
    batch normalisation behind a layer, if there is one and nothing else reads the layer, and else
    into a trainable scale for each vector: ``layer.weight`` is computed as scale times vectors
    (``torch.nn.utils.parametrize``), so code that reads it sees what it saw, and
    ``remove_parametrizations(layer, "weight")`` makes a plain layer of it. With a batch
    normalisation outputs stay the same in evaluation mode; in training mode they do up to its eps.

    Make the optimizer afterwards, with the rules that are returned::

        prepared = prepare(model, batch)
        optimizer = NDAdam(param_groups(model, rules=prepared.rules))

    Args:
        model: Any module. Frozen layers stay as they are.
        batch: Inputs on which outputs are compared: a mapping of keyword arguments, a tuple of
            arguments, or one argument. None: they are not compared.
        rules, exclude: As in ``param_groups``.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: Its weights have no values (the meta device).
    """
    given = dict(rules or {})
    chosen = [a for a in assign_parameters(model, rules, exclude) if _is_wanted(a)]
    if not all(has_values(a.parameter) for a in chosen):
        raise ValueError("model must have values, and parameters of it are on the meta device")
    before = None if batch is None else _outputs(model, batch)
    places = places_of(model)
    norms_behind = batch_norms_behind(model)
    folded, scaled, kept = [], [], {}
    for a in chosen:
        holders = places[a.parameter]
        reason = _why_kept(a, [module for module, _ in holders])
        if reason is not None:
            kept[a.name] = reason
            given[a.parameter] = None
            continue
        norm = norms_behind.get(a.parameter)
        if norm is not None and len(holders) == 1:
            _fold_(holders[0][0], norm, a)
            folded.append(a.name)
        else:
            _scale_(holders, a)
            scaled.append(a.name)
    difference = None if before is None else _difference(before, _outputs(model, batch))
    return Prepared(tuple(folded), tuple(scaled), kept, given, difference)


def _is_wanted(a: Assignment) -> bool:
    is_vector = a.vector_dim is not None and a.tied_to is None and not a.is_left_out
    return is_vector and a.parameter.requires_grad and not _has_unit_norm(a)


def _has_unit_norm(a: Assignment) -> bool:
    if not has_values(a.parameter):
        return False
    norms = _norms(a)
    return bool(((norms - 1).abs() <= 8 * torch.finfo(a.parameter.dtype).eps).all())


def _norms(a: Assignment) -> Tensor:
    """The norm of each vector, (V,), in double precision where the device has it."""
    assert a.vector_dim is not None
    rows = a.parameter.detach().movedim(a.vector_dim, 0).flatten(1)
    dtype = torch.float32 if rows.device.type == "mps" else torch.float64
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=dtype)
    return norms


def _why_kept(a: Assignment, holders: list[nn.Module]) -> str | None:
    """Why the norms of a weight can go nowhere; None if they can."""
    if is_distributed(a.parameter):
        return "sharded: prepare the model before it is"
    if a.is_sparse:
        return "its gradients are sparse"
    if any(isinstance(m, nn.RNNBase) for m in holders):
        return "recurrent layers keep their weights in one buffer"
    if any(getattr(m, "max_norm", None) is not None for m in holders):
        return "max_norm changes it in the forward pass"
    zero = _norms(a) == 0
    padding = getattr(holders[0], "padding_idx", None)
    if padding is not None and len(holders) == 1:  # tied to a head it learns there
        zero[padding] = False
    if bool(zero.any()):
        return f"{int(zero.sum())} of its vectors are zero, and a scale of zero learns nothing"
    return None


@torch.no_grad()
def _normalise_(a: Assignment) -> Tensor:
    """Give the vectors unit norm; returns the norms that they had, (V,)."""
    assert a.vector_dim is not None
    norms = _norms(a)
    normalise_vectors_(a.parameter, other_dims(a.parameter.dim(), a.vector_dim))
    return norms


@torch.no_grad()
def _fold_(layer: nn.Module, norm: nn.Module, a: Assignment) -> None:
    """Let the batch normalisation behind a layer do what the norms of its vectors did.

    With mean m, variance v and scale s, of outputs that are n times smaller now:
    s (x - m) / sqrt(v + eps) = s' (x / n - m / n) / sqrt(v / n^2 + eps) for
    s' = s sqrt(v + n^2 eps) / sqrt(v + eps).
    """
    assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    norms = _normalise_(a)
    v = variance.to(norms.dtype)
    factor = ((v + norms.square() * norm.eps) / (v + norm.eps)).sqrt()
    norm.weight.mul_(factor)
    mean.copy_(mean / norms)
    variance.copy_(v / norms.square())
    bias = getattr(layer, "bias", None)
    if isinstance(bias, Tensor):
        bias.copy_(bias / norms)


def _scale_(holders: list[tuple[nn.Module, str]], a: Assignment) -> None:
    """Compute a weight as scale times unit vectors, in every module that holds it."""
    assert a.vector_dim is not None
    norms = _normalise_(a).to(a.parameter.dtype)
    scale = VectorScale(norms, a.vector_dim, a.parameter.dim())
    for module, name in holders:
        parametrize.register_parametrization(module, name.rpartition(".")[2], scale)


def _outputs(model: nn.Module, batch: Any) -> list[Tensor]:
    """All tensors that a model returns for a batch, in evaluation mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(batch, Mapping):
                result = model(**batch)
            else:
                result = model(*batch) if isinstance(batch, tuple) else model(batch)
    finally:
        for module, was_training in modes.items():
            module.training = was_training
    return list(_tensors(result))


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value.detach().clone()
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _difference(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest over all outputs of |a - b| / max |a|."""
    found = [0.0]
    for a, b in zip(before, after, strict=True):
        if a.is_floating_point() and a.numel():
            a, b = a.double(), b.double()
            found.append(float((a - b).abs().max() / a.abs().max().clamp_min(1e-300)))
    return max(found)
