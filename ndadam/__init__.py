"""ND-Adam, the networks and the softmax of its paper, and the effective learning rate.

Zhang, Ma, Li and Wu, "Normalized Direction-preserving Adam", arXiv:1709.04546. Names load on first
use (PEP 562), so ``ndadam.theory``, ``ndadam.statistics`` and ``ndadam.matching`` can be used
without loading torch.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ndadam.dynamics import Balance, DynamicsRecord, Gain, LayerDynamics
    from ndadam.effective_lr import EffectiveLR
    from ndadam.equivalents import Equivalents, equivalents
    from ndadam.logit_magnitude import LogitMagnitude, logit_rms
    from ndadam.match_answer import MeasuredMatch
    from ndadam.measured_match import match_alpha_v, match_rate
    from ndadam.ndadam import NDAdam
    from ndadam.param_groups import describe_groups, param_groups
    from ndadam.probe import ProbeResult, probe
    from ndadam.reference import NDAdamReference
    from ndadam.scaled import Scaled, fold_batch_norm
    from ndadam.softmax import (
        BatchNormSoftmax,
        batch_norm_softmax,
        logit_penalty,
        softmax_gradient,
        softmax_gradient_limits,
        softmax_gradient_ratios,
    )
    from ndadam.sync_batch_norm import convert_sync_batchnorm
    from ndadam.torch_settings import setting_of_optimizer
    from ndadam.weight_vectors import WeightVectors, weight_vectors
    from ndadam.wide_resnet import WideResNet

_FILE_OF = {
    "Balance": "dynamics",
    "BatchNormSoftmax": "softmax",
    "DynamicsRecord": "dynamics",
    "EffectiveLR": "effective_lr",
    "Equivalents": "equivalents",
    "Gain": "dynamics",
    "LayerDynamics": "dynamics",
    "LogitMagnitude": "logit_magnitude",
    "MeasuredMatch": "match_answer",
    "NDAdam": "ndadam",
    "NDAdamReference": "reference",
    "ProbeResult": "probe",
    "Scaled": "scaled",
    "WeightVectors": "weight_vectors",
    "WideResNet": "wide_resnet",
    "batch_norm_softmax": "softmax",
    "convert_sync_batchnorm": "sync_batch_norm",
    "describe_groups": "param_groups",
    "equivalents": "equivalents",
    "fold_batch_norm": "scaled",
    "logit_penalty": "softmax",
    "logit_rms": "logit_magnitude",
    "match_alpha_v": "measured_match",
    "match_rate": "measured_match",
    "param_groups": "param_groups",
    "probe": "probe",
    "setting_of_optimizer": "torch_settings",
    "softmax_gradient": "softmax",
    "softmax_gradient_limits": "softmax",
    "softmax_gradient_ratios": "softmax",
    "weight_vectors": "weight_vectors",
}
_TORCH_FREE = ("matching", "statistics", "theory")

__all__ = [
    "Balance",
    "BatchNormSoftmax",
    "DynamicsRecord",
    "EffectiveLR",
    "Equivalents",
    "Gain",
    "LayerDynamics",
    "LogitMagnitude",
    "MeasuredMatch",
    "NDAdam",
    "NDAdamReference",
    "ProbeResult",
    "Scaled",
    "WeightVectors",
    "WideResNet",
    "batch_norm_softmax",
    "convert_sync_batchnorm",
    "describe_groups",
    "equivalents",
    "fold_batch_norm",
    "logit_penalty",
    "logit_rms",
    "match_alpha_v",
    "match_rate",
    "param_groups",
    "probe",
    "setting_of_optimizer",
    "softmax_gradient",
    "softmax_gradient_limits",
    "softmax_gradient_ratios",
    "weight_vectors",
]


def __getattr__(name: str) -> Any:
    if name in _TORCH_FREE:
        return importlib.import_module(f"ndadam.{name}")
    if name not in _FILE_OF:
        raise AttributeError(f"module 'ndadam' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ndadam.{_FILE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_TORCH_FREE})


class _Package(ModuleType):
    """Keeps ``ndadam.probe`` the function when somebody imports the file of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _FILE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
