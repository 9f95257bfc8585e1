"""Keeps oneDNN from writing past its buffers in narrow shortcuts on a CPU.

The backward pass of a strided 1 × 1 convolution in channels last writes past the end of a buffer if
a group has fewer input channels than the kernel's block: 8 with AVX2, 16 with AVX-512 (oneDNN 3.12
of torch 2.14; https://github.com/uxlfoundation/oneDNN/issues/6035). The process then aborts, now or
at some later allocation. Channels first takes another kernel.
"""

import torch
from torch import Tensor, nn

BLOCK = 16


def use_channels_last(model: nn.Module) -> nn.Module:
    """``model`` in channels last, but for those convolutions that must not be on a CPU."""
    model = model.to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and _writes_past_its_buffer(module):
            module.to(memory_format=torch.contiguous_format)
            module.register_forward_pre_hook(_channels_first)
    return model


def _writes_past_its_buffer(convolution: nn.Conv2d) -> bool:
    return (
        convolution.weight.device.type == "cpu"
        and convolution.kernel_size == (1, 1)
        and convolution.stride != (1, 1)
        and convolution.in_channels // convolution.groups < BLOCK
    )


def _channels_first(convolution: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    images, *rest = inputs
    return (images.contiguous(), *rest)
