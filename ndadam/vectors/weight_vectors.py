"""Which slices of which parameters are the weight vectors of a model.

The paper's w_i is the vector of input weights of hidden unit i: a row of a linear layer, a filter
of a convolution. V is the number of vectors of a parameter, D their length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from ndadam.vectors.layer_rules import Decision, decide, zero_factors
from ndadam.vectors.own_rules import Key, Picks, Places, refuse_unless_dims, shown
from ndadam.vectors.scaled import VectorScale


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

    Attributes:
        layer: Name of the layer that holds the vectors, None for scalars.
        tied_to: The first name of a parameter that is met again under another one.
        is_covered: Whether a rule decided.
        is_left_out: Whether it is in no group: excluded by the caller, or no floating point.
        is_sparse: Whether its gradients will be sparse, which the step refuses.
    """

    name: str
    parameter: nn.Parameter
    vector_dim: int | None
    layer: str | None
    reason: str
    tied_to: str | None = None
    is_covered: bool = True
    is_left_out: bool = False
    is_sparse: bool = False

    @property
    def is_uncovered_matrix(self) -> bool:
        """Whether it is trained, has two dimensions or more, and no rule said what it holds."""
        has_rows = sum(size > 1 for size in self.parameter.shape) > 1
        is_met = self.tied_to is None and not self.is_left_out
        return is_met and has_rows and not self.is_covered and self.parameter.requires_grad


def assign_parameters(
    model: nn.Module, rules: Mapping[Any, int | None] | None = None, exclude: Iterable[Any] = ()
) -> list[Assignment]:
    """Decide for every parameter of ``model`` whether it holds weight vectors.

    In registration order. A parameter that several modules share is decided under its first name;
    the others only refer to it. Biases, scales of normalisation layers and everything without a
    rule are scalars. So is what a parametrisation (``torch.nn.utils.parametrizations``) computes a
    weight from: its rows are not the vectors that the layer uses.

    Args:
        model: Any module.
        rules: vector_dim, or None for scalars, of what each key picks (``Picks``); it goes before
            the rules of this library, and the last key that fits before those ahead of it. A
            dimension holds for parameters of two or more, so biases stay scalars.
        exclude: What to leave out.

    Raises:
        TypeError: ``model`` is no module, or ``rules`` or ``exclude`` of another kind.
        ValueError: A parameter of a lazy module that has not seen a batch; a rule that fits no
            parameter, or none that has its dimension.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be an nn.Module, got {type(model).__name__}: which parameters hold weight "
            "vectors follows from the layers they are in, so pass the model, not its parameters"
        )
    decider = _Decider(model, rules or {}, exclude)
    first: dict[nn.Parameter, Assignment] = {}
    assignments = []
    for module, local, name, parameter in _own_parameters(model):
        if parameter in first:
            tied = first[parameter]
            reason = f"{name} is the same parameter as {tied.name}"
            assignments.append(replace(tied, name=name, reason=reason, tied_to=tied.name))
        else:
            first[parameter] = decider.assign(module, local, name, parameter)
            assignments.append(first[parameter])
    return assignments


def weight_vectors(
    model: nn.Module, rules: Mapping[Any, int | None] | None = None
) -> list[WeightVectors]:
    """List the parameters of ``model`` that hold weight vectors, in registration order.

    ``rules`` of one's own are those of ``param_groups``.
    """
    return [
        WeightVectors(a.name, a.parameter, a.vector_dim, a.layer)
        for a in assign_parameters(model, rules)
        if a.vector_dim is not None
        and a.layer is not None
        and a.tied_to is None
        and not a.is_left_out
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


class _Decider:
    """Decides about the parameters of one model, and counts its layers by kind."""

    def __init__(
        self, model: nn.Module, rules: Mapping[Any, int | None], exclude: Iterable[Any]
    ) -> None:
        refuse_unless_dims(rules)
        if isinstance(exclude, str | nn.Module | Tensor | type):
            exclude = [exclude]
        places = places_of(model)
        self._dims = rules
        self._rules = Picks("rules", rules, places)
        self._excluded = Picks("exclude", exclude, places)
        for key, dim in rules.items():
            _refuse_unfit(key, dim, self._rules.fitting(key))
        self._zero_factors = zero_factors(model)
        self._scaled_weights = scaled_weights(model)
        self._layers: dict[str, int] = {}

    def assign(
        self, module: nn.Module, local: str, name: str, parameter: nn.Parameter
    ) -> Assignment:
        """Where a parameter that is met for the first time belongs."""
        if is_lazy(parameter):
            raise ValueError(
                f"{name} has no shape yet: run one batch through the model, which gives its lazy "
                "modules their shapes, and group its parameters then"
            )
        key = self._excluded.of(parameter)
        if key is not None:
            reason = f"excluded by {shown(key)}"
            return Assignment(name, parameter, None, None, reason, is_left_out=True)
        if not (parameter.is_floating_point() or parameter.is_complex()):
            kind = str(parameter.dtype).removeprefix("torch.")
            reason = f"quantised ({kind}): not trained"
            return Assignment(name, parameter, None, None, reason, is_left_out=True)
        decision = self._decide(module, local, name, parameter)
        is_sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        decision = _checked(decision, module, parameter)
        layer = None
        if decision.kind is not None:
            number = self._layers[decision.kind] = self._layers.get(decision.kind, 0) + 1
            layer = f"{decision.kind}{number}" if decision.vector_dim is not None else None
        return Assignment(
            name,
            parameter,
            decision.vector_dim,
            layer,
            decision.reason,
            is_covered=decision.is_covered,
            is_sparse=is_sparse,
        )

    def _decide(
        self, module: nn.Module, local: str, name: str, parameter: nn.Parameter
    ) -> Decision:
        is_zero_factor = parameter in self._zero_factors
        if module in self._scaled_weights and local == "original":
            # The layer's own vectors, of which a scale of their own makes the weight.
            module, local = self._scaled_weights[module]
            name = f"{name.partition('.parametrizations.')[0]}.{local}"
        decision = decide(module, local, name, parameter, is_zero_factor=is_zero_factor)
        key = self._rules.of(parameter)
        if key is None:
            return decision
        dim, reason = self._dims[key], f"your rule for {shown(key)}"
        if dim is None:
            return Decision(None, None, reason)
        if parameter.dim() < 2:
            return replace(decision, is_covered=True)
        kind = decision.kind or type(module).__name__.lower()
        return Decision(int(dim) % parameter.dim(), kind, reason)


def _checked(decision: Decision, module: nn.Module, parameter: nn.Parameter) -> Decision:
    """What a decision comes to for a parameter of this shape."""
    dim = decision.vector_dim
    if dim is None:
        return replace(decision, kind=None)
    if dim == 1 and isinstance(module, _TRANSPOSED) and module.groups > 1:
        # A slice along dimension 1 holds the weights of one output channel of each group.
        count = module.groups
        reason = f"transposed convolution with {count} groups: slices span {count} output channels"
        return Decision(None, None, reason)
    if parameter.dim() < 2:
        reason = f"{parameter.dim()} dimension(s): no rows, or flattened by a sharding wrapper"
        return Decision(None, None, reason)
    length = parameter.numel() // max(parameter.shape[dim], 1)
    if length <= 1:
        # A vector of one element has no direction to turn in: ND-Adam would hold it at +-1.
        return Decision(None, decision.kind, f"vectors of {length} element(s) cannot turn")
    return decision


_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def scaled_weights(model: nn.Module) -> dict[nn.Module, tuple[nn.Module, str]]:
    """What computes a weight by ``VectorScale`` alone: the layer, and the name of its weight."""
    found: dict[nn.Module, tuple[nn.Module, str]] = {}
    for layer in model.modules():
        lists = getattr(layer, "parametrizations", None)
        for local, steps in lists.items() if isinstance(lists, nn.ModuleDict) else ():
            kinds = list(map(type, steps)) if isinstance(steps, ParametrizationList) else []
            if kinds == [VectorScale]:
                found[steps] = layer, local
    return found


def places_of(model: nn.Module) -> Places:
    """Every module that holds a parameter, and the name that it has there."""
    places: dict[Tensor, list[tuple[nn.Module, str]]] = {}
    for module, _, name, parameter in _own_parameters(model):
        places.setdefault(parameter, []).append((module, name))
    return places


def _refuse_unfit(key: Key, dim: int | None, fitting: list[Tensor]) -> None:
    """Refuse a rule with a dimension that one of its matrices lacks, or that has no matrices."""
    if dim is None or not fitting:
        return
    matrices = [p for p in fitting if is_lazy(p) or p.dim() > 1]
    if not matrices:
        raise ValueError(
            f"rules gives vector_dim {dim} to {shown(key)}, and what it fits has fewer than 2 "
            "dimensions: None is for scalars"
        )
    for p in matrices:
        if not is_lazy(p) and not -p.dim() <= dim < p.dim():
            raise ValueError(
                f"rules gives vector_dim {dim} to {shown(key)}, which fits a parameter of shape "
                f"{tuple(p.shape)} without that dimension"
            )


__all__ = ["Assignment", "WeightVectors", "assign_parameters", "places_of", "weight_vectors"]
