"""Convolutions in which oneDNN writes past its buffers are kept from channels last on a CPU."""

import os
import subprocess
import sys
from ctypes.util import find_library

import pytest
import torch
from torch import nn

from worker import TrainConfig
from worker.networks.build import build_network
from worker.networks.narrow_shortcuts import use_channels_last

CPU = torch.device("cpu")

# What glibc checks at every free, it finds within one backward pass.
TRAIN_A_NARROW_SHORTCUT = """
import torch
from torch import nn
from worker.networks.narrow_shortcuts import use_channels_last
torch.set_num_threads(1)
layer = use_channels_last(nn.Conv2d(4, 8, 1, stride=2))
for _ in range(3):
    images = torch.randn(32, 4, 32, 32).to(memory_format=torch.channels_last)
    layer(images.requires_grad_()).sum().backward()
"""


@pytest.mark.skipif(find_library("c_malloc_debug") is None, reason="needs glibc's malloc checks")
def test_a_backward_pass_stays_within_its_buffers() -> None:
    checks = {"LD_PRELOAD": str(find_library("c_malloc_debug")), "MALLOC_CHECK_": "3"}
    checks["GLIBC_TUNABLES"] = "glibc.malloc.check=3"
    command = [sys.executable, "-c", TRAIN_A_NARROW_SHORTCUT]

    ended = subprocess.run(
        command, env=os.environ | checks, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stderr


def test_a_narrow_network_computes_the_same_in_either_layout() -> None:
    config = TrainConfig(
        depth=10, widen_factor=0.25, shortcut="conv", dataset="colours", batch_size=20
    ).resolved()
    kept = build_network(config, 4, 3, CPU)
    plain = build_network(config, 4, 3, CPU)
    plain.to(memory_format=torch.contiguous_format)
    images = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))

    for model in (kept, plain):
        model(images.contiguous(memory_format=torch.channels_last)).square().sum().backward()

    for one, other in zip(kept.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "kept_first"),
    [
        (nn.Conv2d(4, 8, 1, stride=2), True),
        (nn.Conv2d(32, 32, 1, stride=2, groups=4), True),
        (nn.Conv2d(16, 32, 1, stride=2), False),
        (nn.Conv2d(4, 8, 1), False),
        (nn.Conv2d(4, 8, 3, stride=2, padding=1), False),
    ],
)
def test_only_narrow_strided_1x1_convolutions_are_kept(layer: nn.Conv2d, kept_first: bool) -> None:
    seen: list[torch.Tensor] = []
    use_channels_last(layer)
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    layer(torch.randn(2, layer.in_channels, 8, 8).to(memory_format=torch.channels_last))

    assert seen[0].is_contiguous() == kept_first
    assert layer.weight.is_contiguous() or not kept_first
