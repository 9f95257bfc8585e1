"""Which parameters of which layers hold weight vectors, along which dimension, and why.

Torch's layers are known by their classes; those of other packages by package and class name, so
that none of these has to be installed. A rule of a class holds for its subclasses too.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from ndadam.cuda import has_values
from ndadam.vectors.scaled import Scaled, VectorScale


@dataclass(frozen=True)
class Decision:
    """What a rule says of one parameter.

    Attributes:
        vector_dim: Dimension that indexes the weight vectors, None for scalars.
        kind: Of the layer, from which its name is made ("conv"); None for scalars.
        reason: Why, for people.
        is_covered: Whether there was a rule at all.
    """

    vector_dim: int | None
    kind: str | None
    reason: str
    is_covered: bool = True


@dataclass(frozen=True)
class _Rule:
    """Parameters of one kind of module that hold weight vectors along ``vector_dim``."""

    kind: str
    modules: tuple[type[nn.Module], ...]
    holds_vectors: Callable[[str], bool]
    vector_dim: int
    reason: str


def _is_weight(name: str) -> bool:
    return name == "weight"


def _is_packed_weight(name: str) -> bool:
    # weight_ih_l0_reverse of torch's recurrent layers, weight_ih of its cells; what a hook such as
    # torch.nn.utils.weight_norm computes one of these from ends in _g, _v or _orig.
    return re.fullmatch(r"weight_(ih|hh|hr)(_l\d+(_reverse)?)?", name) is not None


def _is_projection(name: str) -> bool:
    return name.endswith("proj_weight")


_RULES = (
    _Rule(
        "conv",
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        _is_weight,
        1,
        "filters of a transposed convolution (in, out / groups, …)",
    ),
    _Rule("conv", (nn.Conv1d, nn.Conv2d, nn.Conv3d), _is_weight, 0, "filters of a convolution"),
    _Rule("linear", (nn.Linear, nn.Bilinear), _is_weight, 0, "rows of a linear layer"),
    _Rule(
        "embedding", (nn.Embedding, nn.EmbeddingBag), _is_weight, 0, "one vector per embedded item"
    ),
    _Rule("attention", (nn.MultiheadAttention,), _is_projection, 0, "rows of packed projections"),
    _Rule(
        "recurrent",
        (nn.RNNBase, nn.RNNCellBase),
        _is_packed_weight,
        0,
        "rows of packed gate weights",
    ),
)

_GAIN = Decision(None, None, "gain of a convolution with standardised weights")

#: (package, class, parameter) of layers that are no subclasses of torch's, or have more parameters.
_OF_PACKAGES = {
    ("transformers", "Conv1D", "weight"): Decision(
        1, "linear", "columns of a linear layer that keeps its weight as (in, out)"
    ),
    ("torchvision", "DeformConv2d", "weight"): Decision(0, "conv", "filters of a convolution"),
    ("timm", "ScaledStdConv2d", "gain"): _GAIN,
    ("timm", "ScaledStdConv2dSame", "gain"): _GAIN,
    ("timm", "CondConv2d", "weight"): Decision(
        None, None, "filters of several experts, each expert's in one row", is_covered=False
    ),
    ("timm", "CondConv2d", "bias"): Decision(None, None, "bias of CondConv2d"),
    ("peft", "DoraLinearLayer", "weight"): Decision(None, None, "magnitudes of DoRA"),
}

# The names that peft, loralib, torchtune and diffusers give to the factors of a low-rank product.
# The factor that starts at zero is B (up), for embeddings A.
_STARTS_AT_ZERO = re.compile(r"(^|\.)(\w*lora_([Bb]|up|embedding_A)|hira_(B|embedding_A))(\.|$)")
_OTHER_FACTOR = re.compile(r"(^|\.)(\w*lora_([Aa]|down|embedding_B)|hira_(A|embedding_B))(\.|$)")
_ZERO_FACTOR = Decision(
    None, None, "factor of a low-rank product that starts at zero: its size is what it learns"
)

# By the last names of a parameter or of the embedding that holds it.
_POSITIONS = re.compile(
    r"(abs(olute)?_)?pos(ition(s|al)?)?_?(emb(ed(ding)?s?)?)(_table)?_?\d*|wpe|embed_positions"
)
_RELATIVE_BIAS = re.compile(
    r"(relative|rel)_(position|attention|pos)_bias(_table)?|attention_biases"
)


def decide(
    module: nn.Module, local: str, name: str, parameter: nn.Parameter, *, is_zero_factor: bool
) -> Decision:
    """What the rules say of ``parameter``, which ``module`` holds as ``local``.

    ``name`` is its full name; ``is_zero_factor`` what ``zero_factors`` found.
    """
    if is_zero_factor or (_STARTS_AT_ZERO.search(name) and not _is_bias(local)):
        return _ZERO_FACTOR
    last = name.removesuffix(".weight").rpartition(".")[2]
    if _RELATIVE_BIAS.fullmatch(last):
        return Decision(None, None, "biases that attention adds, by relative position")
    for rule in _RULES:
        if isinstance(module, rule.modules) and rule.holds_vectors(local):
            return Decision(rule.vector_dim, rule.kind, rule.reason)
    for cls in type(module).__mro__:
        known = _OF_PACKAGES.get((cls.__module__.partition(".")[0], cls.__name__, local))
        if known is not None:
            return known
    if _OTHER_FACTOR.search(name):
        return Decision(0, "linear", "rows of a factor of a low-rank product")
    dims = parameter.dim()
    if _POSITIONS.fullmatch(last) and dims >= 2 and all(n == 1 for n in parameter.shape[:-2]):
        return Decision(dims - 2, "embedding", "one vector per position")
    return _scalar(module, local)


def _is_bias(local: str) -> bool:
    return local.startswith("bias") or local.endswith("_bias")  # in_proj_bias of attention


def _is_of_a_hook(module: nn.Module, local: str) -> bool:
    """Whether it is what weight_norm, spectral_norm or pruning keeps in place of a weight."""
    found = re.fullmatch(r"(.+)_(g|v|orig)", local)
    return found is not None and hasattr(module, found[1])


def _scalar(module: nn.Module, local: str) -> Decision:
    kind = type(module).__name__
    if _is_bias(local):
        return Decision(None, None, f"bias of {kind}")
    if isinstance(module, ParametrizationList):
        return Decision(None, None, "a parametrisation computes the weight from it")
    if _is_of_a_hook(module, local):
        return Decision(None, None, "a hook computes the weight from it")
    if isinstance(module, _NORMS):
        return Decision(None, None, f"scale of {kind}")
    return Decision(None, None, f"no rule for {kind}.{local}", is_covered=False)


_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    Scaled,
    VectorScale,
)


def zero_factors(model: nn.Module) -> set[Tensor]:
    """Weights that are all zero, of two linear layers in sequence that make a low-rank product.

    Both without bias, the second reading what the first gives, which is narrower than its input and
    than the output: low-rank adaptation, whatever its names.
    """
    found: set[Tensor] = set()
    for parent in model.modules():
        children = [c for c in parent.children() if not isinstance(c, nn.Identity | nn.Dropout)]
        for first, second in pairwise(children):
            if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
                weights = [first.weight, second.weight] if _are_factors(first, second) else []
                found.update(w for w in weights if has_values(w) and not bool(w.any()))
    return found


def _are_factors(first: nn.Linear, second: nn.Linear) -> bool:
    rank = first.out_features
    return (
        first.bias is None
        and second.bias is None
        and rank == second.in_features
        and rank < min(first.in_features, second.out_features)
    )
