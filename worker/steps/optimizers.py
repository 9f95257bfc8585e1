"""Builds the optimizer of a config, and sets its learning rates step by step."""

from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from ndadam import NDAdam, param_groups
from ndadam.matching.closed_loop import FollowCurve
from ndadam.theory.along_schedule import Factor
from worker.config.parts import Part
from worker.config.schedules import build_schedule
from worker.config.train_config import FieldError, TrainConfig
from worker.data.run_length import Length


def build_optimizer(
    config: TrainConfig, model: nn.Module, *, capturable: bool = False
) -> Optimizer:
    """The optimizer of a resolved config; ``capturable`` in a CUDA graph or not.

    There are two parameter groups: weight vectors (convolutions and linear layers) and scalars (BN
    scales and biases, other biases). ``decay_on`` says to which of them ``weight_decay`` applies;
    it is L2 in the gradient, but decoupled for adamw.
    """
    if own := config.parts().get("optimizer"):
        return _own_optimizer(own, config, model)
    if config.optimizer == "ndadam":
        assert config.alpha_s is not None
        groups = param_groups(
            model,
            alpha_v=config.alpha_v or 0.0,  # none: set before every step
            alpha_s=config.alpha_s,
            weight_decay=config.weight_decay or 0.0,
        )
        return NDAdam(groups, **config.model_dump(include={"betas", "eps"}), capturable=capturable)
    return _torch_optimizer(config, decay_groups(config, model), capturable)


def _own_optimizer(part: Part, config: TrainConfig, model: nn.Module) -> Optimizer:
    """Build the optimizer of a package from the same two groups."""
    groups = decay_groups(config, model)
    if "weight_decay" not in part.fields():
        for group in groups:
            del group["weight_decay"]
    made = part.call(config, groups)
    if not isinstance(made, Optimizer):
        raise FieldError(
            "optimizer",
            f"{part.title} must return a torch.optim.Optimizer, got {type(made).__name__}",
        )
    fields = part.fields()
    for field in {part.declared.get("rate", "lr"), part.declared.get("scalars", "lr")}:
        if field not in fields:
            raise FieldError(
                "optimizer",
                f"{part.title} must have the field {field!r} that holds its learning rate, or name "
                f"another one with @ndsweep.optimizer(rate=…); its fields are {', '.join(fields)}",
            )
    set_mode(made, "train")
    return made


def set_mode(optimizer: Optimizer, mode: Literal["train", "eval"]) -> None:
    """Tell an optimizer that wants to know it, as schedule-free ones do, what the weights are for.

    These keep other weights for evaluation than for steps.
    """
    switch = getattr(optimizer, mode, None)
    if callable(switch):
        switch()


def decay_groups(config: TrainConfig, model: nn.Module) -> list[dict[str, Any]]:
    """The two groups for torch's optimizers, each with its own ``weight_decay``."""
    groups = param_groups(model, alpha_v=0.0, alpha_s=0.0)
    return [
        {
            "params": group["params"],
            "name": group["name"],
            "weight_decay": config.weight_decay
            if config.decay_on in ("all", group["name"])
            else 0.0,
        }
        for group in groups
    ]


def _torch_optimizer(
    config: TrainConfig, groups: list[dict[str, Any]], capturable: bool
) -> Optimizer:
    assert config.lr is not None
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            lr=config.lr,
            momentum=config.momentum or 0.0,
            nesterov=bool(config.nesterov),
            fused=True,
        )
    assert config.betas is not None
    assert config.eps is not None
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(
        groups,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        fused=True,
        capturable=capturable,
    )


class LearningRates:
    """Writes every group's learning rate before a step: base rate x schedule factor."""

    def __init__(
        self,
        config: TrainConfig,
        optimizer: Optimizer,
        length: Length,
        follow: FollowCurve | None = None,
    ) -> None:
        assert config.lr_schedule is not None

        def factor(schedule: Any) -> Factor:
            return build_schedule(
                schedule,
                num_steps=length.num_steps,
                steps_per_epoch=length.steps_per_epoch,
                warmup_steps=config.warmup_steps,
            )

        usual = factor(config.lr_schedule)
        own = factor(config.alpha_s_schedule) if config.alpha_s_schedule is not None else usual
        # Loading a state gives the optimizer new group dicts, so none is kept here.
        self._optimizer = optimizer
        names = [group.get("name", "vectors") for group in optimizer.param_groups]
        self._rates = [
            (base_rate(config, name), own if name == "scalars" else usual) for name in names
        ]
        self._follow = follow

    def at(self, step: int) -> list[float]:
        """The rate of every group with which step ``step`` (from 0) is taken."""
        return [base * factor(step) for base, factor in self._rates]

    def set(self, step: int) -> None:
        """Give the optimizer the rates of a step."""
        for group, rate in zip(self._optimizer.param_groups, self.at(step), strict=True):
            group["lr"] = rate
        if self._follow is not None:
            self._follow.set_rate()


def base_rate(config: TrainConfig, group_name: str) -> float:
    """The learning rate of a group before its schedule."""
    if own := config.parts().get("optimizer"):
        field = own.declared.get("scalars" if group_name == "scalars" else "rate", "lr")
        return float(getattr(own.values(config), field))
    if config.optimizer == "ndadam":
        rate = config.alpha_s if group_name == "scalars" else config.alpha_v
        if group_name != "scalars" and config.follow is not None:
            rate = 0.0  # FollowCurve sets it
    else:
        rate = config.lr
    assert rate is not None
    return rate
