"""Optimizer steps, one call at a time: the path of a CPU, of ``deterministic`` and of probes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ndadam import logit_penalty
from worker.config.train_config import TrainConfig
from worker.data.augment import Pixels, plain
from worker.data.batches import BatchStream
from worker.steps.evaluation import errors
from worker.steps.metrics import RunningMetrics
from worker.steps.optimizers import LearningRates


class EagerSteps:
    """Takes the steps of a run as a plain training loop does."""

    def __init__(
        self,
        config: TrainConfig,  # resolved
        model: nn.Module,
        optimizer: Optimizer,
        rates: LearningRates,
        stream: BatchStream,
        autocast: Callable[[], AbstractContextManager[object]],
        tally: RunningMetrics,
    ) -> None:
        self._lambda_c = config.lambda_c
        self._model, self._optimizer, self._rates = model, optimizer, rates
        self._stream, self._autocast, self._tally = stream, autocast, tally

    def take(self, step: int) -> None:
        """Step ``step`` (from 0)."""
        images, labels = self._stream.batch(step)
        self._rates.set(step)
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            logits = self._model(images)
        # The loss needs float32 at least.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits, labels)
        if self._lambda_c is not None:
            loss = loss + logit_penalty(logits, self._lambda_c)
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._tally.add(step, loss.detach(), logits.detach(), labels)

    def judge(self, pixels: Pixels, part: Tensor, found: Tensor) -> None:
        """Add the errors on held-out images ``part`` (N,) to ``found`` (2,)."""
        with self._autocast():
            logits: Tensor = self._model(plain(pixels, part))
        found.add_(errors(logits, pixels.labels.index_select(0, part)))
