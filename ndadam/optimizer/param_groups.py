"""Parameter groups for ND-Adam: weight vectors, and everything else; names for its messages."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from ndadam.invariance.probe import ProbeResult
from ndadam.invariance.structure import structure
from ndadam.vectors.own_rules import Picks, refuse_unless_factors
from ndadam.vectors.scaled import Scaled
from ndadam.vectors.weight_vectors import (
    Assignment,
    WeightVectors,
    assign_parameters,
    places_of,
    scaled_weights,
)

_Value = TypeVar("_Value")


def param_groups(
    model: nn.Module,
    *,
    alpha_v: float = 0.05,
    alpha_s: float = 0.001,
    weight_decay: float = 0.0,
    rules: Mapping[Any, int | None] | None = None,
    exclude: Iterable[Any] = (),
    rate_factors: Mapping[Any, float] | None = None,
) -> list[dict[str, Any]]:
    """Split the parameters of ``model`` into groups of weight vectors and of scalars.

    Every parameter is in exactly one group, unless it is excluded or quantised; tied weights count
    once. A group is named "vectors" or "scalars". Vectors that lie along another dimension than 0
    (transposed convolutions) get a group of their own; empty groups are left out. ``NDAdam`` calls
    the parameters in its messages as "names" of a group does.

    What ``rules``, ``exclude`` and ``rate_factors`` pick is said by a name pattern, which fits
    parameters and modules with all that is in them ("head", "blocks.*.qkv", with "*" for any
    letters and dots), a class of modules, which fits what these hold themselves, a module or a
    parameter. Of several that fit the last one counts.

    Warns of trained parameters of two dimensions or more that no rule covers: they get plain Adam.

    Args:
        model: Any module; ``describe_groups`` shows what is decided about it.
        alpha_v: Learning rate of the weight vectors, per step on the unit sphere. The paper's 0.05.
        alpha_s: Learning rate of the scalars. The paper's 0.001.
        weight_decay: L2 coefficient of the scalars. Weight vectors have none: their norm is 1.
        rules: Rules of your own: the dimension that indexes the weight vectors, or None for
            scalars, e.g. ``{"head": None, MyLayer: 1}``. Biases stay scalars.
        exclude: Parameters to leave to another optimizer.
        rate_factors: Factors on both rates, e.g. ``{"encoder": 0.1}``. What they pick gets groups
            of its own.

    Raises:
        TypeError: No module, or keys that pick nothing that there can be.
        ValueError: Keys that fit no parameter, dimensions that a parameter lacks, negative factors.
    """
    assignments = assign_parameters(model, rules, exclude)
    refuse_unless_factors(rate_factors or {})
    factors = factors_of(model, rate_factors)
    warn_of_uncovered(assignments, stacklevel=3)
    members: dict[tuple[int | None, float], list[Assignment]] = {}
    for a in assignments:
        if a.tied_to is None and not a.is_left_out:
            members.setdefault((a.vector_dim, factors.get(a.parameter, 1.0)), []).append(a)
    # Vectors first, by dimension; the rates as given before those with a factor.
    order = sorted(members, key=lambda key: (key[0] is None, key[0] or 0, key[1] != 1, key[1]))
    return [
        {
            **_members(members[dim, factor]),
            "lr": _scaled(alpha_s if dim is None else alpha_v, factor),
            "vector_dim": dim,
            "weight_decay": weight_decay if dim is None else 0.0,
            "name": "scalars" if dim is None else "vectors",
            **({} if factor == 1 else {"rate_factor": factor}),
        }
        for dim, factor in order
    ]


def factors_of(model: nn.Module, rate_factors: Mapping[Any, float] | None) -> dict[Tensor, float]:
    """The factor on the rates of each parameter that has one."""
    if not rate_factors:
        return {}
    picks = Picks("rate_factors", rate_factors, places_of(model))
    return {p: float(factor) for key, factor in rate_factors.items() for p in picks.fitting(key)}


def _scaled(rate: Any, factor: float) -> Any:
    return rate if factor == 1 else rate * factor


_MOST_NAMED = 3


def warn_of_uncovered(assignments: Sequence[Assignment], *, stacklevel: int) -> None:
    """Warn of trained matrices that get plain Adam because no rule says what they hold."""
    uncovered = [a for a in assignments if a.is_uncovered_matrix]
    if not uncovered:
        return
    names = [f"{a.name} ({a.reason.removeprefix('no rule for ')})" for a in uncovered[:_MOST_NAMED]]
    more = len(uncovered) - len(names)
    warnings.warn(
        f"{_share(uncovered, assignments)} get plain Adam: no rule says which slices are weight "
        f"vectors in {', '.join(names)}{f' and {more} more' if more else ''}. Say it with "
        "param_groups(model, rules={pattern, class or parameter: vector_dim}); None in place of "
        "vector_dim says that plain Adam is meant",
        stacklevel=stacklevel,
    )


def _share(part: Sequence[Assignment], all_of_them: Sequence[Assignment]) -> str:
    """How many of the trained weights a part of them is, in percent and in numbers."""
    trained = [
        a.parameter.numel()
        for a in all_of_them
        if a.tied_to is None and not a.is_left_out and a.parameter.requires_grad
    ]
    count, total = sum(a.parameter.numel() for a in part), sum(trained)
    percent = 100 * count / total
    digits = max(0, 1 - math.floor(math.log10(percent))) if percent < 10 else 0
    return f"{percent:.{digits}f} % of this model's weights ({count:,} of {total:,})"


def per_group(optimizer: Optimizer, *, alpha_v: _Value, alpha_s: _Value) -> list[_Value]:
    """One value for each parameter group: ``alpha_v`` for weight vectors, ``alpha_s`` for scalars.

    torch's schedules take such a list where one number would drive both rates alike: ``max_lr`` of
    ``OneCycleLR`` and ``CyclicLR``, ``swa_lr`` of ``SWALR``, ``min_lr`` of ``ReduceLROnPlateau``,
    the functions of ``LambdaLR``. Numbers are multiplied by the group's factor of ``rate_factors``.
    """
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {kind}")
    return [
        _of_group(group, alpha_s if group.get("vector_dim") is None else alpha_v)
        for group in optimizer.param_groups
    ]


def _of_group(group: dict[str, Any], value: _Value) -> _Value:
    """A number times the factor of the group's rates; what is no number as it is."""
    factor = group.get("rate_factor", 1)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return value * factor if factor != 1 and is_number else value


def _members(assignments: list[Assignment]) -> dict[str, Any]:
    return {
        "params": [a.parameter for a in assignments],
        "names": [a.name for a in assignments],
    }


def describe_groups(
    model: nn.Module,
    *,
    rules: Mapping[Any, int | None] | None = None,
    exclude: Iterable[Any] = (),
    probe: ProbeResult | None = None,
) -> str:
    """A table of what ``param_groups`` decides: parameter, shape, group, vectors x length, why.

    Its column "normalisation" says of weight vectors whether one follows their layer and undoes
    their length, and what said so: a ``probe`` if given, else the structure of the model, as far as
    its forward pass can be traced. Behind LayerNorm only the common length of all vectors of a
    layer is undone ("jointly"). Vectors that none follows are listed below the table.

    Frozen parameters are marked, and so are embeddings whose sparse gradients the step refuses.

    Args:
        model: Any module.
        rules, exclude: As in ``param_groups``.
        probe: What ``ndadam.probe`` has found on a batch of data.
    """
    head = ("parameter", "shape", "group", "vectors x length", "normalisation", "why")
    assignments = assign_parameters(model, rules, exclude)
    follows = _normalisations(model, assignments, probe)
    rows = [head]
    for a in assignments:
        shape = "x".join(map(str, a.parameter.shape)) or "()"
        size = ""
        if a.vector_dim is not None:
            count = a.parameter.shape[a.vector_dim]
            size = f"{count} x {a.parameter.numel() // max(count, 1)}"
        rows.append((a.name, shape, _group_of(a), size, follows.get(a.parameter, ""), _why(a)))
    last = len(head) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(last)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[last]])
        for row in rows
    ]
    return "\n".join([*lines, *_without_normalisation(assignments, follows)])


def _normalisations(
    model: nn.Module, assignments: Sequence[Assignment], probe: ProbeResult | None
) -> dict[Tensor, str]:
    """The cell of each parameter with weight vectors."""
    vectors = [
        WeightVectors(a.name, a.parameter, a.vector_dim, a.layer)
        for a in assignments
        if a.vector_dim is not None and a.layer is not None and a.tied_to is None
    ]
    if probe is None:
        found = structure(model, vectors)
        cells = {p: _cell(outcome, what) for p, (outcome, what) in found.items()}
    else:
        classes = probe.layer_classes()
        cells = {
            v.parameter: "not known (frozen)"
            if v.layer in probe.frozen
            else _OF_CLASS[classes[v.layer]]
            for v in vectors
            if v.layer in classes
        }
    for module in model.modules():
        if isinstance(module, Scaled):
            cells.update(dict.fromkeys(module.layer.parameters(), "has a scale"))
    for module in scaled_weights(model):
        cells.update(dict.fromkeys(module.parameters(recurse=False), "has a scale"))
    held = {v.parameter for v in vectors}
    return {p: cell for p, cell in cells.items() if p in held}


_OF_CLASS = {
    "invariant": "follows (probe)",
    "jointly_invariant": "follows, jointly (probe)",
    "eps_limited": "follows, up to eps (probe)",
    "neither": "does not (probe)",
}


def _cell(outcome: str, what: str) -> str:
    name = "follows, jointly" if outcome == "jointly" else outcome
    return f"{name} ({what})" if what else name


def _without_normalisation(
    assignments: Sequence[Assignment], follows: Mapping[Tensor, str]
) -> list[str]:
    """The lines below the table."""
    alike: dict[str, list[str]] = {}  # those of a chain of blocks count once
    for a in assignments:
        if a.tied_to is None and follows.get(a.parameter, "").startswith("does not"):
            alike.setdefault(re.sub(r"\d+", "*", a.name), []).append(a.name)
    if not alike:
        return []
    names = [
        name if not others else f"{name} and {len(others)} alike"
        for name, *others in alike.values()
    ]
    return [
        "",
        "Weight vectors that no normalisation follows:",
        *(f"  {name}" for name in names),
        "Their units cannot learn the size of what they give: wrap the layers in Scaled, or give "
        "them to plain Adam",
        "with rules={name: None}.",
    ]


def _group_of(a: Assignment) -> str:
    if a.is_left_out:
        return "none"
    if a.is_sparse:
        return "refused"
    name = "scalars" if a.vector_dim is None else "vectors"
    return name if a.parameter.requires_grad else f"{name}, frozen"


def _why(a: Assignment) -> str:
    if a.is_sparse and not a.is_left_out:
        return f"{a.reason}; sparse gradients: exclude it here, SparseAdam takes them"
    return a.reason


class ParameterNames:
    """Names that came with the parameter groups: from ``param_groups``, or torch's own."""

    def __init__(self) -> None:
        self._known: dict[Tensor, str] = {}

    def learn(self, params: list[Tensor], names: list[str]) -> None:
        """Remember the names of one group, one for each of its parameters or none at all."""
        if len(names) == len(params):
            self._known.update(zip(params, names, strict=True))

    def refuse_shared(
        self, groups: list[dict[str, Any]], params: list[Any], names: list[str]
    ) -> None:
        """Refuse parameters that are in one of ``groups`` already, as torch does, but by name.

        They have the name that they come with now, in ``names`` or in a pair as
        ``named_parameters`` has it, else the one that they are known by.
        """
        held = {
            p: self.of(group, index, position)
            for index, group in enumerate(groups)
            for position, p in enumerate(group["params"])
        }
        pairs = [p if isinstance(p, tuple) else (None, p) for p in params]
        if len(names) == len(pairs):
            pairs = [(name, p) for name, (_, p) in zip(names, pairs, strict=True)]
        shared = [name or held[p] for name, p in pairs if isinstance(p, Tensor) and p in held]
        if shared:
            raise ValueError(
                f"some parameters appear in more than one parameter group: {', '.join(shared)}; "
                "make groups of the module that holds all of them, which counts tied ones once"
            )

    def of(self, group: dict[str, Any], index: int, position: int) -> str:
        """The name of one parameter of a group, or where it is and its shape."""
        p = group["params"][position]
        if "param_names" in group:
            return str(group["param_names"][position])
        return self._known.get(
            p, f"parameter {position} of group {index} with shape {tuple(p.shape)}"
        )
