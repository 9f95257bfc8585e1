"""What torch's ``GradScaler`` leaves to a fused step: to unscale gradients, and to skip the step.

Around such a step ``p.grad`` holds gradients of the scaled loss, also of steps that are not taken.
Nothing here waits for the device.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer


def unscale_(gradients: Tensor, optimizer: Optimizer) -> None:
    """Divide a copy of the gradients by what ``optimizer`` will divide them by in its step."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        gradients.div_(scale.to(gradients.device, gradients.dtype).reshape(()))


def skips_step(optimizer: Optimizer, device: torch.device) -> Tensor | None:
    """Whether ``optimizer`` will skip its step, 0-dim on ``device``; None if it is not to decide.

    Elsewhere ``GradScaler`` decides, and calls no step at all.
    """
    found = getattr(optimizer, "found_inf", None)
    return None if found is None else found.to(device).reshape(()) > 0


@contextmanager
def held_where(skipped: Tensor | None, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Undo on the device what is done to ``tensors`` meanwhile, if the step is skipped."""
    if skipped is None:
        yield
        return
    before = [tensor.clone() for tensor in tensors]
    yield
    for tensor, old in zip(tensors, before, strict=True):
        tensor.copy_(torch.where(skipped, old, tensor))
