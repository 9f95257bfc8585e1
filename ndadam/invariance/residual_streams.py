"""Find which vectors of any network share a length, by following one forward pass.

Vectors that write to one residual channel are invariant only together: a common factor on all of
them is undone by the normalisation that reads the stream, a factor on one of them is not. So are
those that write to channels which group or layer normalisation reads together.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ndadam.vectors.weight_vectors import WeightVectors

T = TypeVar("T")

#: A residual stream: (layer, the channel of the stream that its first vector writes to). One of a
#: single layer stands for channels that are read together.
Stream = tuple[tuple[str, int], ...]

#: Where a layer's output channels are, by the function that computes it.
_WRITES = {
    "linear": -1,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), 1),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1),
}
_ADDS = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__isub__"})
#: A factor on a channel passes through these unchanged, so what they give belongs to the stream.
_PASSES = frozenset(
    {"relu", "relu_", "leaky_relu", "leaky_relu_", "dropout", "dropout_", "feature_dropout"}
    | {f"{kind}_pool{n}d" for kind in ("avg", "max", "lp") for n in (1, 2, 3)}
    | {f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)}
    | {"contiguous", "clone", "to", "float", "double", "detach", "alias"}
)
_NORMS = frozenset({"batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm"})


def find_streams(
    vectors: Iterable[WeightVectors], forward: Callable[[], T]
) -> tuple[T, list[Stream], dict[str, int]]:
    """What ``forward`` returns, the streams that two layers or more write to, and layer -> span.

    The span of a layer is the number of neighbouring channels that the normalisations after it read
    together, where that is more than one. Sums of convolutions or of linear layers are followed
    through activations, pooling and dropout, which pass a factor on a channel on; what goes through
    anything else starts anew. Raises whatever ``forward`` raises.
    """
    follower = _Follower(vectors)
    with follower:
        result = forward()
    return result, follower.streams(), follower.spans()


class _Follower(TorchFunctionMode):
    """Notes for every tensor of a forward pass which layers' outputs it is a sum of."""

    def __init__(self, vectors: Iterable[WeightVectors]) -> None:
        super().__init__()
        self._layers = {id(v.parameter): v for v in vectors}
        # Union-find over writers; a tensor points to one of the writers of its stream.
        self._parent: list[int] = []
        self._layer_of: list[str] = []
        self._counts: list[int] = []
        self._spans: list[int] = []
        self._writer: dict[int, tuple[int, int]] = {}  # id -> (writer, channel dim)
        self._alive: list[Tensor] = []  # so that no id comes twice

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._note(getattr(func, "__name__", ""), args, kwargs, result)
        return result

    def _note(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor
    ) -> None:
        if name in _WRITES:
            weight = args[1] if len(args) > 1 else kwargs.get("weight")
            self._write(weight, result, _WRITES[name])
            return
        values = (*args, *kwargs.values())
        if name in _NORMS:
            for writer, dim in (self._writer[id(v)] for v in values if id(v) in self._writer):
                span = _span(name, args, kwargs, result, dim)
                # Blocks of 2 channels and blocks of 3 tie 6 channels together.
                self._spans[writer] = math.lcm(self._spans[writer], span)
        if name not in _ADDS and name not in _PASSES:
            return
        found = [self._writer[id(v)] for v in values if id(v) in self._writer]
        found = [(w, dim) for w, dim in found if self._keeps_channels(w, dim, result)]
        if not found:
            return
        for writer, _ in found[1:]:
            self._parent[self._root(writer)] = self._root(found[0][0])
        self._keep(result, found[0])

    def _write(self, weight: object, result: Tensor, dim: int) -> None:
        layer = self._layers.get(id(weight))
        if layer is None or result.shape[dim] != layer.count:
            return
        if layer.layer in self._layer_of:  # a layer used twice is one writer
            writer = self._layer_of.index(layer.layer)
        else:
            writer = len(self._parent)
            self._parent.append(writer)
            self._layer_of.append(layer.layer)
            self._counts.append(layer.count)
            self._spans.append(1)
        self._keep(result, (writer, dim))

    def _keeps_channels(self, writer: int, dim: int, result: Tensor) -> bool:
        """Whether a result still has the stream's channels where they were."""
        return result.dim() > 1 and result.shape[dim] == self._counts[writer]

    def _keep(self, tensor: Tensor, found: tuple[int, int]) -> None:
        self._writer[id(tensor)] = found
        self._alive.append(tensor)

    def _root(self, writer: int) -> int:
        while self._parent[writer] != writer:
            writer = self._parent[writer]
        return writer

    def _members(self) -> list[list[int]]:
        """Writers that write to the same stream, in the order in which the streams begin."""
        members: dict[int, list[int]] = {}
        for writer in range(len(self._layer_of)):
            members.setdefault(self._root(writer), []).append(writer)
        return list(members.values())

    def streams(self) -> list[Stream]:
        """Streams of at least two layers, in the order in which they begin."""
        return [
            tuple((self._layer_of[writer], 0) for writer in writers)
            for writers in self._members()
            if len(writers) > 1
        ]

    def spans(self) -> dict[str, int]:
        """Layer -> channels of its stream that are read together, if more than one."""
        found = {}
        for writers in self._members():
            span = math.lcm(*(self._spans[writer] for writer in writers))
            found.update({self._layer_of[writer]: span for writer in writers if span > 1})
        return found


def _span(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, dim: int
) -> int:
    """How many neighbours along ``dim`` a normalisation divides by the same number."""
    at, count = dim % result.dim(), result.shape[dim]
    if name in ("layer_norm", "rms_norm"):
        shape = args[1] if len(args) > 1 else kwargs["normalized_shape"]
        return count if at >= result.dim() - len(shape) else 1
    if at != 1:  # these take dimension 1 for the channels, and average over those behind it
        return count
    if name == "group_norm":
        return count // int(args[1] if len(args) > 1 else kwargs["num_groups"])
    return 1


def parameters_of(
    streams: Iterable[Stream], vectors: Iterable[WeightVectors]
) -> list[list[tuple[nn.Parameter, int]]]:
    """Streams by the parameters of a model, as ``WideResNet.residual_groups`` lists them."""
    by_layer = {v.layer: v.parameter for v in vectors}
    return [
        [(by_layer[layer], channel) for layer, channel in stream if layer in by_layer]
        for stream in streams
    ]
