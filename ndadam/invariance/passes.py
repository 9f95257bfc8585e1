"""The pass of a probe: loss and gradients on a copy of a model, in numbers fine enough to judge.

In float64 if the model allows it. A model that casts on the way, or whose device has no float64,
is probed in float32: an invariant vector's |cos| is 1e-6 there, far below any threshold. The copy
leaves the model and the state of the random generators as they were.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ndadam.invariance.residual_streams import Stream, find_streams
from ndadam.vectors.weight_vectors import WeightVectors, refuse_without_vectors, weight_vectors


def copy_of(model: nn.Module) -> nn.Module:
    """A deep copy. Raises ValueError for a model that keeps what cannot be copied, by name."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        kept = [
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, Tensor) and value.grad_fn is not None
        ]
        what = (
            f"it keeps tensors of an earlier forward pass in {', '.join(kept)}; set them to None"
            if kept
            else str(error)
        )
        raise ValueError(f"model must be one that can be copied, and cannot: {what}") from error


def same_randomness_after() -> AbstractContextManager[Any]:
    """Put torch's generators of the CPU and of every card back at the end.

    Of every card, because ``torch.manual_seed`` seeds them all, wherever a model is.
    """
    is_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    count = torch.cuda.device_count() if is_in_use else 0
    return torch.random.fork_rng(devices=range(count))


Loss = Callable[[nn.Module, Any], Tensor]

#: Where the functions of normalisation, torch's own and those of ``nn.functional``, take eps.
_EPS_AT = {
    "batch_norm": 7,
    "instance_norm": 7,
    "group_norm": 4,
    "layer_norm": 4,
    "rms_norm": 3,
}

#: As good as none, and no division by zero where an output does not vary.
_NO_EPS = 1e-20


@dataclass(frozen=True)
class Gradients:
    """What one pass found, for all N vectors in the order of ``weight_vectors``."""

    gw: Tensor  # <g, w>, (N,)
    gg: Tensor  # ||g||^2, (N,)
    ww: Tensor  # ||w||^2, (N,)
    streams: list[Stream]
    #: Layer -> channels that the normalisations after it read together, where more than one.
    spans: dict[str, int]
    #: Whether the loss went through a normalisation that has an eps.
    has_eps: bool


def gradients(model: nn.Module, batch: Any, loss: Loss, *, without_eps: bool = False) -> Gradients:
    """One backward pass on a copy in training mode; torch's generators are put back.

    Raises ValueError where the loss of the batch is no finite scalar with a gradient, and whatever
    ``loss`` raises.
    """
    try:
        return _pass(model, batch, loss, torch.float64, without_eps)
    except (RuntimeError, TypeError):
        # A mixture of types, or a device without float64. What is wrong otherwise is wrong again.
        return _pass(model, batch, loss, torch.float32, without_eps)


def _pass(
    model: nn.Module, batch: Any, loss: Loss, dtype: torch.dtype, without_eps: bool
) -> Gradients:
    twin = copy_of(model).to(dtype).train()
    twin.zero_grad(set_to_none=True)
    vectors = weight_vectors(twin)
    eps = _Eps(_NO_EPS if without_eps else None)
    with same_randomness_after(), torch.enable_grad(), eps:
        value, streams, spans = find_streams(vectors, lambda: loss(twin, converted(batch, dtype)))
        _refuse_no_loss(value)
        torch.autograd.backward(value)
    gw, gg, ww = (torch.cat(parts) for parts in zip(*map(_moments, vectors), strict=True))
    return Gradients(gw, gg, ww, streams, spans, eps.has_eps)


class _Eps(TorchFunctionMode):
    """Notes whether a normalisation is used, and replaces its eps where one is given."""

    def __init__(self, replacement: float | None) -> None:
        super().__init__()
        self._replacement = replacement
        self.has_eps = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        at = _EPS_AT.get(getattr(func, "__name__", ""))
        if at is not None:
            self.has_eps = True
            if self._replacement is not None:
                args = args[:at] + (self._replacement,) * (len(args) > at) + args[at + 1 :]
                if len(args) <= at:
                    kwargs = {**kwargs, "eps": self._replacement}
        return func(*args, **kwargs)


def _refuse_no_loss(value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"loss must return a tensor with a gradient, got {type(value).__name__} {value!r}"
        )
    if value.numel() != 1:
        raise ValueError(
            f"loss must return one number, got a tensor of shape {tuple(value.shape)}: take its "
            "mean"
        )
    if not value.requires_grad:
        raise ValueError(
            "loss must depend on trained parameters of the model it is given, and does not: it is "
            "detached, computed from another model, or all that it depends on is frozen"
        )
    if not bool(torch.isfinite(value.detach()).all()):
        raise ValueError(f"loss must be finite on the batch, got {float(value.detach())}")


@torch.no_grad()
def _moments(v: WeightVectors) -> tuple[Tensor, Tensor, Tensor]:
    """<g, w>, ||g||^2 and ||w||^2 of each vector, three times (V,)."""
    w = v.parameter.movedim(v.vector_dim, 0).flatten(1)
    grad = v.parameter.grad
    g = torch.zeros_like(w) if grad is None else grad.movedim(v.vector_dim, 0).flatten(1)
    return (g * w).sum(1), g.square().sum(1), w.square().sum(1)


def converted(batch: Any, dtype: torch.dtype) -> Any:
    """A batch with its floating-point tensors in ``dtype``, inside whatever holds them."""
    if isinstance(batch, Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(converted(item, dtype) for item in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(converted(item, dtype) for item in batch)
    if isinstance(batch, Mapping):
        return {key: converted(item, dtype) for key, item in batch.items()}
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changed = {
            f.name: converted(getattr(batch, f.name), dtype)
            for f in dataclasses.fields(batch)
            if f.init
        }
        return dataclasses.replace(batch, **changed)
    return batch


def refuse_nothing_to_probe(model: nn.Module, vectors: Sequence[WeightVectors]) -> None:
    """Raise ValueError for a model in which no weight vector is trained."""
    refuse_without_vectors(model, vectors)
    if not any(v.parameter.requires_grad for v in vectors):
        raise ValueError(
            "model must train some of its weight vectors, and all of them are frozen "
            "(requires_grad is False)"
        )
