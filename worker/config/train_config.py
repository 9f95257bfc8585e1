"""``TrainConfig``: every hyperparameter of a trial on images. Imports neither torch nor numpy.

Unset fields (None) resolve from ``PUBLISHED``, a table by (recipe, optimizer) whose values are the
two recipes of Zhang et al., "Normalized Direction-preserving Adam" (arXiv:1709.04546), and of the
two codes that they used.
"""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from worker.config.parts import (
    BUILT_IN,
    PART_FIELD,
    SHARED,
    Part,
    check_parts,
    load_part,
    part_defaults,
    parts_of,
    registered_part_names,
)
from worker.config.registry import registered_names
from worker.config.trial_config import SEED_IS_FIXED, FieldError, TrialConfig, Value, config_key

__all__ = ["FieldError", "TrainConfig", "config_key", "refuse_disorder"]


Recipe = Literal["paper-tf", "paper-wrn"]
#: The built-in ones; a config may also name one that a package registers.
Optimizer = Literal["sgd", "adam", "adamw", "ndadam"]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=100)]

#: Weights are float32, whose largest number is 3.4e38.
LARGEST = 1e38
# Strict parsing: a string "0.1" instead of a number is a mistake in a spec.
Rate = Annotated[float, Field(strict=True, ge=0, le=LARGEST)]
Fraction = Annotated[float, Field(strict=True, ge=0, lt=1)]
Positive = Annotated[float, Field(strict=True, gt=0, le=LARGEST)]
Count = Annotated[int, Field(strict=True, ge=1)]
#: Longer runs are typing errors: a thousand million steps take a GPU a month at least.
Length = Annotated[int, Field(strict=True, ge=1, le=10**9)]

#: One point of a schedule: (step, factor); the factor multiplies the learning rate.
SchedulePoint = tuple[Annotated[int, Field(strict=True, ge=0, le=10**9)], Rate]
SchedulePoints = Annotated[
    tuple[SchedulePoint, ...], Field(fail_fast=True, min_length=1, max_length=1000)
]
LrSchedule = Literal["cosine", "cosine_epoch", "constant"] | SchedulePoints

#: Fields that each optimizer reads. A field of another optimizer is refused, never ignored.
OPTIMIZER_FIELDS: dict[str, frozenset[str]] = {
    "sgd": frozenset({"lr", "momentum", "nesterov"}),
    "adam": frozenset({"lr", "betas", "eps"}),
    "adamw": frozenset({"lr", "betas", "eps"}),
    "ndadam": frozenset({"alpha_v", "alpha_s", "alpha_s_schedule", "betas", "eps", "follow"}),
}

#: Fields that an own network does not read, and those that data other than images do not.
NETWORK_FIELDS = frozenset(
    {
        "depth",
        "widen_factor",
        "activation",
        "shortcut",
        "init",
        "bn_eps",
        "bn_momentum",
        "bn_scale",
        "gamma_c",
    }
)
IMAGE_FIELDS = frozenset({"input_norm", "crop_pad", "crop_fill", "flip"})
#: Those of all optimizers.
_OF_OPTIMIZERS = frozenset().union(*OPTIMIZER_FIELDS.values(), {"weight_decay", "decay_on"})

_RECIPES: dict[str, dict[str, Any]] = {
    # github.com/tensorflow/models (2016 resnet), as the paper's Table 1 and figures use it.
    "paper-tf": {
        "activation": "leaky_relu",
        "shortcut": "pool_pad",
        "init": "fan_in_normal",
        "bn_eps": 1e-3,
        "bn_momentum": 0.1,
        "bn_scale": "trainable",
        "input_norm": "per_image",
        "crop_pad": 2,
        "crop_fill": "zero",
        "last_batch": "drop",
        "lr_schedule": "cosine",
    },
    # The PyTorch port of the original WRN code, as Table 2 uses it.
    "paper-wrn": {
        "activation": "relu",
        "shortcut": "conv",
        "init": "kaiming_normal",
        "bn_eps": 1e-5,
        "bn_momentum": 0.1,
        "bn_scale": "trainable",
        "input_norm": "channel",
        "crop_pad": 4,
        "crop_fill": "edge",
        "last_batch": "keep",
        "lr_schedule": "cosine_epoch",
    },
}

_ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}

#: (recipe, optimizer) -> values for unset fields.
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("paper-tf", "sgd"): {
        "lr": 0.1,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 1e-3,
        "decay_on": "vectors",
    },
    ("paper-tf", "adam"): {**_ADAM, "weight_decay": 0.0, "decay_on": "vectors"},
    # The paper did not use AdamW; 0.01 is torch's default.
    ("paper-tf", "adamw"): {**_ADAM, "weight_decay": 0.01, "decay_on": "vectors"},
    ("paper-tf", "ndadam"): {
        "alpha_v": 0.05,
        "alpha_s": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "decay_on": "scalars",
    },
    ("paper-wrn", "sgd"): {
        "lr": 0.1,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 5e-4,
        "decay_on": "all",
    },
    ("paper-wrn", "adam"): {**_ADAM, "weight_decay": 0.0, "decay_on": "vectors"},
    ("paper-wrn", "adamw"): {**_ADAM, "weight_decay": 0.01, "decay_on": "vectors"},
    # beta2 0.99 is the authors' PyTorch code; the paper's text says 0.999.
    ("paper-wrn", "ndadam"): {
        "bn_scale": "fixed",
        "alpha_v": 0.04,
        "alpha_s": 0.04,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "weight_decay": 5e-6,
        "decay_on": "scalars",
    },
}

#: Steps or epochs of a full run in the paper, used when neither is given.
_LENGTH = {"paper-tf": {"steps": 80_000}, "paper-wrn": {"epochs": 200}}


def _field_of_a_part(name: str) -> str:
    if not PART_FIELD.fullmatch(name):
        raise FieldError("", f"{name} is not a field here; remove it")
    return name


def _only_fields_of_parts(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False
    schema["patternProperties"] = {f"^{PART_FIELD.pattern}$": {}}


class TrainConfig(TrialConfig):
    """All hyperparameters of one trial of the built-in training: networks, on images or other data.

    Parts that packages register have fields of their own, ``network.hidden``: see ``config.parts``.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_only_fields_of_parts)
    __pydantic_extra__: dict[Annotated[str, AfterValidator(_field_of_a_part)], Value]

    FIXED: ClassVar[Mapping[str, str]] = SEED_IS_FIXED | {
        "split_seed": "every trial of a sweep holds out the same images",
        "validation_fraction": "every trial of a sweep holds out the same images",
        "device": "it is not part of a point",
    }
    LENGTH: ClassVar[str | None] = "steps"

    # What is trained
    dataset: str = Field("cifar10", description="Name of a prepared or registered data set.")
    network: str = Field("wrn", description="Name of a registered network.")
    depth: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        22, description="Layers: 6n + 4 of a wrn, hidden ones of an mlp; at most 1,000."
    )
    widen_factor: Annotated[float, Field(strict=True, gt=0, le=64)] = Field(
        7.5,
        description="Width multiplier k, at most 64: the groups of a wrn have 16k, 32k, 64k "
        "channels, hidden layers of an mlp 64k units.",
    )
    recipe: Recipe = Field("paper-tf", description="Source of the values of unset fields.")
    activation: Literal["leaky_relu", "relu"] | None = Field(
        None, description="Non-linearity; leaky_relu has slope 0.1."
    )
    shortcut: Literal["pool_pad", "conv"] | None = Field(
        None, description="Shortcut at a change of width."
    )
    init: Literal["fan_in_normal", "kaiming_normal"] | None = Field(
        None, description="Initial convolution weights: deviation sqrt(1/fan_in) or sqrt(2/fan_in)."
    )
    bn_eps: Positive | None = Field(None, description="Added to the variance in batch norm.")
    bn_momentum: Annotated[float, Field(strict=True, gt=0, le=1)] | None = Field(
        None, description="Weight of the new batch in BN's running statistics (torch's sense)."
    )
    bn_scale: Literal["trainable", "fixed"] | None = Field(
        None, description="BN scales gamma_i: trained, or fixed at 1."
    )
    input_norm: Literal["per_image", "channel"] | None = Field(
        None, description="Standardise each image by itself, or by the set's channel statistics."
    )
    crop_pad: Annotated[int, Field(strict=True, ge=0, le=32)] | None = Field(
        None, description="Pixels of padding on each side before the random crop."
    )
    crop_fill: Literal["zero", "edge"] | None = Field(None, description="Content of the padding.")
    flip: bool = Field(True, description="Random horizontal flips in training.")
    last_batch: Literal["drop", "keep"] | None = Field(
        None, description="What happens to an epoch's incomplete last batch."
    )
    augmentation: Name | None = Field(
        None, description="Name of a registered augmentation of whole batches; none = off."
    )
    loss: Name | None = Field(
        None, description="Name of a registered loss; none = that of the data: cross-entropy."
    )
    metrics: (
        Annotated[tuple[Name, ...], Field(fail_fast=True, min_length=1, max_length=20)] | None
    ) = Field(
        None, description="Registered metrics to measure on held-out data, beside the errors."
    )

    # How it is trained
    optimizer: Name = Field(
        "ndadam",
        description="Which optimizer: a built-in one, or one that a package registers.",
        examples=list(OPTIMIZER_FIELDS),
    )
    lr: Rate | None = Field(None, description="Learning rate alpha_0 of sgd, adam, adamw.")
    momentum: Fraction | None = Field(None, description="Momentum of sgd.")
    nesterov: bool | None = Field(None, description="Nesterov's form of sgd's momentum.")
    alpha_v: Rate | None = Field(
        None, description="ND-Adam's learning rate of weight vectors, per step on the unit sphere."
    )
    alpha_s: Rate | None = Field(None, description="ND-Adam's learning rate of scalars.")
    betas: tuple[Fraction, Fraction] | None = Field(
        None, description="Decay rates of the running averages of adam, adamw, ndadam."
    )
    eps: Rate | None = Field(None, description="Added to the root of the second moment.")
    weight_decay: Rate | None = Field(
        None, description="lambda: L2 in the gradient; decoupled for adamw."
    )
    decay_on: Literal["vectors", "scalars", "all"] | None = Field(
        None, description="Parameters to which weight_decay applies."
    )
    gamma_c: Positive | None = Field(None, description="BN-Softmax scale gamma_C; none = off.")
    lambda_c: Positive | None = Field(
        None, description="L2 penalty lambda_C on the logits that enter the softmax; none = off."
    )
    batch_size: Count = Field(128, description="Images per step.")
    steps: Length | None = Field(None, description="Length of the run in optimizer steps.")
    epochs: Length | None = Field(None, description="Length of the run in passes over the data.")
    lr_schedule: LrSchedule | None = Field(
        None,
        description="Factor on the learning rate over time: a name, or (step, factor) points "
        "with straight lines between them.",
    )
    warmup_steps: Annotated[int, Field(strict=True, ge=0)] = Field(
        0, description="Steps over which the factor rises from 0, on top of lr_schedule."
    )
    alpha_s_schedule: LrSchedule | None = Field(
        None, description="ND-Adam: a separate schedule for alpha_s; none = lr_schedule."
    )
    follow: SchedulePoints | None = Field(
        None,
        description="ND-Adam: effective learning rate to follow, (step, value) points with "
        "straight lines between; alpha_v is then controlled by measurements during training.",
    )

    # Where and how exactly
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = Field(
        0, description="Seed of initial weights, data order and augmentation."
    )
    split_seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = Field(
        0, description="Seed of the validation split; the same for a whole sweep."
    )
    # 5,000 of CIFAR's 50,000, as in He et al. 2016.
    validation_fraction: Fraction = Field(
        0.1, description="Part of the training images held out to choose hyperparameters."
    )
    test_evaluation: Literal["end", "curve"] = Field(
        "end", description="Read the test set once at the end, or at every report."
    )
    report_every: Count | None = Field(
        None, description="Steps between reports; none = once per epoch."
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32", description="Arithmetic of the network."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device to train on. Not part of the stored config."
    )
    deterministic: bool = Field(False, description="Bitwise equal runs on the same machine.")

    @model_validator(mode="after")
    def _names_are_registered(self) -> Self:
        known = registered_names("networks")
        if self.network not in known:
            load_part("network", self.network)  # looks again for packages
        if self.optimizer not in OPTIMIZER_FIELDS:
            refuse_unknown_optimizer(self.optimizer)
        if self.metrics is not None and len(set(self.metrics)) < len(self.metrics):
            raise FieldError(
                "metrics", f"metrics must name each metric once, got {list(self.metrics)}"
            )
        return self

    @model_validator(mode="after")
    def _parts_take_their_fields(self) -> Self:
        parts = self.parts()
        if parts or self.__pydantic_extra__:
            check_parts(self, parts.values())
            for name in sorted(self.unused() & self.model_fields_set):
                if getattr(self, name) is not None:
                    owner = _owner(name, self)
                    raise FieldError(
                        name,
                        f"{name} is not used by {owner}; remove it (got {getattr(self, name)!r})",
                    )
        return self

    @model_validator(mode="after")
    def _network_can_be_built(self) -> Self:
        if self.network == "wrn":
            if self.depth < 10 or (self.depth - 4) % 6:
                raise FieldError("depth", f"depth must be 6n + 4 and at least 10, got {self.depth}")
            if not float(16 * self.widen_factor).is_integer():
                raise FieldError(
                    "widen_factor",
                    f"widen_factor must make 16 x widen_factor whole, got {self.widen_factor}",
                )
        if self.network == "mlp":
            if self.shortcut is not None:
                raise FieldError(
                    "shortcut", f"an mlp has no shortcuts; remove shortcut (got {self.shortcut!r})"
                )
            if round(64 * self.widen_factor) < 1:
                raise FieldError(
                    "widen_factor",
                    "widen_factor must round 64 x widen_factor, the units of an mlp's hidden "
                    f"layers, to at least 1; got {self.widen_factor}",
                )
        return self

    @model_validator(mode="after")
    def _optimizer_uses_what_is_set(self) -> Self:
        if self.optimizer not in OPTIMIZER_FIELDS:
            return self
        used = OPTIMIZER_FIELDS[self.optimizer]
        every = frozenset().union(*OPTIMIZER_FIELDS.values())
        for name in sorted(every - used):
            if getattr(self, name) is not None:
                raise FieldError(
                    name,
                    f"{name} is not used by optimizer {self.optimizer!r}; remove it "
                    f"(got {getattr(self, name)!r})",
                )
        if self.optimizer == "ndadam" and self.decay_on in ("vectors", "all"):
            raise FieldError(
                "decay_on",
                "decay_on must be 'scalars' for ndadam: its weight vectors have unit norm, so "
                f"decay on them does nothing; got {self.decay_on!r}",
            )
        if self.nesterov and self.momentum == 0:
            raise FieldError("nesterov", "nesterov needs momentum > 0, got momentum = 0.0")
        return self

    @model_validator(mode="after")
    def _rates_fit_into_float32(self) -> Self:
        if self.optimizer not in OPTIMIZER_FIELDS:
            return self
        published = PUBLISHED[self.recipe, self.optimizer]
        for name in sorted(OPTIMIZER_FIELDS[self.optimizer] & {"lr", "alpha_v", "alpha_s"}):
            own = self.alpha_s_schedule if name == "alpha_s" else None
            points = own or self.lr_schedule
            factor = max(y for _, y in points) if isinstance(points, tuple) else 1.0
            given = getattr(self, name)
            rate = published[name] if given is None else given
            # Bias correction makes Adam's first steps longer.
            beta1 = (self.betas or published.get("betas", (0.0, 0.0)))[0]
            if rate * factor / (1 - beta1) > LARGEST:
                raise FieldError(
                    name,
                    f"{name} x the largest factor of its schedule / (1 - beta1) must be at most "
                    f"{LARGEST:g}; got {rate:g} x {factor:g} / {1 - beta1:g}",
                )
        return self

    @model_validator(mode="after")
    def _device_has_the_precision(self) -> Self:
        if self.device == "cpu" and self.precision == "tf32":
            raise FieldError(
                "precision",
                "precision must be fp32 or bf16 on a CPU, which has no TF32; got 'tf32' with "
                "device 'cpu'",
            )
        return self

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise FieldError(
                "steps",
                f"set steps or epochs, not both; got steps = {self.steps} and "
                f"epochs = {self.epochs}",
            )
        for name in ("lr_schedule", "alpha_s_schedule", "follow"):
            points = getattr(self, name)
            if isinstance(points, tuple):
                refuse_disorder(name, points)
        return self

    @model_validator(mode="after")
    def _curve_can_be_followed(self) -> Self:
        if self.follow is None:
            return self
        if self.alpha_v is not None:
            raise FieldError(
                "alpha_v",
                f"alpha_v is what follow sets while training; remove one of them (got "
                f"{self.alpha_v})",
            )
        values = [value for _, value in self.follow]
        if not 0 < max(values) < 1:
            raise FieldError(
                "follow",
                "follow needs effective learning rates, fractions of the weights' length per step: "
                f"below 1 and not all 0; got {min(values):g} to {max(values):g}",
            )
        return self

    def parts(self) -> dict[str, Part]:
        """Load its registered parts: by field, metrics by their key. Raises FieldError."""
        return parts_of(self)

    @classmethod
    def has_field(cls, name: str) -> bool:
        return name in cls.model_fields or PART_FIELD.fullmatch(name) is not None

    def unused(self) -> frozenset[str]:
        """Return the fields that mean nothing because of a part that does not read them."""
        parts = self.parts()
        found: frozenset[str] = frozenset()
        network, data, optimizer = map(parts.get, ("network", "dataset", "optimizer"))
        if network is not None and not network.takes_whole_config:
            found |= NETWORK_FIELDS - network.fields().keys()
        if data is not None and not data.declared.get("images"):
            found |= IMAGE_FIELDS
        if optimizer is not None:
            declared = SHARED["optimizer"] & optimizer.fields().keys()
            if "weight_decay" in declared:
                declared |= {"decay_on"}
            found |= _OF_OPTIMIZERS - declared
        return found

    def resolved(self) -> "TrainConfig":
        """Fill every unset field that this run uses: from its parts, then from ``PUBLISHED``."""
        defaults = {
            **_RECIPES[self.recipe],
            **PUBLISHED.get((self.recipe, self.optimizer), {"decay_on": "all"}),
        }
        if self.follow is not None:
            del defaults["alpha_v"]
        if self.network == "mlp":
            del defaults["shortcut"]
        if self.steps is None and self.epochs is None:
            defaults |= _LENGTH[self.recipe]
        parts = self.parts()
        unused = self.unused() if parts else frozenset()
        missing = {
            k: v for k, v in defaults.items() if k not in unused and getattr(self, k) is None
        }
        if parts:
            missing |= part_defaults(self, parts.values())
        return self.model_validate(self.model_dump(exclude=set(unused)) | missing)

    def stored(self) -> dict[str, Any]:
        """The resolved config as JSON values, without ``device``: what is stored, shown, hashed."""
        config = self.resolved()
        # Fields added later are left out if unset, so that the keys of older runs stay the same.
        later = ("follow", "augmentation", "loss", "metrics")
        unset = {name for name in later if getattr(config, name) is None}
        return config.model_dump(mode="json", exclude={"device", *unset, *config.unused()})


def refuse_unknown_optimizer(name: str) -> None:
    """Raise FieldError unless an optimizer is built in or registered; imports its package."""
    if name in OPTIMIZER_FIELDS:
        return
    registered = registered_part_names("optimizer")
    if name not in registered:
        known = [repr(one) for one in (*BUILT_IN["optimizer"], *registered)]
        raise FieldError(
            "optimizer",
            f"optimizer should be {', '.join(known[:-1])} or {known[-1]}, got {name!r}; if a "
            "package registers it, install the package where the service runs",
        )
    load_part("optimizer", name)


def _owner(name: str, config: TrainConfig) -> str:
    """Return the part that does not read a field, for a sentence."""
    for fields, field in ((NETWORK_FIELDS, "network"), (IMAGE_FIELDS, "dataset")):
        if name in fields:
            return f"{field} {getattr(config, field)!r}"
    return f"optimizer {config.optimizer!r}"


def refuse_disorder(field: str, points: SchedulePoints) -> None:
    """Raise FieldError unless the steps of a schedule's points increase."""
    steps = [step for step, _ in points]
    if any(after <= before for before, after in itertools.pairwise(steps)):
        raise FieldError(
            field, f"{field} needs steps that increase, got {steps[:20]}; put its points in order"
        )
