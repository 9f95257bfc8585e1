"""Error of a network on held-out images."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from worker.data.augment import Pixels
from worker.steps.memory_estimate import EVALUATED
from worker.steps.turns import STEPS_PER_TURN, Turn

#: Images per forward pass. A CPU needs 0.37 s per 1,000 images of CIFAR with 128 (WRN-10-1, one
#: thread), 0.49 with 500 and 0.74 with 1,000, which fall out of its caches.
BATCH = {"cpu": 128, "cuda": EVALUATED}


@dataclass(frozen=True)
class Evaluation:
    """What one pass over held-out images found."""

    #: Fraction of images whose largest logit is not their label's, 0..1.
    error: float
    #: False when any logit was NaN or infinite: then ``error`` means nothing.
    is_finite: bool


class Judge(Protocol):
    """How a network judges a batch of held-out images."""

    def __call__(
        self,
        pixels: Pixels,
        part: Tensor,  # (N,) int64, on the device: which images
        found: Tensor,  # (2,) int64, on the device: what ``errors`` finds is added
    ) -> None: ...


def errors(
    logits: Tensor,  # (N, classes)
    labels: Tensor,  # (N,) int64
) -> Tensor:  # (2,) int64, on the device
    """How many images are taken for another class, and how many logits are not finite."""
    wrong = (logits.argmax(1) != labels).sum()
    return torch.stack([wrong, (~torch.isfinite(logits)).sum()])


def evaluate(
    model: nn.Module,
    judge: Judge,
    pixels: Pixels,
    indices: Tensor,  # (N,) int64, on the device
    stop: Callable[[], bool],
) -> Generator[Turn, None, Evaluation | None]:
    """Evaluate with running statistics; None when ``stop`` said so between two batches.

    The turn is handed on after some batches, and before the device is waited for.
    """
    model.eval()
    found = torch.zeros(2, dtype=torch.int64, device=indices.device)
    try:
        for number, part in enumerate(torch.split(indices, BATCH[pixels.device.type]), 1):
            if stop():
                return None
            # Not around the loop: the mode is the thread's, and others have their turn in between.
            # Not inference mode: what a recording makes for all graphs could not be used by steps.
            with torch.no_grad():
                judge(pixels, part, found)
            if number % STEPS_PER_TURN == 0:
                yield Turn.NEXT
    finally:
        model.train()
    yield Turn.SETTLE
    wrong, broken = found.tolist()
    return Evaluation(wrong / len(indices), broken == 0)
