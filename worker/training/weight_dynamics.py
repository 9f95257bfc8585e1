"""Weight dynamics of a run: of one step before each report, and as measured series."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ndadam import EffectiveLR, logit_penalty, probe
from ndadam.dynamics.effective_lr import Phase
from ndadam.invariance.probe import ProbeResult
from ndadam.matching.closed_loop import FollowCurve
from ndadam.theory.fitted_curve import factor_of_points
from worker.config.train_config import TrainConfig
from worker.report import Measurement, Series
from worker.training.layer_meter import LayerMeter

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


class Dynamics:
    """Measures how far each layer's weight vectors move; records every step on request."""

    def __init__(
        self,
        config: TrainConfig,
        model: nn.Module,
        optimizer: Optimizer,
        measurement: Measurement | None,
        batch: Batch,  # of the first step
        loss: Loss = F.cross_entropy,
    ) -> None:
        self._meter = LayerMeter(config, model, optimizer)
        self._recorder = (
            Recorder(model, optimizer, measurement, probed(config, model, batch, loss))
            if measurement
            else None
        )

    def before_step(self, step: int, report_step: int) -> None:
        """Call before step ``step``; the next report comes after ``report_step`` steps."""
        self._meter.before_step(step, report_step)
        if self._recorder is not None:
            self._recorder.before_step(step)

    def after_step(self) -> None:
        """Call after every step."""
        self._meter.after_step()

    @property
    def phase(self) -> Phase:
        """Return the phase of the record at the next optimizer step: a graph holds one phase."""
        return self._recorder.phase if self._recorder is not None else Phase.PASSED

    def replayed(self) -> None:
        """Call after a step that was a replay, which calls no hook of the optimizer."""
        if self._recorder is not None:
            self._recorder.replayed()

    def metrics(self) -> dict[str, float]:
        """Return metrics per layer, of the last step before this report."""
        return self._meter.metrics()

    def final_metrics(self) -> dict[str, float]:
        """Return metrics of the whole record, for the last report."""
        return self._recorder.summary() if self._recorder is not None else {}

    def take_series(self) -> dict[str, Series]:
        """Return the records since the last call."""
        return self._recorder.take_series() if self._recorder is not None else {}

    def provenance(self) -> dict[str, Any]:
        """Return which weight vectors are scale-invariant."""
        return {"probe": self._recorder.probed} if self._recorder is not None else {}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        recorder = self._recorder.state() if self._recorder is not None else None
        return {"meter": self._meter.state(), "recorder": recorder}

    def load(self, state: dict[str, Any]) -> None:
        """Restore ``state``."""
        self._meter.load(state["meter"])
        if self._recorder is not None:
            self._recorder.load(state["recorder"])


def probed(
    config: TrainConfig, model: nn.Module, batch: Batch, loss_of: Loss = F.cross_entropy
) -> ProbeResult:
    """Find the scale-invariant weight vectors of the config's loss."""

    def loss(network: nn.Module, images_and_labels: Batch) -> Tensor:
        logits = network(images_and_labels[0])
        value = loss_of(logits, images_and_labels[1])
        if config.lambda_c is not None:
            value = value + logit_penalty(logits, config.lambda_c)
        return value

    return probe(model, batch, loss)


def follow_curve(
    config: TrainConfig,
    model: nn.Module,
    optimizer: Optimizer,
    batch: Batch,
    loss: Loss = F.cross_entropy,
) -> FollowCurve | None:
    """Make the closed-loop control of alpha_v if the config has a curve to follow."""
    if config.follow is None:
        return None
    found = probed(config, model, batch, loss)
    return FollowCurve(model, optimizer, factor_of_points(config.follow), probe=found)


class Recorder:
    """Records weight dynamics in the window of a ``Measurement``."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        measurement: Measurement,
        found: ProbeResult | None,
    ) -> None:
        """Attach to ``optimizer``. ``found``: which vectors count; None = all."""
        self._measurement = measurement
        #: What the probe found, for provenance.
        self.probed: dict[str, Any] = {}
        if found is not None:
            self.probed = {
                "counts": found.counts(),
                "layers": found.layer_classes(),
                "limited_by_eps": list(found.limited_by_eps),
            }
        self._effective = EffectiveLR(
            model,
            optimizer,
            every=measurement.every,
            shadow_betas=measurement.shadow_betas,
            probe=found,
            # It records steps divisible by ``every``, counted from the window's start.
            first_step=-measurement.start,
        )

    def before_step(self, step: int) -> None:
        window = self._measurement
        self._effective.recording = window.start <= step and (
            window.stop is None or step < window.stop
        )

    @property
    def phase(self) -> Phase:
        return self._effective.phase

    def replayed(self) -> None:
        self._effective.replayed()

    def take_series(self) -> dict[str, Series]:
        """Return the records since the last call, up to the first that is NaN or infinite."""
        record = self._effective.drain()
        named = {"effective_lr": record.effective_lr}
        if record.shadow_step:
            named["shadow_step"] = record.shadow_step
        if self._measurement.per_layer:
            for layer, values in record.layers.items():
                named[f"effective_lr/{layer}"] = values.effective_lr
        finite = min(map(_finite_length, named.values()))
        if not finite:
            return {}
        start = record.steps[0] + self._measurement.start
        every = self._measurement.every
        return {
            name: Series(start=start, every=every, values=values[:finite])
            for name, values in named.items()
        }

    def summary(self) -> dict[str, float]:
        """Return gain A of the shadow moments and kappa of the balance law, if measured."""
        metrics: dict[str, float] = {}
        if (gain := self._effective.gain()) is not None:
            metrics |= {"gain": gain.overall, "gradient_memory": gain.memory}
            metrics |= {f"gain/{layer}": value for layer, value in gain.layers.items()}
        if (balance := self._effective.balance()) is not None:
            metrics |= {"kappa": balance.kappa, "balance_residual": balance.residual}
            metrics |= {f"kappa/{layer}": value for layer, value in balance.layers.items()}
        return metrics

    def detach(self) -> None:
        """Record no more."""
        self._effective.detach()

    def state(self) -> dict[str, Any]:
        return self._effective.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self._effective.load_state_dict(state)


def _finite_length(values: list[float]) -> int:
    return next((i for i, value in enumerate(values) if not math.isfinite(value)), len(values))
