"""Where a run is computed: device, precision, determinism. Refuses what the machine lacks."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from worker.config.train_config import FieldError, TrainConfig

#: TF32 and bf16 tensor cores came with this compute capability (A100 and later).
_AMPERE = (8, 0)


def choose_device(config: TrainConfig) -> torch.device:
    """The device of a run. Raises FieldError when it or its precision is not there."""
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise FieldError(
            "device", "device = 'cuda' needs a CUDA device and this machine has none, got 'cuda'"
        )
    device = torch.device("cuda" if has_cuda and config.device != "cpu" else "cpu")
    if device.type == "cpu" and config.precision == "tf32":
        raise FieldError(
            "precision", "precision must be fp32 or bf16 on a CPU, which has no TF32; got 'tf32'"
        )
    if device.type == "cuda" and config.precision != "fp32":
        capability = torch.cuda.get_device_capability(device)
        if capability < _AMPERE:
            raise FieldError(
                "precision",
                f"precision must be fp32 on a card of compute capability below 8.0; got "
                f"{config.precision!r} and capability {capability[0]}.{capability[1]}",
            )
    return device


def card_bytes(device: torch.device) -> int | None:
    """Memory of a card; None for a CPU, whose memory is not planned."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.get_device_properties(device).total_memory)


def wake_autograd(device: torch.device) -> None:
    """Let torch's thread for gradients begin to work on a card.

    Where its first call is one of cuBLAS, as in a backward pass that begins with a matrix product,
    torch warns that the thread has no context yet.
    """
    if device.type == "cuda":
        one = torch.ones((), device=device, requires_grad=True)
        torch.autograd.backward(one * one)


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[object]:
    """bf16 arithmetic with fp32 weights where the config asks for it."""
    if config.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=True)
    return nullcontext()


@contextmanager
def arithmetic(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Set torch's global switches for one run and put them back at its end.

    ``deterministic`` promises bitwise equal runs on the same machine with the same versions and the
    same number of threads. Without it, a CUDA run picks the fastest convolution algorithms and may
    differ in the last bits from one run to the next; a CPU run is exact either way.
    """
    cuda = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn  # torch's stubs lack ``cudnn.conv``
    before = (
        cuda.fp32_precision,
        cudnn.conv.fp32_precision,
        cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
    )
    fp32 = "tf32" if config.precision == "tf32" else "ieee"
    cuda.fp32_precision, cudnn.conv.fp32_precision = fp32, fp32
    cudnn.benchmark = device.type == "cuda" and not config.deterministic
    if config.deterministic:
        # cuBLAS reads this when its handle is made; without it torch refuses deterministic mode.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        cuda.fp32_precision, cudnn.conv.fp32_precision, cudnn.benchmark = before[:3]
        torch.use_deterministic_algorithms(before[3])
