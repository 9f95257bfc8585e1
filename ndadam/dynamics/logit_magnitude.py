"""The size of the logits during training, which Fig. 3 of arXiv:1709.04546 shows."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from ndadam.checks import refuse_unless_whole


def logit_rms(logits: Tensor) -> Tensor:
    """Root mean square of the logits that enter the softmax, over images and classes; 0-dim.

    In float32 at least, on the device of ``logits`` (N, C) and outside of their graph.
    """
    values = logits.detach()
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    return values.square().mean().sqrt()


class LogitMagnitude:
    """Record ``logit_rms`` of what a module returns, at each forward pass in training mode.

    Attach it to any loop and read it when you like::

        magnitude = LogitMagnitude(model)  # or the layer whose output enters the softmax
        ...                                # the loop, unchanged
        values = magnitude.drain()         # one number per training batch

    Records stay on the device until ``drain``, so no step waits for the host. Passes in evaluation
    mode are not recorded. ``torch.compile`` of the model breaks its graph where ``head`` returns.

    Args:
        head: Returns the logits (N, C), as a tensor.
        every: Training passes between two records.

    Raises:
        ValueError: ``every`` < 1 or not whole.
        TypeError: ``head`` is no module, or, when it is called, returns no tensor.
    """

    def __init__(self, head: nn.Module, every: int = 1) -> None:
        refuse_unless_whole("every", every, 1)
        if not isinstance(head, nn.Module):
            raise TypeError(f"head must be an nn.Module, got {type(head).__name__}")
        self.every = every
        self._passes = 0
        self._records: list[Tensor] = []
        self._hook = head.register_forward_hook(self._record)

    def detach(self) -> None:
        """Stop recording for good; what was recorded can still be read."""
        self._hook.remove()

    def drain(self) -> list[float]:
        """Hand out what was recorded since the last call. Waits for the device once."""
        records, self._records = self._records, []
        values: list[float] = torch.stack(records).tolist() if records else []
        return values

    @_disable_dynamo  # what the host counts would be compiled in, anew at each pass
    def _record(self, head: nn.Module, inputs: Any, logits: Any) -> None:
        if not head.training:
            return
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"{type(head).__name__} must return its logits as a tensor, got "
                f"{type(logits).__name__}: attach LogitMagnitude to the layer that computes them"
            )
        if self._passes % self.every == 0:
            self._records.append(logit_rms(logits))
        self._passes += 1
