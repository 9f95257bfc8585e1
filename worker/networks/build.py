"""Builds the networks that a config names. The entry point ``wrn`` leads here."""

import torch
from torch import nn

from ndadam.networks.wide_resnet import WideResNet
from worker.config import registry
from worker.config.train_config import TrainConfig


def wide_resnet(config: TrainConfig, num_classes: int, in_channels: int) -> nn.Module:
    """A WRN of a resolved config; initial weights depend on ``config.seed`` alone."""
    fields = config.model_dump(
        include={
            "activation",
            "shortcut",
            "init",
            "bn_eps",
            "bn_momentum",
            "bn_scale",
            "gamma_c",
        }
    )
    return WideResNet(
        config.depth,
        config.widen_factor,
        num_classes,
        in_channels,
        generator=torch.Generator().manual_seed(config.seed),
        **fields,
    )


def build_network(
    config: TrainConfig, num_classes: int, in_channels: int, device: torch.device
) -> nn.Module:
    """The registered network of a resolved config, on its device."""
    build = registry.load("networks", config.network)
    model: nn.Module = build(config, num_classes, in_channels)
    # The layout of the images: 10 to 25 % faster than channels first on a CPU too.
    return model.to(device).to(memory_format=torch.channels_last)
