"""Which slices of which parameters are the weight vectors of a model.

The paper's w_i is the vector of input weights of hidden unit i: a row of a linear layer, a filter
of a convolution. V is the number of vectors of a parameter, D their length.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from ndadam.vectors.scaled import Scaled


@dataclass(frozen=True)
class WeightVectors:
    """A parameter whose slices along ``vector_dim`` are weight vectors.

    ``layer`` is "conv1", "conv2", … for convolutions, counted from the stem in the order in which
    the modules were registered, and "linear1", "embedding1", … for the other kinds.
    """

    name: str
    parameter: nn.Parameter
    vector_dim: int
    layer: str

    @property
    def count(self) -> int:
        """Number of weight vectors, V."""
        return self.parameter.shape[self.vector_dim]

    @property
    def length(self) -> int:
        """Elements of each weight vector, D."""
        return self.parameter.numel() // max(self.count, 1)


@dataclass(frozen=True)
class Assignment:
    """Where one parameter belongs, and why. ``vector_dim`` is None for scalars.

    ``tied_to`` is the first name of a parameter that is met again under another one.
    """

    name: str
    parameter: nn.Parameter
    vector_dim: int | None
    layer: str | None
    reason: str
    tied_to: str | None = None


@dataclass(frozen=True)
class _Rule:
    """Parameters of one kind of module that hold weight vectors along ``vector_dim``."""

    kind: str
    modules: tuple[type[nn.Module], ...]
    holds_vectors: Callable[[str], bool]
    vector_dim: int
    reason: str


def _is_weight(name: str) -> bool:
    return name == "weight"


def _is_packed_weight(name: str) -> bool:
    # weight_ih_l0_reverse of torch's recurrent layers, weight_ih of its cells; what a hook such as
    # torch.nn.utils.weight_norm computes one of these from ends in _g, _v or _orig.
    return re.fullmatch(r"weight_(ih|hh|hr)(_l\d+(_reverse)?)?", name) is not None


def _is_projection(name: str) -> bool:
    return name.endswith("proj_weight")


_RULES = (
    _Rule(
        "conv",
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        _is_weight,
        1,
        "filters of a transposed convolution (in, out / groups, …)",
    ),
    _Rule("conv", (nn.Conv1d, nn.Conv2d, nn.Conv3d), _is_weight, 0, "filters of a convolution"),
    _Rule("linear", (nn.Linear, nn.Bilinear), _is_weight, 0, "rows of a linear layer"),
    _Rule(
        "embedding", (nn.Embedding, nn.EmbeddingBag), _is_weight, 0, "one vector per embedded item"
    ),
    _Rule("attention", (nn.MultiheadAttention,), _is_projection, 0, "rows of packed projections"),
    _Rule(
        "recurrent",
        (nn.RNNBase, nn.RNNCellBase),
        _is_packed_weight,
        0,
        "rows of packed gate weights",
    ),
)


def assign_parameters(model: nn.Module) -> list[Assignment]:
    """Decide for every parameter of ``model`` whether it holds weight vectors.

    In registration order. A parameter that several modules share is decided under its first name;
    the others only refer to it. Biases, scales of normalisation layers and everything without a
    rule are scalars. So is what a parametrisation (``torch.nn.utils.parametrizations``) computes a
    weight from: its rows are not the vectors that the layer uses.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: A parameter of a lazy module that has not seen a batch.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be an nn.Module, got {type(model).__name__}: which parameters hold weight "
            "vectors follows from the layers they are in, so pass the model, not its parameters"
        )
    first: dict[nn.Parameter, Assignment] = {}
    layers: dict[str, int] = {}
    assignments = []
    for module, local, name, parameter in _own_parameters(model):
        if parameter in first:
            tied = first[parameter]
            reason = f"{name} is the same parameter as {tied.name}"
            assignments.append(replace(tied, name=name, reason=reason, tied_to=tied.name))
        else:
            first[parameter] = _assign(module, local, name, parameter, layers)
            assignments.append(first[parameter])
    return assignments


def weight_vectors(model: nn.Module) -> list[WeightVectors]:
    """List the parameters of ``model`` that hold weight vectors, in registration order."""
    return [
        WeightVectors(a.name, a.parameter, a.vector_dim, a.layer)
        for a in assign_parameters(model)
        if a.vector_dim is not None and a.layer is not None and a.tied_to is None
    ]


def refuse_without_vectors(model: nn.Module, vectors: Sequence[WeightVectors]) -> None:
    """Raise ValueError if ``vectors`` of ``model`` are none."""
    if not vectors:
        raise ValueError(
            f"model must hold weight vectors (rows of layers), and {type(model).__name__} has "
            "none: ndadam.describe_groups(model) says why each parameter is a scalar"
        )


def _own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, str, nn.Parameter]]:
    """Each module's own parameters: (module, local name, full name, parameter)."""
    for prefix, module in model.named_modules():
        for local, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            yield module, local, f"{prefix}.{local}" if prefix else local, parameter


def _assign(
    module: nn.Module, local: str, name: str, parameter: nn.Parameter, layers: dict[str, int]
) -> Assignment:
    if is_lazy(parameter):
        raise ValueError(
            f"{name} has no shape yet: run one batch through the model, which gives its lazy "
            "modules their shapes, and group its parameters then"
        )
    rule = next(
        (r for r in _RULES if isinstance(module, r.modules) and r.holds_vectors(local)), None
    )
    if rule is None:
        return Assignment(name, parameter, None, None, _why_scalar(module, local, parameter))
    if rule.vector_dim == 1 and getattr(module, "groups", 1) > 1:
        # A slice along dimension 1 holds the weights of one output channel of each group.
        count = module.groups
        reason = f"transposed convolution with {count} groups: slices span {count} output channels"
        return Assignment(name, parameter, None, None, reason)
    if parameter.dim() < 2:
        reason = f"{parameter.dim()} dimension(s): no rows, or flattened by a sharding wrapper"
        return Assignment(name, parameter, None, None, reason)
    layers[rule.kind] = layers.get(rule.kind, 0) + 1
    layer = f"{rule.kind}{layers[rule.kind]}"
    length = parameter.numel() // max(parameter.shape[rule.vector_dim], 1)
    if length <= 1:
        # A vector of one element has no direction to turn in: ND-Adam would hold it at +-1.
        reason = f"vectors of {length} element(s) cannot turn"
        return Assignment(name, parameter, None, None, reason)
    return Assignment(name, parameter, rule.vector_dim, layer, rule.reason)


def _why_scalar(module: nn.Module, local: str, parameter: Tensor) -> str:
    kind = type(module).__name__
    if local.startswith("bias") or local.endswith("_bias"):  # in_proj_bias of attention
        return f"bias of {kind}"
    if isinstance(module, ParametrizationList):
        return "a parametrisation computes the weight from it"
    if isinstance(module, _NORMS):
        return f"scale of {kind}"
    return f"no rule for {kind}.{local}"


_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    Scaled,
)

__all__ = ["Assignment", "WeightVectors", "assign_parameters", "weight_vectors"]
