"""NDAdam for code that takes an optimizer's class and its keyword arguments."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from ndadam.optimizer.ndadam import NDAdam
from ndadam.optimizer.param_groups import param_groups
from ndadam.vectors.weight_vectors import Assignment, assign_parameters


class ModelNDAdam(NDAdam):
    """``NDAdam`` that splits the parameters it is given into weight vectors and scalars itself.

    Trainers that make the optimizer hand over parameters, or groups of them, and keyword arguments;
    which parameters are vectors only the model says. Groups are split as ``param_groups`` does;
    ``weight_decay`` of a group goes to its scalars.

    Args:
        params: Parameters, groups of them, or the model itself.
        model: Holds the parameters; where ``params`` is it, it may be left out.
        alpha_v: Learning rate of the weight vectors.
        alpha_s: Learning rate of the scalars.
        weight_decay: L2 coefficient of the scalars in groups without one of their own.
        settings: Other arguments of ``NDAdam``: betas, eps, …

    Raises:
        TypeError: No model, or ``lr``, which would be that of vectors and scalars alike.
        ValueError: Parameters that the model does not hold, and what ``NDAdam`` refuses.
    """

    def __init__(
        self,
        params: Iterable[Any] | nn.Module,
        model: nn.Module | None = None,
        *,
        alpha_v: float = 0.05,
        alpha_s: float = 0.001,
        weight_decay: float = 0.0,
        **settings: Any,
    ) -> None:
        for key in ("lr", "vector_dim"):
            if key in settings:
                raise TypeError(f"ModelNDAdam takes alpha_v, alpha_s and model, not {key}")
        rates = {"alpha_v": alpha_v, "alpha_s": alpha_s, "weight_decay": weight_decay}
        if isinstance(params, nn.Module):
            groups = param_groups(params, **rates)
        elif isinstance(model, nn.Module):
            groups = _split(list(params), model, **rates)
        else:
            raise TypeError(
                "ModelNDAdam needs the model, as model=…, to tell weight vectors from scalars; "
                f"got {type(model).__name__}"
            )
        super().__init__(groups, **settings)


def _split(
    given: list[Any], model: nn.Module, *, alpha_v: float, alpha_s: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Groups of one ``vector_dim`` each, made of groups or parameters."""
    rules = {a.parameter: a for a in assign_parameters(model) if a.tied_to is None}
    if not given or not isinstance(given[0], dict):
        given = [{"params": given}]
    groups = []
    for group in given:
        if "lr" in group:
            raise TypeError(f"a group to be split cannot have an lr of its own, got {group['lr']}")
        by_dim: dict[int | None, list[Assignment]] = {}
        for p in [group["params"]] if isinstance(group["params"], Tensor) else group["params"]:
            rule = _rule_of(p[1] if isinstance(p, tuple) else p, rules)
            by_dim.setdefault(rule.vector_dim, []).append(rule)
        decay = group.get("weight_decay", weight_decay)
        for dim, members in by_dim.items():
            groups.append(
                {
                    **group,
                    "params": [a.parameter for a in members],
                    "names": [a.name for a in members],
                    "vector_dim": dim,
                    "lr": alpha_s if dim is None else alpha_v,
                    "weight_decay": decay if dim is None else 0.0,
                    "name": "scalars" if dim is None else "vectors",
                }
            )
    return groups


def _rule_of(p: Any, rules: dict[nn.Parameter, Assignment]) -> Assignment:
    if p not in rules:
        shown = f"of shape {tuple(p.shape)}" if isinstance(p, Tensor) else f"{type(p).__name__}"
        raise ValueError(f"model does not hold a parameter that is to be optimized, {shown}")
    return rules[p]
