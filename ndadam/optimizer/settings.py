"""What ND-Adam refuses: group settings outside their range, parameters it cannot update.

Where torch refuses the same, the message begins with torch's.
"""

import math
import numbers
import warnings
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ndadam.cuda import has_values
from ndadam.vectors.sharding import refuse_cut_vectors

SETTINGS = (
    "lr",
    "betas",
    "eps",
    "vector_dim",
    "weight_decay",
    "maximize",
    "capturable",
    "foreach",
    "fused",
)
_SAVED_BY_ALL_VERSIONS = SETTINGS[:5]

#: Keys of groups that are no settings: names, and what schedules leave there.
_NO_SETTINGS = frozenset(
    "params param_names names name initial_lr max_lr min_lr base_momentum max_momentum swa_lr "
    "lr_scale rate_factor".split()
)

#: Settings of torch's other optimizers, which would change the step.
_OF_OTHERS = frozenset(
    "alpha amsgrad centered dampening decoupled_weight_decay differentiable etas "
    "initial_accumulator_value lambd lr_decay momentum momentum_decay nesterov ns_steps rho "
    "step_sizes t0".split()
)


def store_numbers(group: dict[str, Any]) -> None:
    """Make Python's of the numbers of one parameter group, as ``torch.load`` takes them.

    A learning rate that is a tensor stays one: it is read at each step. Other tensors are read now.

    Raises:
        ValueError: What is no number, with the setting and the value.
    """
    for key in _RATES:
        value = group[key]
        if not (key == "lr" and isinstance(value, Tensor)):
            group[key] = _number(key, value)
    group["betas"] = _two_numbers(group["betas"])
    dim = _plain(group["vector_dim"])
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, numbers.Integral)):
        raise ValueError(f"vector_dim must be a whole number or None, got {dim!r}")
    group["vector_dim"] = None if dim is None else int(dim)


def make_plain(group: dict[str, Any]) -> None:
    """Replace the numbers of numpy that a schedule has left in a group by Python's."""
    for key in group.keys() - {"params", "param_names"}:
        value = group[key]
        if isinstance(value, tuple | list):
            group[key] = type(value)(map(_plain, value)) if type(value) in (tuple, list) else value
        else:
            group[key] = _plain(value)


def _plain(value: Any) -> Any:
    """A number of numpy, or an array of one, as Python's; anything else as it is."""
    if isinstance(value, Tensor) or not hasattr(value, "dtype") or not hasattr(value, "item"):
        return value
    return value.item() if getattr(value, "size", None) == 1 else value


def _number(key: str, value: Any) -> float:
    found = _number_or_none(value)
    if found is None:
        raise ValueError(f"{key} must be a number, got {value!r}")
    return found


def _number_or_none(value: Any) -> float | None:
    """The number that ``value`` is, None if it is none: no truth, no text, not several."""
    if isinstance(value, Tensor):
        is_one = value.numel() == 1 and has_values(value)
        if not is_one or value.is_complex() or value.dtype == torch.bool:
            return None
        value = value.item()
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _two_numbers(betas: Any) -> tuple[float, float]:
    if not (isinstance(betas, tuple | list) or hasattr(betas, "dtype")):
        raise ValueError(f"betas must be two numbers, got {betas!r}")
    is_list = isinstance(betas, tuple | list) or getattr(betas, "ndim", 0) == 1
    if not is_list or len(betas) != 2:
        raise ValueError(f"betas must be two numbers, got {betas!r}")
    found = [_number_or_none(beta) for beta in betas]
    for i, number in enumerate(found):
        if number is None:
            raise ValueError(f"betas must be two numbers, got {betas[i]!r} at index {i}")
    first, second = found
    assert first is not None
    assert second is not None
    return first, second


def refuse_settings_of_others(where: str, group: dict[str, Any]) -> None:
    """Refuse a group that asks for a step of another optimizer. Off, such a setting may stay.

    Raises:
        ValueError: With the settings and their values.
    """
    asked = {key: group[key] for key in sorted(_OF_OTHERS & group.keys()) if _is_on(group[key])}
    if asked:
        shown = ", ".join(f"{key}={value!r}" for key, value in asked.items())
        raise ValueError(
            f"{where} has {shown}, which NDAdam does not have: its settings are "
            f"{', '.join(SETTINGS)}. Leave it out if plain ND-Adam is meant"
        )


def _is_on(value: Any) -> bool:
    return value is not None and value is not False and _number_or_none(value) != 0


def warn_of_unknown_keys(
    where: str, group: dict[str, Any], known: Iterable[str] = (), *, stacklevel: int
) -> None:
    """Warn of keys that nothing reads: typing errors, or settings of another optimizer."""
    read = {*SETTINGS, *_NO_SETTINGS, *_OF_OTHERS, *known}
    unknown = sorted(str(key) for key in group.keys() - read)
    if unknown:
        warnings.warn(
            f"{where} has {', '.join(unknown)}, which NDAdam does not read: its settings are "
            f"{', '.join(SETTINGS)}",
            stacklevel=stacklevel,
        )


def check_group(group: dict[str, Any]) -> None:
    """Refuse settings of one parameter group. Raises ValueError with the value in the text."""
    _check_rates(group)
    for i, beta in enumerate(group["betas"]):
        if not 0.0 <= beta < 1.0:
            raise ValueError(
                f"Invalid beta parameter at index {i}: {beta}; betas must be in [0, 1)"
            )
    check_decay(group)


def check_loaded(loaded: dict[str, Any]) -> None:
    """Refuse what is no state of NDAdam: other files, cut ones, and those of other optimizers.

    With the groups of another optimizer vectors would become scalars unnoticed.
    """
    for key in ("state", "param_groups"):
        if key not in loaded:
            raise ValueError(
                f"the loaded state has no {key}: it holds {sorted(map(str, loaded))}; load what "
                "optimizer.state_dict() has returned"
            )
    for index, group in enumerate(loaded["param_groups"]):
        _check_loaded_group(index, group)


def _check_loaded_group(index: int, group: Any) -> None:
    where = f"group {index} of the loaded state"
    if not isinstance(group, dict):
        raise ValueError(f"{where} must be a dict, got {type(group).__name__}")
    settings = sorted(map(str, set(group) - {"params"}))
    if "params" not in group or not settings:
        missing = "params" if "params" not in group else "settings"
        raise ValueError(
            f"{where} is damaged: it has no {missing}, it holds {sorted(map(str, group))}; save it "
            "anew with optimizer.state_dict()"
        )
    if "vector_dim" not in group:
        raise ValueError(
            f"{where} has no vector_dim, so another optimizer than NDAdam has saved it: it holds "
            f"{settings}. Its moments are those of other steps; start NDAdam without them"
        )
    for key in _SAVED_BY_ALL_VERSIONS:
        if key not in group:
            raise ValueError(f"{where} is damaged: it has no {key}, it holds {settings}")
    refuse_settings_of_others(where, group)


def check_decay(group: dict[str, Any]) -> None:
    """Refuse weight decay on weight vectors."""
    if group["vector_dim"] is not None and group["weight_decay"] != 0:
        raise ValueError(
            "weight_decay must be 0 in a group with vector_dim: the norm of weight vectors is "
            f"pinned to 1, so decay on them does nothing; got {group['weight_decay']}. "
            "Set weight_decay=0 in that group and decay the scalars' group"
        )


def check_parameter(name: str, p: Tensor, vector_dim: int | None) -> None:
    """Refuse a parameter that cannot be updated with this ``vector_dim``."""
    if is_lazy(p):
        raise ValueError(
            f"{name} has no shape yet: run one batch through the model, which gives its lazy "
            "modules their shapes, and make the optimizer then"
        )
    if p.is_complex():
        raise ValueError(f"{name} is complex ({p.dtype}); NDAdam takes real parameters only")
    if not p.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {p.dtype}")
    if vector_dim is not None and p.dim() < 2:
        raise ValueError(
            f"weight vectors need a parameter of 2 or more dimensions, got {name} of shape "
            f"{tuple(p.shape)}; put it into a group with vector_dim=None. If a sharding wrapper "
            "has flattened it, use one that keeps rows, such as fully_shard"
        )
    if vector_dim is not None and not -p.dim() <= vector_dim < p.dim():
        raise ValueError(
            f"vector_dim must be a dimension of every parameter of its group, got {vector_dim} "
            f"for {name} of shape {tuple(p.shape)}"
        )
    refuse_cut_vectors(name, p, vector_dim)


def _check_rates(group: dict[str, Any]) -> None:
    for key, torchs_name in _RATES.items():
        value = group[key]
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, got one of shape {tuple(value.shape)}")
        if not 0 <= value < math.inf:
            raise ValueError(f"Invalid {torchs_name}: {value}; {key} must be >= 0 and finite")


_RATES = {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value"}
