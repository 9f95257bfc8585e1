"""Builds the networks that a config names. The entry point ``wrn`` leads here.

Those of packages are functions ``network(config, data)``; of an older form, which goes on working,
``build(config, num_classes, in_channels)`` with the whole ``TrainConfig``.
"""

import torch
from torch import nn

from ndadam.networks.wide_resnet import WideResNet
from worker.config import registry
from worker.config.part_declarations import DataFacts
from worker.config.train_config import FieldError, TrainConfig
from worker.networks.narrow_shortcuts import use_channels_last


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
    config: TrainConfig,
    num_classes: int,
    in_channels: int,
    device: torch.device,
    data: DataFacts | None = None,
) -> nn.Module:
    """The registered network of a resolved config, on its device. ``data``: of one of a package."""
    own = config.parts().get("network")
    if own is not None and not own.takes_whole_config:
        assert data is not None
        model: nn.Module = own.call(config, data)
        if not isinstance(model, nn.Module):
            raise FieldError(
                "network", f"{own.title} must return a torch module, got {type(model).__name__}"
            )
        model = model.to(device)
        return use_channels_last(model) if len(data.shape) == 3 else model
    if data is not None and len(data.shape) != 3:
        raise FieldError(
            "network",
            f"network {config.network!r} needs images, and inputs of data set {data.name!r} have "
            f"shape {data.shape}: name a network of a package",
        )
    build = registry.load("networks", config.network)
    found: nn.Module = build(config, num_classes, in_channels)
    # The layout of the images: 10 to 25 % faster than channels first on a CPU too.
    return use_channels_last(found.to(device))
