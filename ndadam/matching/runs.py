"""Short trainings on the caller's network and loop, with their weight dynamics recorded."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ndadam.dynamics.effective_lr import EffectiveLR
from ndadam.dynamics.records import DynamicsRecord
from ndadam.invariance.passes import copy_of, same_randomness_after
from ndadam.invariance.probe import ProbeResult
from ndadam.matching.torch_settings import build_optimizer
from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import OptimizerSetting

Loss = Callable[[nn.Module, Any], Tensor]
#: Batches that can be gone through again, or a function of the seed that gives them.
Batches = Iterable[Any] | Callable[[int], Iterable[Any]]

#: A loss is looked at this often, because looking waits for the device.
_CHECK_EVERY = 50


@dataclass(frozen=True)
class MeasuredRun:
    """One training from its first step to its last."""

    seed: int
    record: DynamicsRecord
    #: A of the shadow moments; None without.
    gain: float | None
    #: Mean loss over the last tenth of the run.
    final_loss: float
    #: Step by which the loss or a weight was no longer finite; None for a run that is whole.
    diverged_at: int | None

    @property
    def layers(self) -> Sequence[str]:
        """Layers with records of their own."""
        return list(self.record.layers)

    def effective_lr(self, layer: str | None = None) -> Sequence[float]:
        """Effective learning rate of every step: of a layer, or averaged over the network."""
        return (self.record if layer is None else self.record.layers[layer]).effective_lr

    def shadow_step(self) -> Sequence[float]:
        """The steps that ND-Adam would take at alpha^v = 1; empty without shadow moments."""
        return self.record.shadow_step

    @property
    def diverged_layers(self) -> list[str]:
        """Layers whose effective learning rate was not finite in some step."""
        return [
            name
            for name, layer in self.record.layers.items()
            if layer.effective_lr and not all(map(math.isfinite, layer.effective_lr))
        ]


@dataclass(frozen=True)
class Loop:
    """What every run of a match shares: network, loss, data, length."""

    model: nn.Module
    loss: Loss
    batches: Batches
    num_steps: int
    probe: ProbeResult
    alpha_s: float
    decay_scalars: bool
    #: Of everything but the weight vectors that a match moves.
    lr_schedule: Factor

    def train(
        self,
        setting: OptimizerSetting,
        seed: int,
        *,
        vectors_schedule: Factor | None = None,
        shadow_betas: tuple[float, float] | None = None,
    ) -> MeasuredRun:
        """Train a copy of the model. Torch's generators are put back afterwards."""
        model = copy_of(self.model).train()
        optimizer = build_optimizer(
            setting, model, alpha_s=self.alpha_s, decay_scalars=self.decay_scalars
        )
        dynamics = EffectiveLR(model, optimizer, shadow_betas=shadow_betas, probe=self.probe)
        full = [group["lr"] for group in optimizer.param_groups]
        losses: list[Tensor] = []
        diverged_at = None
        with same_randomness_after(), torch.enable_grad():
            torch.manual_seed(seed)
            stream = endless(self.batches, seed)
            for step in range(self.num_steps):
                for group, rate in zip(optimizer.param_groups, full, strict=True):
                    own = vectors_schedule if group["name"] == "vectors" else None
                    group["lr"] = rate * (own or self.lr_schedule)(step)
                optimizer.zero_grad(set_to_none=True)
                value = self.loss(model, next(stream))
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(value.detach())
                at_check = step % _CHECK_EVERY == _CHECK_EVERY - 1 or step == self.num_steps - 1
                if at_check and not math.isfinite(float(value.detach())):
                    diverged_at = step
                    break
        gain = dynamics.gain() if shadow_betas is not None else None
        last = torch.stack(losses[-max(1, len(losses) // 10) :]).mean()
        return MeasuredRun(
            seed, dynamics.drain(), gain.overall if gain else None, float(last), diverged_at
        )


def endless(batches: Batches, seed: int) -> Iterator[Any]:
    """Batches one after the other, from the start again when they end.

    Raises ValueError for batches that cannot be gone through again, TypeError for what is none.
    """
    if not (callable(batches) or hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")):
        raise TypeError(
            "batches must be a list, a DataLoader or a function of the seed, got "
            f"{type(batches).__name__}"
        )
    while True:
        count = 0
        for batch in batches(seed) if callable(batches) else batches:
            count += 1
            yield batch
        if count == 0:
            raise ValueError(
                "batches must give the same data again each time it is gone through, as a list or "
                "a DataLoader does, and gave none; pass a function of the seed for generators"
            )
        seed += 1_000_003  # another order for the next pass, where the seed decides it
