"""Parameter groups for ND-Adam: weight vectors, and everything else; names for its messages."""

from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from ndadam.vectors.weight_vectors import Assignment, assign_parameters

_Value = TypeVar("_Value")


def param_groups(
    model: nn.Module,
    *,
    alpha_v: float = 0.05,
    alpha_s: float = 0.001,
    weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Split the parameters of ``model`` into groups of weight vectors and of scalars.

    Every parameter is in exactly one group; tied weights count once. A group is named "vectors" or
    "scalars". Vectors that lie along another dimension than 0 (transposed convolutions) get a
    group of their own; empty groups are left out. ``NDAdam`` calls the parameters in its messages
    as "names" of a group does.

    Args:
        model: Any module; ``describe_groups`` shows what is decided about it.
        alpha_v: Learning rate of the weight vectors, per step on the unit sphere. The paper's 0.05.
        alpha_s: Learning rate of the scalars. The paper's 0.001.
        weight_decay: L2 coefficient of the scalars. Weight vectors have none: their norm is 1.
    """
    by_dim: dict[int | None, list[Assignment]] = {}
    for assignment in assign_parameters(model):
        if assignment.tied_to is None:
            by_dim.setdefault(assignment.vector_dim, []).append(assignment)
    groups: list[dict[str, Any]] = [
        {
            **_members(by_dim[dim]),
            "lr": alpha_v,
            "vector_dim": dim,
            "weight_decay": 0.0,
            "name": "vectors",
        }
        for dim in sorted(dim for dim in by_dim if dim is not None)
    ]
    if None in by_dim:
        groups.append(
            {
                **_members(by_dim[None]),
                "lr": alpha_s,
                "vector_dim": None,
                "weight_decay": weight_decay,
                "name": "scalars",
            }
        )
    return groups


def per_group(optimizer: Optimizer, *, alpha_v: _Value, alpha_s: _Value) -> list[_Value]:
    """One value for each parameter group: ``alpha_v`` for weight vectors, ``alpha_s`` for scalars.

    torch's schedules take such a list where one number would drive both rates alike: ``max_lr`` of
    ``OneCycleLR`` and ``CyclicLR``, ``swa_lr`` of ``SWALR``, ``min_lr`` of ``ReduceLROnPlateau``,
    the functions of ``LambdaLR``.
    """
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {kind}")
    is_vector = [group.get("vector_dim") is not None for group in optimizer.param_groups]
    return [alpha_v if is_one else alpha_s for is_one in is_vector]


def _members(assignments: list[Assignment]) -> dict[str, Any]:
    return {
        "params": [a.parameter for a in assignments],
        "names": [a.name for a in assignments],
    }


def describe_groups(model: nn.Module) -> str:
    """A table of what ``param_groups`` decides: parameter, shape, group, vectors x length, why."""
    rows = [("parameter", "shape", "group", "vectors x length", "why")]
    for a in assign_parameters(model):
        shape = "x".join(map(str, a.parameter.shape)) or "()"
        if a.vector_dim is None:
            rows.append((a.name, shape, "scalars", "", a.reason))
        else:
            count = a.parameter.shape[a.vector_dim]
            size = f"{count} x {a.parameter.numel() // max(count, 1)}"
            rows.append((a.name, shape, "vectors", size, a.reason))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )


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
