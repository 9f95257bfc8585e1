"""Between torch's optimizers and the settings that theory knows.

A model's weight vectors may lie in several parameter groups; what counts is how these are trained.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from ndadam.dynamics.step_hooks import refuse_no_optimizer
from ndadam.optimizer.ndadam import NDAdam
from ndadam.optimizer.param_groups import param_groups
from ndadam.theory.laws import OptimizerSetting
from ndadam.vectors.weight_vectors import refuse_without_vectors, weight_vectors

Source = OptimizerSetting | Optimizer | Mapping[str, Any]

#: Hyperparameters that must agree over all groups with weight vectors, beside lr.
_READ = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "betas")


def setting_of_optimizer(optimizer: Optimizer, model: nn.Module) -> OptimizerSetting:
    """What theory needs to know of an optimizer: how it trains the weight vectors of ``model``.

    Its learning rate is the full one, on which a torch scheduler puts its factors, not the one that
    the scheduler has left there. Of NDAdam only groups with ``vector_dim`` count: others are
    trained by plain Adam.

    Raises:
        ValueError: An optimizer without a law (SGD, Adam, AdamW and NDAdam have one), weight
            vectors that it does not train, or groups of them that are trained differently.
    """
    name = _name(optimizer)
    groups = list(_vector_groups(optimizer, model))
    if not groups:
        refuse_without_vectors(model, weight_vectors(model))
        raise ValueError("optimizer must train weight vectors of model, and trains none of them")
    if name == "ndadam":
        groups = [group for group in groups if group["vector_dim"] is not None]
        if not groups:
            raise ValueError(
                "optimizer trains all weight vectors of model with plain Adam, as NDAdam does in "
                "groups without vector_dim: make its groups with param_groups(model)"
            )
    fields = [{key: group[key] for key in _READ if key in group} for group in groups]
    for group, read in zip(groups, fields, strict=True):
        # What OneCycleLR, what the other schedulers note.
        read["lr"] = group.get("max_lr", group.get("initial_lr", group["lr"]))
    for other in fields[1:]:
        for key, value in fields[0].items():
            if other[key] != value:
                raise ValueError(
                    f"{key} must be the same for all weight vectors, got {value} and {other[key]}; "
                    "a match is one learning rate"
                )
    found: dict[str, Any] = fields[0]
    if name == "ndadam":
        found.pop("weight_decay", None)  # a no-op on vectors whose norm is pinned
    lr = float(found.pop("lr"))
    return OptimizerSetting(name, lr=lr, **_plain(found))


def source_setting(source: Source, model: nn.Module) -> OptimizerSetting:
    """The side of a match that is at its full rate; SGD where a mapping names no optimizer."""
    if isinstance(source, OptimizerSetting):
        return source
    if isinstance(source, Optimizer):
        return setting_of_optimizer(source, model)
    return _setting("source", {"optimizer": "sgd", **_mapping("source", source)})


def target_setting(target: OptimizerSetting | Mapping[str, Any]) -> OptimizerSetting:
    """The side of a match whose rate is open."""
    if isinstance(target, OptimizerSetting):
        return target
    return _setting("target", _mapping("target", target))


def _mapping(side: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(
            f"the {side} must be an OptimizerSetting or a mapping of its fields, got {given!r}"
        )
    return given


def _setting(side: str, given: Mapping[str, Any]) -> OptimizerSetting:
    known = [field.name for field in fields(OptimizerSetting)]
    if unknown := sorted(set(given) - set(known), key=str):
        raise ValueError(
            f"the {side}'s fields are {', '.join(known)}; got {', '.join(map(str, unknown))}"
        )
    if "optimizer" not in given:
        raise ValueError(f"the {side} must name its optimizer, got {dict(given)}")
    return OptimizerSetting(**given)


def build_optimizer(
    setting: OptimizerSetting, model: nn.Module, *, alpha_s: float, decay_scalars: bool
) -> Optimizer:
    """Torch's optimizer of a setting, with groups named "vectors" and "scalars".

    ``alpha_s`` is the learning rate of ndadam's scalars; the others have one rate for all.
    ``decay_scalars`` says whether weight decay acts on biases and scales too.
    """
    refuse_untrainable(setting)
    lr = setting.known_lr()
    groups = param_groups(model, alpha_v=lr, alpha_s=alpha_s)
    if setting.optimizer == "ndadam":
        return NDAdam(groups, betas=setting.betas)
    parts = [
        {
            "params": group["params"],
            "name": group["name"],
            "weight_decay": setting.weight_decay
            if decay_scalars or group["name"] == "vectors"
            else 0.0,
        }
        for group in groups
    ]
    if setting.optimizer == "sgd":
        return SGD(
            parts,
            lr=lr,
            momentum=setting.momentum,
            dampening=setting.dampening,
            nesterov=setting.nesterov,
        )
    if setting.optimizer == "adamw":
        return AdamW(parts, lr=lr, betas=setting.betas)
    return Adam(parts, lr=lr, betas=setting.betas)


def refuse_untrainable(setting: OptimizerSetting) -> None:
    """Raise ValueError for an optimizer that theory knows and torch does not have."""
    if setting.optimizer == "sgdw":
        raise ValueError("torch has no sgdw, so it cannot be trained here; theory.predict knows it")


def _name(optimizer: Optimizer) -> Any:
    if isinstance(optimizer, NDAdam):
        return "ndadam"
    if isinstance(optimizer, Adam):
        # torch's AdamW is an Adam whose decay is decoupled.
        return "adamw" if optimizer.defaults.get("decoupled_weight_decay") else "adam"
    if isinstance(optimizer, SGD):
        return "sgd"
    refuse_no_optimizer(optimizer)
    raise ValueError(
        "optimizer must be torch's SGD, Adam or AdamW, or NDAdam, whose laws are known; got "
        f"{type(optimizer).__name__}: measure its effective learning rate with EffectiveLR"
    )


def _vector_groups(optimizer: Optimizer, model: nn.Module) -> Iterable[dict[str, Any]]:
    held = {v.parameter for v in weight_vectors(model)}
    return (g for g in optimizer.param_groups if any(p in held for p in g["params"]))


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Tensors, which capturable optimizers hold, as numbers."""
    return {
        key: tuple(float(v) for v in value)
        if key == "betas"
        else bool(value)
        if key == "nesterov"
        else float(value)
        for key, value in fields.items()
    }
