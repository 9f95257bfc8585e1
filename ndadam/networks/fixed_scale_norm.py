"""Batch normalisation over all processes, for networks whose scales are constants too."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def convert_sync_batchnorm(model: nn.Module, process_group: Any = None) -> nn.Module:
    """``torch.nn.SyncBatchNorm.convert_sync_batchnorm``, which takes no constant scales itself.

    The scales of ``BatchNormSoftmax`` and of ``WideResNet(bn_scale="fixed")`` are buffers, and
    torch's function stops at them with a TypeError. Here each becomes a frozen parameter of the
    ``SyncBatchNorm`` that takes its place: the same function, with one more entry in state dicts.
    Changes ``model`` in place and returns what to use instead of it.

    Args:
        model: Any module.
        process_group: Whose batches are joined; None for all processes.
    """
    for module in model.modules():
        scale = dict(module.named_buffers(recurse=False)).get("weight")
        if isinstance(module, _BatchNorm) and scale is not None:
            del module.weight
            module.register_parameter("weight", nn.Parameter(scale, requires_grad=False))
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm  # not annotated in torch
    converted: nn.Module = convert(model, process_group)
    return converted
