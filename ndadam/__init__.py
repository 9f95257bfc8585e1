"""ND-Adam, the networks and the softmax of its paper, and the effective learning rate.

Zhang, Ma, Li and Wu, "Normalized Direction-preserving Adam", arXiv:1709.04546. Names load on first
use (PEP 562), so ``ndadam.theory``, ``ndadam.statistics`` and ``ndadam.matching`` can be used
without loading torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ndadam.dynamics.effective_lr import EffectiveLR
    from ndadam.dynamics.logit_magnitude import LogitMagnitude, logit_rms
    from ndadam.dynamics.records import Balance, DynamicsRecord, Gain, LayerDynamics
    from ndadam.invariance.probe import ProbeResult, probe
    from ndadam.matching.answer import MeasuredMatch
    from ndadam.matching.equivalents import Equivalents, equivalents
    from ndadam.matching.match import match_alpha_v, match_rate
    from ndadam.matching.torch_settings import setting_of_optimizer
    from ndadam.networks.batch_norm_softmax import (
        BatchNormSoftmax,
        batch_norm_softmax,
        logit_penalty,
        softmax_gradient,
        softmax_gradient_limits,
        softmax_gradient_ratios,
    )
    from ndadam.networks.fixed_scale_norm import convert_sync_batchnorm
    from ndadam.networks.wide_resnet import WideResNet
    from ndadam.optimizer.model_ndadam import ModelNDAdam
    from ndadam.optimizer.ndadam import NDAdam
    from ndadam.optimizer.param_groups import describe_groups, param_groups, per_group
    from ndadam.optimizer.prepare import Prepared, prepare
    from ndadam.optimizer.reference import NDAdamReference
    from ndadam.vectors.scaled import Scaled, fold_batch_norm
    from ndadam.vectors.weight_vectors import WeightVectors, weight_vectors

_MODULE_OF = {
    "Balance": "dynamics.records",
    "BatchNormSoftmax": "networks.batch_norm_softmax",
    "DynamicsRecord": "dynamics.records",
    "EffectiveLR": "dynamics.effective_lr",
    "Equivalents": "matching.equivalents",
    "Gain": "dynamics.records",
    "LayerDynamics": "dynamics.records",
    "LogitMagnitude": "dynamics.logit_magnitude",
    "MeasuredMatch": "matching.answer",
    "ModelNDAdam": "optimizer.model_ndadam",
    "NDAdam": "optimizer.ndadam",
    "NDAdamReference": "optimizer.reference",
    "Prepared": "optimizer.prepare",
    "ProbeResult": "invariance.probe",
    "Scaled": "vectors.scaled",
    "WeightVectors": "vectors.weight_vectors",
    "WideResNet": "networks.wide_resnet",
    "batch_norm_softmax": "networks.batch_norm_softmax",
    "convert_sync_batchnorm": "networks.fixed_scale_norm",
    "describe_groups": "optimizer.param_groups",
    "equivalents": "matching.equivalents",
    "fold_batch_norm": "vectors.scaled",
    "logit_penalty": "networks.batch_norm_softmax",
    "logit_rms": "dynamics.logit_magnitude",
    "match_alpha_v": "matching.match",
    "match_rate": "matching.match",
    "param_groups": "optimizer.param_groups",
    "per_group": "optimizer.param_groups",
    "prepare": "optimizer.prepare",
    "probe": "invariance.probe",
    "setting_of_optimizer": "matching.torch_settings",
    "softmax_gradient": "networks.batch_norm_softmax",
    "softmax_gradient_limits": "networks.batch_norm_softmax",
    "softmax_gradient_ratios": "networks.batch_norm_softmax",
    "weight_vectors": "vectors.weight_vectors",
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
    "ModelNDAdam",
    "NDAdam",
    "NDAdamReference",
    "Prepared",
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
    "per_group",
    "prepare",
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
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ndadam' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ndadam.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_TORCH_FREE})
