"""What a CUDA device and the packages beside torch allow. Needs no Triton itself."""

import importlib.util

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

#: Whether Triton's kernels can be compiled; torch for ROCm brings another Triton.
HAS_TRITON = torch.version.hip is None and importlib.util.find_spec("triton") is not None


def has_values(t: Tensor) -> bool:
    """Whether there are numbers in ``t``: not on the meta device, nor in a ``FakeTensorMode``."""
    return not (t.is_meta or isinstance(t, FakeTensor))


def runs_kernels(t: Tensor) -> bool:
    """Whether Triton's kernels run where ``t`` is."""
    return t.is_cuda and has_values(t)


def is_capturing(device: torch.device) -> bool:
    """Whether what is launched on ``device`` now goes into a CUDA graph and is not done."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
