"""Builds the networks that a config names. The entry point ``wrn`` leads here."""

import torch
from torch import nn

from ndadam.wide_resnet import WideResNet
from worker import registry
from worker.config import TrainConfig


def wide_resnet(config: TrainConfig, num_classes: int, in_channels: int) -> nn.Module:
    """A WRN of a resolved config; initial weights depend on ``config.seed`` alone."""
    return WideResNet(
        config.depth,
        config.widen_factor,
        num_classes,
        in_channels,
        activation=config.activation,
        shortcut=config.shortcut,
        init=config.init,
        bn_eps=config.bn_eps,
        bn_momentum=config.bn_momentum,
        bn_scale=config.bn_scale,
        gamma_c=config.gamma_c,
        generator=torch.Generator().manual_seed(config.seed),
    )


def build_network(
    config: TrainConfig, num_classes: int, in_channels: int, device: torch.device
) -> nn.Module:
    """The registered network of a resolved config, on its device."""
    build = registry.load("networks", config.network)
    model: nn.Module = build(config, num_classes, in_channels)
    if device.type == "cuda":
        return model.to(device, memory_format=torch.channels_last)
    return model.to(device)
