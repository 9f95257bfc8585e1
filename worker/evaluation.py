"""Error of a network on held-out images."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from worker.augment import Pixels, plain
from worker.turns import Turn

#: Images per forward pass. A CPU needs 0.37 s per 1,000 images of CIFAR with 128 (WRN-10-1, one
#: thread), 0.49 with 500 and 0.74 with 1,000, which fall out of its caches.
#: A card is full with 500 images of the paper's networks, which need less of it than a step does.
_BATCH = {"cpu": 128, "cuda": 500}


@dataclass(frozen=True)
class Evaluation:
    """What one pass over held-out images found."""

    #: Fraction of images whose largest logit is not their label's, 0..1.
    error: float
    #: False when any logit was NaN or infinite: then ``error`` means nothing.
    is_finite: bool


def evaluate(
    model: nn.Module,
    logits_of: Callable[[Tensor], Tensor],  # the model's logits, however they are computed
    pixels: Pixels,
    indices: Tensor,  # (N,) int64, on the device
    stop: Callable[[], bool],
) -> Generator[Turn, None, Evaluation | None]:
    """Evaluate with running statistics; None when ``stop`` said so between two batches.

    The turn is handed on after every batch, and before the device is waited for.
    """
    model.eval()
    wrong, bad = [], []
    try:
        for part in torch.split(indices, _BATCH[pixels.device.type]):
            if stop():
                return None
            # Not around the loop: the mode is the thread's, and others have their turn in between.
            with torch.inference_mode():
                logits = logits_of(plain(pixels, part))
                labels = pixels.labels.index_select(0, part)
                wrong.append((logits.argmax(1) != labels).sum())
                bad.append((~torch.isfinite(logits)).any())
            yield Turn.NEXT
    finally:
        model.train()
    yield Turn.SETTLE
    count = int(torch.stack(wrong).sum())
    return Evaluation(count / len(indices), not bool(torch.stack(bad).any()))
