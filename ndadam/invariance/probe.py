"""Which weight vectors the loss does not see the size of.

The effective learning rate describes a vector only if scaling it leaves the loss alone. Then the
gradient is orthogonal to it (Euler), which one backward pass can check (``probe_pass``).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ndadam.invariance.passes import Gradients, Loss, gradients, refuse_nothing_to_probe
from ndadam.invariance.residual_streams import Stream, parameters_of
from ndadam.vectors.weight_vectors import WeightVectors, weight_vectors

VectorClass = Literal["invariant", "jointly_invariant", "eps_limited", "neither"]
#: Codes of ``VectorClass`` are positions in this tuple.
CLASSES: tuple[VectorClass, ...] = ("invariant", "jointly_invariant", "eps_limited", "neither")
INVARIANT, JOINTLY_INVARIANT, EPS_LIMITED, NEITHER = range(4)

# The eps of batch normalisation turns |cos| = 1e-16 into 4e-6 (eps 1e-5) or 3e-4 (eps 1e-3).
_INVARIANT_BELOW = 1e-3
# AdamP's threshold delta / sqrt(D) for a projection at run time, delta = 0.1 (arXiv:2006.08217).
_NEITHER_ABOVE = 0.1
# A layer in which so many vectors pass that chance would do it more rarely than this is invariant.
_BY_CHANCE = 1e-3


@dataclass(frozen=True)
class ProbeResult:
    """Classes of all weight vectors of a model, by layer.

    Attributes:
        classes: Layer -> class of each of its vectors. "invariant": the loss ignores the size of
            this vector. "jointly_invariant": it ignores a common factor on all vectors that write
            to the same residual channel, or to channels that group or layer normalisation reads
            together. "eps_limited": between the thresholds, and below them
            without the eps of normalisations. "neither": the size matters, or the gradient was
            zero.
        cosines: Layer -> |cos| of the angle between gradient and vector.
        streams: Residual streams that were judged together: (layer, first channel) of each writer.
            A layer by itself is one whose channels are normalised in groups.
        spans: Of each stream, how many neighbouring channels were judged together: 1 before batch
            normalisation, all before layer normalisation.
        frozen: Layers that are not trained. Their vectors, without gradients, are "neither".
        limited_by_eps: Layers most of whose vectors only the eps of a normalisation keeps from
            being invariant, however far: a smaller eps makes them so.
    """

    classes: dict[str, tuple[VectorClass, ...]]
    cosines: dict[str, tuple[float, ...]]
    streams: tuple[Stream, ...] = ()
    spans: tuple[int, ...] = ()
    frozen: tuple[str, ...] = ()
    limited_by_eps: tuple[str, ...] = ()

    def counts(self) -> dict[VectorClass, int]:
        """Number of vectors in each class."""
        found = Counter(name for names in self.classes.values() for name in names)
        return {name: found[name] for name in CLASSES}

    def layer_classes(self) -> dict[str, VectorClass]:
        """The most frequent class in each layer."""
        return {layer: Counter(names).most_common(1)[0][0] for layer, names in self.classes.items()}

    def sees_every_length(self) -> bool:
        """Whether the loss ignores no length at all, so that there is no effective learning rate.

        A few vectors come near to being limited by eps by chance; a layer of them does not.
        """
        kinds = self.counts()
        blind = kinds["invariant"] + kinds["jointly_invariant"]
        return not blind and set(self.layer_classes().values()) == {"neither"}


def probe(
    model: nn.Module,
    batch: Any,
    loss: Loss,
    residual_groups: Sequence[Sequence[tuple[Tensor, int]]] | None = None,
) -> ProbeResult:
    """Class every weight vector of ``model`` by one backward pass on a float64 copy.

    The model, its gradients, its running statistics and torch's generators stay untouched. The copy
    is in training mode, so batch normalisations use the statistics of ``batch``. Where some vectors
    are not invariant, a second pass without the eps of normalisations tells whether that is why.

    Args:
        model: Any module.
        batch: What ``loss`` takes; its floating-point tensors (also inside tuples, lists, mappings
            and dataclasses) are converted to float64.
        loss: ``loss(model, batch)`` returns a scalar tensor.
        residual_groups: Residual streams as ``WideResNet.residual_groups`` lists them, in
            parameters of ``model``. Vectors of one channel are judged together. None: the model's
            own ``residual_groups()`` if it has them, else those found by following the forward
            pass; an empty list: no streams.

    Raises:
        TypeError: ``model`` is no module, ``loss`` no function.
        ValueError: Nothing to probe: no weight vectors, all of them frozen, a loss that is no
            finite scalar of the model, a model that cannot be copied.
    """
    vectors = weight_vectors(model)
    refuse_nothing_to_probe(model, vectors)
    if not callable(loss):
        raise TypeError(f"loss must be a function of the model and a batch, got {loss!r}")
    found = gradients(model, batch, loss)
    own = getattr(model, "residual_groups", None)
    if residual_groups is None and callable(own):
        residual_groups = own()
    streams = found.streams if residual_groups is None else _by_layer(residual_groups, vectors)
    streams, spans = _with_spans(streams, found.spans)
    units = unit_index(vectors, parameters_of(streams, vectors), spans)
    judged = _judged(found, vectors, *units)
    codes, saved = judged.codes, torch.zeros_like(judged.codes, dtype=torch.bool)
    if found.has_eps and bool((codes >= EPS_LIMITED).any()):
        bare = _judged(gradients(model, batch, loss, without_eps=True), vectors, *units)
        saved = (codes >= EPS_LIMITED) & (bare.codes < EPS_LIMITED)
        judged = replace(judged, cosines=torch.minimum(judged.cosines, bare.cosines))
    codes[(codes == EPS_LIMITED) & ~saved] = NEITHER
    _demote_chance_(judged, vectors)
    cosines = _cosine(found.gw, found.gg, found.ww).cpu()
    parts = list(zip(vectors, *(_split(t, vectors) for t in (codes, cosines, saved)), strict=True))
    return ProbeResult(
        {v.layer: tuple(CLASSES[code] for code in part) for v, part, _, _ in parts},
        {v.layer: tuple(part.tolist()) for v, _, part, _ in parts},
        tuple(streams),
        tuple(spans),
        frozen=tuple(v.layer for v in vectors if not v.parameter.requires_grad),
        limited_by_eps=tuple(v.layer for v, _, _, part in parts if 2 * int(part.sum()) > v.count),
    )


def _split(values: Tensor, vectors: Sequence[WeightVectors]) -> Sequence[Tensor]:
    return torch.split(values, [v.count for v in vectors])


@dataclass(frozen=True)
class _Judged:
    """Every vector by the thresholds alone, and what was held against them; (N,) on the CPU each.

    Of a vector that was judged with others, |cos| and elements of all of them.
    """

    codes: Tensor
    cosines: Tensor
    lengths: Tensor
    units: Tensor


def _judged(
    found: Gradients, vectors: Sequence[WeightVectors], units: Tensor, num_units: int
) -> _Judged:
    gw, gg, ww = found.gw.cpu(), found.gg.cpu(), found.ww.cpu()
    lengths = torch.cat(
        [torch.full((v.count,), float(v.length), device="cpu") for v in vectors]
    ).to(gw)
    alone = _Judged(_judge(gw, gg, ww, lengths), _cosine(gw, gg, ww), lengths, units)
    return _judged_jointly(alone, gw, gg, ww, num_units)


def _demote_chance_(judged: _Judged, vectors: Sequence[WeightVectors]) -> None:
    """Make "neither" of the few units of a layer that a random gradient would have orthogonal.

    A random direction in d dimensions has |cos| < c with probability 2 c sqrt(d / 2 pi).
    """
    parts = (judged.codes, judged.cosines, judged.lengths, judged.units)
    for codes, cosines, lengths, units in zip(*(_split(t, vectors) for t in parts), strict=True):
        passed = codes < EPS_LIMITED
        k, n = len(units[passed].unique()), len(units.unique())
        if k == 0:
            continue
        c, d = float(cosines[passed].max()), float(lengths[passed].max())
        chance = min(1.0, 2 * c * math.sqrt(d / (2 * math.pi)))
        if chance == 0:
            continue
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        if ways + k * math.log(chance) > math.log(_BY_CHANCE):
            codes[passed] = NEITHER


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


def _with_spans(
    streams: Sequence[Stream], spans: Mapping[str, int]
) -> tuple[list[Stream], list[int]]:
    """Streams, with those of layers that only a span ties together, and the span of each."""
    listed = {layer for stream in streams for layer, _ in stream}
    found = [*streams, *(((layer, 0),) for layer in spans if layer not in listed)]
    return found, [math.lcm(*(spans.get(layer, 1) for layer, _ in stream)) for stream in found]


def unit_index(
    vectors: Sequence[WeightVectors],
    residual_groups: Sequence[Sequence[tuple[Tensor, int]]],
    spans: Sequence[int] | None = None,
) -> tuple[Tensor, int]:
    """Number every vector by the residual channel it writes to; others get numbers of their own.

    ``spans`` says of each group how many neighbouring channels have one number; None: one.
    Returns the numbers (N,) in the order of ``vectors`` and how many numbers there are.
    """
    stream_of: dict[Tensor, tuple[int, int, int]] = {}
    next_unit = 0
    for stream, span in zip(residual_groups, spans or [1] * len(residual_groups), strict=True):
        for parameter, channel in stream:
            stream_of[parameter] = (next_unit, channel, span)
        next_unit += max((channel + len(p) for p, channel in stream), default=0)
    parts = []
    for v in vectors:
        if v.parameter in stream_of:
            first, channel, span = stream_of[v.parameter]
            parts.append(first + (torch.arange(v.count, device="cpu") + channel) // span)
        else:
            parts.append(torch.arange(v.count, device="cpu") + next_unit)
            next_unit += v.count
    return torch.cat(parts), next_unit


def _cosine(gw: Tensor, gg: Tensor, ww: Tensor) -> Tensor:
    return (gw.abs() / (gg * ww).sqrt()).nan_to_num(0.0)


def _judge(gw: Tensor, gg: Tensor, ww: Tensor, lengths: Tensor) -> Tensor:
    cosine = _cosine(gw, gg, ww)
    codes = torch.full_like(gw, EPS_LIMITED, dtype=torch.long)
    codes[cosine > _NEITHER_ABOVE / lengths.sqrt()] = NEITHER
    codes[cosine < _INVARIANT_BELOW] = INVARIANT
    codes[~(gg * ww > 0)] = NEITHER  # nan too
    return codes


def _judged_jointly(alone: _Judged, gw: Tensor, gg: Tensor, ww: Tensor, num_units: int) -> _Judged:
    """Give vectors of one unit the verdict on their sum.

    One by one some would pass by chance: where two share a channel, their radial parts are equal
    and opposite.
    """
    units = alone.units

    def per_unit(values: Tensor) -> Tensor:
        return values.new_zeros(num_units).index_add_(0, units, values)

    members = per_unit(torch.ones_like(gw))
    sums = per_unit(gw), per_unit(gg), per_unit(ww)
    lengths = per_unit(alone.lengths)
    joint = _judge(*sums, lengths)
    joint[joint == INVARIANT] = JOINTLY_INVARIANT
    shared = (members > 1)[units]
    return _Judged(
        torch.where(shared, joint[units], alone.codes),
        torch.where(shared, _cosine(*sums)[units], alone.cosines),
        torch.where(shared, lengths[units], alone.lengths),
        units,
    )
