"""Whether a normalisation follows a layer, as far as the structure of a model tells.

Nothing is computed: the forward pass is traced symbolically, on a copy that shares the weights, and
what each layer gives is followed to the normalisation, or to the first thing that a factor on one
channel does not pass. ``probe`` measures the same on a batch, also where a model cannot be traced.
"""

import copy
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, fx, nn

from ndadam.vectors.weight_vectors import WeightVectors

#: What follows a layer; the last one says that only a common factor on all channels is undone.
Follows = Literal["does not", "not known", "jointly", "follows"]
#: Of several readers of one output the first in this order counts.
_ORDER: tuple[Follows, ...] = ("does not", "not known", "jointly", "follows")

_PER_CHANNEL = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_OVER_CHANNELS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
#: A positive factor on a channel comes out of these as it went in.
_PASSING = (
    nn.Identity,
    nn.Flatten,
    nn.Upsample,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.padding._ConstantPadNd,
    nn.modules.padding._ReflectionPadNd,
    nn.modules.padding._ReplicationPadNd,
)
_OF_MODULES: dict[Any, str] = {
    _PER_CHANNEL: "follows",
    _OVER_CHANNELS: "jointly",
    (nn.ReLU, nn.LeakyReLU): "bends a bias",
    _PASSING: "passes",
}
_OF_FUNCTIONS = {
    **dict.fromkeys(("batch_norm", "instance_norm"), "follows"),
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm"), "jointly"),
    **dict.fromkeys(("relu", "relu_", "leaky_relu", "leaky_relu_"), "bends a bias"),
    **dict.fromkeys(("size", "dim", "shape", "getattr"), "reads the shape"),
    **dict.fromkeys(
        "dropout flatten view reshape permute transpose contiguous interpolate mean".split(),
        "passes",
    ),
    **{f"{kind}_pool{n}d": "passes" for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": "passes" for kind in ("avg", "max") for n in (1, 2, 3)},
    **dict.fromkeys(
        "gelu silu sigmoid tanh softmax log_softmax softplus elu selu mish hardswish hardsigmoid "
        "scaled_dot_product_attention cross_entropy linear conv1d conv2d conv3d matmul".split(),
        "does not",
    ),
}
#: Convolutions of other packages that standardise their own weights.
_STANDARDISED = {
    ("timm", name)
    for name in ("StdConv2d", "StdConv2dSame", "ScaledStdConv2d", "ScaledStdConv2dSame")
}


def structure(model: nn.Module, vectors: list[WeightVectors]) -> dict[Tensor, tuple[Follows, str]]:
    """What follows each parameter with weight vectors, and what was met: a name, or "".

    "not known" where the model cannot be traced, and behind sums.
    """
    held = {v.parameter for v in vectors}
    found: dict[Tensor, tuple[Follows, str]] = dict.fromkeys(held, ("not known", ""))
    places = {p: m for m in model.modules() for p in m.parameters(recurse=False) if p in held}
    try:
        modules, graph = _traced(model, held)
    except Exception:  # whatever somebody's forward pass does with what stands for a tensor
        graph, modules = fx.Graph(), {}
    met: dict[Tensor, list[tuple[Follows, str]]] = {}
    for node in graph.nodes:
        if node.op != "call_module":
            continue
        for p in modules[node.target].parameters(recurse=False):
            if p in held and isinstance(modules[node.target], _FOLLOWED):
                met.setdefault(p, []).append(_followed(node, modules))
    found.update({p: min(each, key=_rank) for p, each in met.items()})
    for p, module in places.items():
        if _is_standardised(module):
            found[p] = "follows", "standardised weights"
    return found


def batch_norms_behind(model: nn.Module) -> dict[Tensor, nn.Module]:
    """The batch normalisation behind a weight, where it alone reads the layer, and only it.

    Of those that have a scale and running statistics, one for each of the layer's outputs.
    """
    held = set(model.parameters())
    try:
        modules, graph = _traced(model, held)
    except Exception:
        return {}
    own = dict(model.named_modules())
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    found: dict[Tensor, nn.Module] = {}
    for node in graph.nodes:
        readers = list(node.users)
        if node.op != "call_module" or len(readers) != 1 or readers[0].op != "call_module":
            continue
        layer, norm = modules[str(node.target)], modules[str(readers[0].target)]
        is_once = calls[str(node.target)] == calls[str(readers[0].target)] == 1
        weight = dict(layer.named_parameters(recurse=False)).get("weight")
        if is_once and isinstance(layer, _FOLLOWED) and weight is not None and _can_take(norm):
            dim = 1 if getattr(layer, "transposed", False) else 0
            if norm.num_features == weight.shape[dim]:
                found[weight] = own[str(readers[0].target)]
    return found


def _can_take(norm: nn.Module) -> bool:
    is_norm = isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.affine
    return is_norm and norm.running_mean is not None and norm.running_var is not None


_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_FOLLOWED = (nn.Linear, nn.Bilinear, *_CONVOLUTIONS)


def _rank(found: tuple[Follows, str]) -> int:
    return _ORDER.index(found[0])


def _is_standardised(module: nn.Module) -> bool:
    return any(
        (cls.__module__.partition(".")[0], cls.__name__) in _STANDARDISED
        for cls in type(module).__mro__
    )


def _traced(model: nn.Module, held: set[Any]) -> tuple[Mapping[str, nn.Module], fx.Graph]:
    """The graph of a copy without hooks, which shares the weights, and its modules by name."""
    shared = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, {id(t): t for t in shared})
    modules = dict(twin.named_modules())
    for module in modules.values():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return modules, _Tracer(held).trace(twin)


class _Tracer(fx.Tracer):
    """Does not look into layers and normalisations, torch's or subclasses of them."""

    def __init__(self, held: set[Any]) -> None:
        super().__init__()
        self._held = held

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_layer = isinstance(m, (*_FOLLOWED, nn.Embedding))
        if is_layer and any(p in self._held for p in m.parameters(recurse=False)):
            return True
        if isinstance(m, (*_PER_CHANNEL, *_OVER_CHANNELS)):  # timm's have an activation inside
            return True
        return super().is_leaf_module(m, module_qualified_name)


def _followed(node: fx.Node, modules: Mapping[str, nn.Module]) -> tuple[Follows, str]:
    """The worst of what the readers of one output do with a factor on a channel of it."""
    has_bias = getattr(modules[str(node.target)], "bias", None) is not None
    outcomes: list[tuple[Follows, str]] = []
    waiting = [(user, False) for user in node.users]
    seen = set()
    while waiting:
        user, is_bent = waiting.pop()
        if user in seen:
            continue
        seen.add(user)
        found, name = _of_reader(user, modules)
        if found == "passes" or found == "bends a bias":
            # Behind a bias and a bend such as ReLU's the factor is none any more.
            bends = has_bias and found == "bends a bias"
            waiting += [(reader, is_bent or bends) for reader in user.users]
        elif (found == "jointly" and has_bias) or (found == "follows" and is_bent):
            outcomes.append(("not known", "bias"))
        elif found != "reads the shape":
            outcomes.append((found, name))
    return min(outcomes, key=_rank, default=("not known", ""))


def _of_reader(user: fx.Node, modules: Mapping[str, nn.Module]) -> tuple[Any, str]:
    """What one reader does with the factor, and its name."""
    if user.op == "output":
        return "does not", "output"
    if user.op == "call_module":
        name = str(user.target)
        return _of_module(modules[name]), name
    name = str(getattr(user.target, "__name__", user.target))
    return _OF_FUNCTIONS.get(name, "not known"), name


def _of_module(module: nn.Module) -> str:
    for kinds, found in _OF_MODULES.items():
        if isinstance(module, kinds):
            return found
    return "passes" if _is_depthwise(module) else "does not"


def _is_depthwise(module: nn.Module) -> bool:
    is_one = isinstance(module, nn.modules.conv._ConvNd) and module.bias is None
    return is_one and module.groups == module.in_channels == module.out_channels
