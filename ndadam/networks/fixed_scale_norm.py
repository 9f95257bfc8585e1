"""Batch normalisation whose scale is constant, and its form that averages over all processes."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class FixedScaleBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation whose scale is 1 and not trained; the bias is trained.

    The paper's "w/o scaling factors". The scale is a buffer, so that no parameter exists that
    never receives a gradient, and a tensor of ones, because cuDNN wants one.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        del self.weight
        self.register_buffer("weight", torch.ones(num_features), persistent=False)


class FixedScaleBatchNorm1d(nn.BatchNorm1d):
    """Batch normalisation whose scale is 1 and not trained; the bias is trained."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        del self.weight
        self.register_buffer("weight", torch.ones(num_features), persistent=False)


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
