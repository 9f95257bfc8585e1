"""Which weight vectors the loss does not see the size of.

The effective learning rate describes a vector only if scaling it leaves the loss alone. Then the
gradient is orthogonal to it (Euler), which one backward pass in float64 can check.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ndadam.residual_streams import Stream, find_streams, parameters_of
from ndadam.weight_vectors import WeightVectors, weight_vectors

VectorClass = Literal["invariant", "jointly_invariant", "eps_limited", "neither"]
#: Codes of ``VectorClass`` are positions in this tuple.
CLASSES: tuple[VectorClass, ...] = ("invariant", "jointly_invariant", "eps_limited", "neither")
INVARIANT, JOINTLY_INVARIANT, EPS_LIMITED, NEITHER = range(4)

# The eps of batch normalisation turns |cos| = 1e-16 into 4e-6 (eps 1e-5) or 3e-4 (eps 1e-3).
_INVARIANT_BELOW = 1e-3
# AdamP's threshold delta / sqrt(D) for a projection at run time, delta = 0.1 (arXiv:2006.08217).
_NEITHER_ABOVE = 0.1


@dataclass(frozen=True)
class ProbeResult:
    """Classes of all weight vectors of a model, by layer.

    Attributes:
        classes: Layer -> class of each of its vectors. "invariant": the loss ignores the size of
            this vector. "jointly_invariant": it ignores a common factor on all vectors that write
            to the same residual channel. "eps_limited": between the thresholds, as under a large
            eps in batch normalisation. "neither": the size matters, or the gradient was zero.
        cosines: Layer -> |cos| of the angle between gradient and vector.
        streams: Residual streams that were judged together: (layer, first channel) of each writer.
    """

    classes: dict[str, tuple[VectorClass, ...]]
    cosines: dict[str, tuple[float, ...]]
    streams: tuple[Stream, ...] = ()

    def counts(self) -> dict[VectorClass, int]:
        """Number of vectors in each class."""
        found = Counter(name for names in self.classes.values() for name in names)
        return {name: found[name] for name in CLASSES}

    def layer_classes(self) -> dict[str, VectorClass]:
        """The most frequent class in each layer."""
        return {layer: Counter(names).most_common(1)[0][0] for layer, names in self.classes.items()}


def probe(
    model: nn.Module,
    batch: Any,
    loss: Callable[[nn.Module, Any], Tensor],
    residual_groups: Sequence[Sequence[tuple[Tensor, int]]] | None = None,
) -> ProbeResult:
    """Class every weight vector of ``model`` by one backward pass on a float64 copy.

    The model, its gradients and its running statistics stay untouched. The copy is in training
    mode, so batch normalisations use the statistics of ``batch``.

    Args:
        model: Any module.
        batch: What ``loss`` takes; its floating-point tensors (also inside tuples, lists and dicts)
            are converted to float64.
        loss: ``loss(model, batch)`` returns a scalar tensor.
        residual_groups: Residual streams as ``WideResNet.residual_groups`` lists them, in
            parameters of ``model``. Vectors of one channel are judged together. None: the model's
            own ``residual_groups()`` if it has them, else those found by following the forward
            pass; an empty list: no streams.
    """
    double = copy.deepcopy(model).double().train()
    double.zero_grad(set_to_none=True)
    vectors = weight_vectors(double)
    originals = weight_vectors(model)
    with torch.enable_grad():
        value, found = find_streams(vectors, lambda: loss(double, _to_double(batch)))
        torch.autograd.backward(value)
    own = getattr(model, "residual_groups", None)
    if residual_groups is None and callable(own):
        residual_groups = own()
    streams = found if residual_groups is None else _by_layer(residual_groups, originals)
    gw, gg, ww = (torch.cat(parts) for parts in zip(*map(_moments, vectors), strict=True))
    lengths = torch.cat([torch.full((v.count,), float(v.length)) for v in vectors]).to(gw)
    codes = _judge(gw, gg, ww, lengths)
    if streams:
        units, num_units = unit_index(originals, parameters_of(streams, originals))
        _judge_jointly_(codes, gw, gg, ww, lengths, units.to(gw.device), num_units)
    cosines = _cosine(gw, gg, ww)
    counts = [v.count for v in originals]
    return ProbeResult(
        {
            v.layer: tuple(CLASSES[code] for code in part)
            for v, part in zip(originals, torch.split(codes.cpu(), counts), strict=True)
        },
        {
            v.layer: tuple(part.tolist())
            for v, part in zip(originals, torch.split(cosines.cpu(), counts), strict=True)
        },
        tuple(streams),
    )


def _by_layer(
    residual_groups: Sequence[Sequence[tuple[Tensor, int]]], vectors: Sequence[WeightVectors]
) -> list[Stream]:
    """Streams by the names of layers instead of their parameters."""
    layer_of: dict[Tensor, str] = {v.parameter: v.layer for v in vectors}
    return [
        tuple((layer_of[parameter], channel) for parameter, channel in stream)
        for stream in residual_groups
        if all(parameter in layer_of for parameter, _ in stream)
    ]


def unit_index(
    vectors: Sequence[WeightVectors],
    residual_groups: Sequence[Sequence[tuple[Tensor, int]]],
) -> tuple[Tensor, int]:
    """Number every vector by the residual channel it writes to; others get numbers of their own.

    Returns the numbers (N,) in the order of ``vectors`` and how many numbers there are.
    """
    stream_of: dict[Tensor, tuple[int, int]] = {}
    next_unit = 0
    for stream in residual_groups:
        for parameter, channel in stream:
            stream_of[parameter] = (next_unit, channel)
        next_unit += max((channel + len(p) for p, channel in stream), default=0)
    parts = []
    for v in vectors:
        if v.parameter in stream_of:
            first, channel = stream_of[v.parameter]
            parts.append(torch.arange(v.count) + first + channel)
        else:
            parts.append(torch.arange(v.count) + next_unit)
            next_unit += v.count
    return torch.cat(parts), next_unit


def _to_double(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.double() if batch.is_floating_point() else batch
    if isinstance(batch, tuple | list):
        return type(batch)(_to_double(item) for item in batch)
    if isinstance(batch, dict):
        return {key: _to_double(item) for key, item in batch.items()}
    return batch


@torch.no_grad()
def _moments(v: WeightVectors) -> tuple[Tensor, Tensor, Tensor]:
    """<g, w>, ||g||^2 and ||w||^2 of each vector, three times (V,)."""
    w = v.parameter.movedim(v.vector_dim, 0).flatten(1)
    grad = v.parameter.grad
    g = torch.zeros_like(w) if grad is None else grad.movedim(v.vector_dim, 0).flatten(1)
    return (g * w).sum(1), g.square().sum(1), w.square().sum(1)


def _cosine(gw: Tensor, gg: Tensor, ww: Tensor) -> Tensor:
    return (gw.abs() / (gg * ww).sqrt()).nan_to_num(0.0)


def _judge(gw: Tensor, gg: Tensor, ww: Tensor, lengths: Tensor) -> Tensor:
    cosine = _cosine(gw, gg, ww)
    codes = torch.full_like(gw, EPS_LIMITED, dtype=torch.long)
    codes[cosine > _NEITHER_ABOVE / lengths.sqrt()] = NEITHER
    codes[cosine < _INVARIANT_BELOW] = INVARIANT
    codes[gg * ww == 0] = NEITHER
    return codes


def _judge_jointly_(
    codes: Tensor,  # (N,) updated in place
    gw: Tensor,
    gg: Tensor,
    ww: Tensor,
    lengths: Tensor,
    units: Tensor,
    num_units: int,
) -> None:
    """Give vectors that share a residual channel the verdict on their sum.

    One by one some would pass by chance: where two share a channel, their radial parts are equal
    and opposite.
    """

    def per_unit(values: Tensor) -> Tensor:
        return values.new_zeros(num_units).index_add_(0, units, values)

    members = per_unit(torch.ones_like(gw))
    joint = _judge(per_unit(gw), per_unit(gg), per_unit(ww), per_unit(lengths))
    joint[joint == INVARIANT] = JOINTLY_INVARIANT
    judged = (members > 1)[units]
    codes[judged] = joint[units][judged]
