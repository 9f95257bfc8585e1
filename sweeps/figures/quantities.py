"""How figures and pages write each field and metric: the paper's symbol, its name and its unit.

Symbols use only ``<sup>`` and ``<sub>``, which a page and plotly both understand; ``plain`` writes
them as text.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.config.parts import PART_FIELD
from worker.config.training import FIXED_METRICS, IMAGES


@dataclass(frozen=True)
class Quantity:
    """The words for one field or metric."""

    #: As in the configuration, the API and the exported files.
    key: str
    #: The paper's symbol; "" = it has none.
    symbol: str
    name: str
    #: "" for a pure number.
    unit: str = ""
    #: Stored as a fraction 0..1, shown in percent.
    is_fraction: bool = False
    #: The sweep declares it: its unit stands behind each value, that of others at axes alone.
    is_declared: bool = False

    @property
    def short(self) -> str:
        """Heading of a table column."""
        return self.symbol or self.name

    @property
    def axis(self) -> str:
        """Title of a plot's axis: name, symbol and unit."""
        title = f"{self.name} {self.symbol}".strip()
        return f"{title} ({self.unit_markup})" if self.unit else title

    @property
    def value_unit(self) -> str:
        """What a page, a report and a table write behind a value: text, "" for nothing."""
        return self.unit if self.is_fraction or self.is_declared else ""

    @property
    def unit_markup(self) -> str:
        """The unit for texts of figures: whatever people declared is shown as it is written."""
        return markup(self.unit)

    def shown(self, value: float) -> float:
        """The number as a page shows it: percent for a fraction, else itself."""
        return 100.0 * value if self.is_fraction else value


_QUANTITIES = (
    Quantity("alpha_v", "α<sup>v</sup>", "learning rate of weight vectors", "per step"),
    Quantity("alpha_s", "α<sup>s</sup>", "learning rate of scalars", "per step"),
    Quantity("gamma_c", "γ<sub>C</sub>", "BN-Softmax scale"),
    Quantity("lambda_c", "λ<sub>C</sub>", "L2 on the logits"),
    Quantity("lr", "α<sub>0</sub>", "learning rate", "per step"),
    Quantity("momentum", "μ", "momentum"),
    Quantity("weight_decay", "λ", "weight decay"),
    Quantity("betas", "β<sub>1</sub>, β<sub>2</sub>", "decay rates"),
    Quantity("eps", "ε", "epsilon"),
    Quantity("batch_size", "", "batch size", "images"),
    Quantity("steps", "", "length", "steps"),
    Quantity("epochs", "", "length", "epochs"),
    Quantity("warmup_steps", "", "warm-up", "steps"),
    Quantity("depth", "", "depth", "layers"),
    Quantity("widen_factor", "k", "width multiplier"),
    Quantity("bn_scale", "", "BN scales"),
    Quantity("bn_eps", "", "BN ε"),
    Quantity("bn_momentum", "", "BN momentum"),
    Quantity("lr_schedule", "", "learning-rate schedule"),
    Quantity("step", "t", "step"),
    Quantity("train_loss", "", "training loss", "nats"),
    Quantity("train_error", "", "training error", "%", True),
    Quantity("validation_error", "", "validation error", "%", True),
    Quantity("test_error", "", "test error", "%", True),
    Quantity("logit_rms", "", "RMS of the logits"),
    Quantity("images_per_second", "", "speed", "images/s"),
    Quantity("effective_lr", "‖Δw‖/‖w‖", "effective learning rate", "per step"),
    Quantity("angular_update", "", "rotation", "rad per step"),
    Quantity("weight_norm", "‖w‖", "weight norm"),
    Quantity("projection_ratio", "", "projection ratio"),
    Quantity("gain", "A", "gain"),
    Quantity("kappa", "κ", "departure from scale invariance"),
    Quantity("balance_residual", "", "residual of the balance law"),
)
#: Quantities of the weight dynamics that are reported for each layer, as ``QUANTITY/LAYER``.
LAYER_QUANTITIES = ("effective_lr", "angular_update", "weight_norm", "projection_ratio")
_OF_LAYERS = frozenset({*LAYER_QUANTITIES, "gain", "kappa"})
_BY_KEY = {quantity.key: quantity for quantity in _QUANTITIES}


#: Names that mean the same whatever is trained.
_OF_EVERY_TRAINING = frozenset({"step", *FIXED_METRICS})


def quantity(
    key: str | Quantity,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    training: str = IMAGES,
) -> Quantity:
    """Look a field or metric up; ``effective_lr/conv5`` names its layer after the quantity.

    A metric that the sweep declares (``Sweep.metrics``) has the unit that it declares, unless its
    name has a fixed meaning. A key that is not known is shown under its own name, without a unit.
    So is a field or metric of another training than images that is called like one of images.
    A ``Quantity`` was looked up already and is returned: who knows the sweep looks up once, and
    passes it on in place of the key.
    """
    if isinstance(key, Quantity):
        return key
    is_known = training == IMAGES or key in _OF_EVERY_TRAINING
    known = _BY_KEY.get(key) if is_known else None
    own = (declared or {}).get(key)
    if own is not None and key not in FIXED_METRICS:
        unit = str(own.get("unit") or "")
        return Quantity(key, "", key.replace("_", " "), unit, is_declared=True)
    if known is not None:
        return known
    if PART_FIELD.fullmatch(key):
        return Quantity(key, "", _of_part(key))
    stem, slash, layer = key.partition("/")
    if slash and stem in _BY_KEY:
        whole = _BY_KEY[stem]
        return Quantity(key, whole.symbol, f"{whole.name}, {layer}", whole.unit, whole.is_fraction)
    return Quantity(key, "", key.replace("_", " "))


_GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon eps eta theta kappa lambda mu nu rho sigma tau phi".split(),
        "αβγδεεηθκλμνρστφ",
        strict=True,
    )
)


def _of_part(key: str) -> str:
    """``loss.gamma`` as "loss γ", ``optimizer.beta3`` as "optimizer β3": owner and symbol."""
    owner, _, field = key.partition(".")
    stem = field.rstrip("0123456789_")
    letter = _GREEK.get(stem.lower())
    if letter is None:
        return f"{owner} {field.replace('_', ' ')}"
    return f"{owner} {letter}{field[len(stem) :].strip('_')}"


def is_of_layer(name: str) -> bool:
    """Whether a metric is one of a layer's weight dynamics: ``effective_lr/conv5``."""
    stem, slash, _ = name.partition("/")
    return bool(slash) and stem in _OF_LAYERS


def layer_order(layer: str) -> tuple[str, int]:
    """Sort key that puts conv2 before conv10."""
    stem = layer.rstrip("0123456789")
    return stem, int(layer[len(stem) :] or 0)


def markup(text: str) -> str:
    """Text of people for a figure, in which it is neither a tag nor part of a hover template.

    ``plain`` takes it back.
    """
    return html.escape(text, quote=False).replace("{", "&#123;")


_MARKS = {
    "<sup>v</sup>": "ᵛ",
    "<sup>s</sup>": "ˢ",
    "<sub>C</sub>": "_C",
    "<sub>0</sub>": "₀",
    "<sub>1</sub>": "₁",
    "<sub>2</sub>": "₂",
}


def plain(text: object) -> str:
    """Markup as text: symbols keep their indices, tags go."""
    found = str(text)
    for mark, letter in _MARKS.items():
        found = found.replace(mark, letter)
    return html.unescape(re.sub(r"<[^>]+>", "", found))
