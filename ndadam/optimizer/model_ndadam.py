"""NDAdam for code that takes an optimizer's class and its keyword arguments."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from ndadam.optimizer.ndadam import NDAdam
from ndadam.optimizer.param_groups import param_groups


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
        rules, exclude, rate_factors: As in ``param_groups``.
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
        rules: Mapping[Any, int | None] | None = None,
        exclude: Iterable[Any] = (),
        rate_factors: Mapping[Any, float] | None = None,
        **settings: Any,
    ) -> None:
        for key in ("lr", "vector_dim"):
            if key in settings:
                raise TypeError(f"ModelNDAdam takes alpha_v, alpha_s and model, not {key}")
        given: dict[str, Any] = {
            "alpha_v": alpha_v,
            "alpha_s": alpha_s,
            "weight_decay": weight_decay,
            "rules": rules,
            "exclude": exclude,
            "rate_factors": rate_factors,
        }
        if isinstance(params, nn.Module):
            groups = param_groups(params, **given)
        elif isinstance(model, nn.Module):
            groups = _split(list(params), model, param_groups(model, **given), weight_decay)
        else:
            raise TypeError(
                "ModelNDAdam needs the model, as model=…, to tell weight vectors from scalars; "
                f"got {type(model).__name__}"
            )
        super().__init__(groups, **settings)


def _split(
    given: list[Any], model: nn.Module, groups: list[dict[str, Any]], weight_decay: float
) -> list[dict[str, Any]]:
    """Complete ``groups`` of a model, cut along those that a trainer has ``given``.

    Parameters that are in none of ``groups``, because they are excluded, are left out.
    """
    places = {
        p: (index, name)
        for index, group in enumerate(groups)
        for p, name in zip(group["params"], group["names"], strict=True)
    }
    held = set(model.parameters())
    if not given or not isinstance(given[0], dict):
        given = [{"params": given}]
    found = []
    for group in given:
        if "lr" in group:
            raise TypeError(f"a group to be split cannot have an lr of its own, got {group['lr']}")
        parts: dict[int, list[tuple[Tensor, str]]] = {}
        for p in [group["params"]] if isinstance(group["params"], Tensor) else group["params"]:
            parameter = _held(p[1] if isinstance(p, tuple) else p, held)
            if parameter in places:
                index, name = places[parameter]
                parts.setdefault(index, []).append((parameter, name))
        decay = group.get("weight_decay", weight_decay)
        for index, members in parts.items():
            params, names = map(list, zip(*members, strict=True))
            whole = groups[index] | {"params": params, "names": names}
            whole["weight_decay"] = 0.0 if whole["vector_dim"] is not None else decay
            found.append(group | whole)
    return found


def _held(p: Any, held: set[nn.Parameter]) -> Tensor:
    if p not in held:
        shown = f"of shape {tuple(p.shape)}" if isinstance(p, Tensor) else f"{type(p).__name__}"
        raise ValueError(f"model does not hold a parameter that is to be optimized, {shown}")
    parameter: Tensor = p
    return parameter
