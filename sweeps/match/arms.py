"""The two sides of a match: an optimizer with its own fields, and what theory knows of it."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import rate_name
from ndadam.theory.prediction import OptimizerSetting, grid
from sweeps.match.recorded_curve import RecordedCurve
from sweeps.spec.model import SpecModel
from sweeps.spec.validation_messages import explain
from worker.config.parts import PART_FIELD, load_part
from worker.config.train_config import (
    OPTIMIZER_FIELDS,
    FieldError,
    Fraction,
    LrSchedule,
    Name,
    Optimizer,
    Rate,
    refuse_unknown_optimizer,
)
from worker.config.training import IMAGES
from worker.config.trial_config import TrialConfig, Value

#: Steps at which a schedule is looked at: as many as it may have points.
_LOOKED_AT = 1_000


class Arm(SpecModel):
    """One of the two optimizers with its own fields; unset ones take their published values."""

    optimizer: Optimizer
    lr: Rate | None = None
    momentum: Fraction | None = None
    nesterov: bool | None = None
    alpha_v: Rate | None = None
    alpha_s: Rate | None = None
    alpha_s_schedule: LrSchedule | None = None
    betas: tuple[Fraction, Fraction] | None = None
    eps: Rate | None = None
    weight_decay: Rate | None = None
    decay_on: Literal["vectors", "scalars", "all"] | None = None

    def fields(self) -> dict[str, Any]:
        """The optimizer's fields that were set, ``optimizer`` included."""
        found = self.model_dump(exclude={"curve"})
        return {k: v for k, v in found.items() if v is not None}


def _field_of_optimizer(name: str) -> str:
    if not name.startswith("optimizer.") or not PART_FIELD.fullmatch(name):
        raise FieldError("", f"{name} is not a field here; remove it")
    return name


class AnyArm(Arm):
    """An arm whose optimizer may also come from a package.

    One that is registered may have fields of its own (``optimizer.rho``).
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, AfterValidator(_field_of_optimizer)], Value]

    optimizer: Name  # type: ignore[assignment]

    @property
    def has_law(self) -> bool:
        """Whether theory knows how the optimizer moves weights."""
        return self.optimizer in OPTIMIZER_FIELDS


class SourceArm(AnyArm):
    """The optimizer to be matched: trained by the match, or recorded before."""

    curve: RecordedCurve | None = Field(
        None,
        description="What the source did, recorded in a training that is over; none = the match "
        "trains it.",
    )


def refuse_unknown_arm(arm: AnyArm, side: str, training: str) -> None:
    """Raise FieldError for an optimizer that nobody has; a function's config knows its own."""
    if training != IMAGES:
        return
    try:
        refuse_unknown_optimizer(arm.optimizer)
    except FieldError as error:
        raise FieldError(f"{side}.optimizer", str(error)) from error


def rate_field(optimizer: str, training: str) -> str:
    """Name of the field of a config that holds an optimizer's learning rate of weight vectors."""
    if optimizer in OPTIMIZER_FIELDS or training != IMAGES:
        return rate_name(optimizer)
    part = load_part("optimizer", optimizer)
    declared = str(part.declared.get("rate", "lr"))
    return part.fields().get(declared, declared)


def default_rate(
    config: type[TrialConfig], optimizer: str, field: str, training: str
) -> float | None:
    """The default of a learning rate, where its field has one that is a number above 0."""
    known: type[TrialConfig] | None = config
    if optimizer not in OPTIMIZER_FIELDS and training == IMAGES:
        known = load_part("optimizer", optimizer).config
    name = field.removeprefix("optimizer.")
    found = known.model_fields[name].default if known and name in known.model_fields else None
    return float(found) if isinstance(found, int | float) and found > 0 else None


def field_of(config: TrialConfig, name: str, default: Any) -> Any:
    """A field of a config, or a default where its training has none or it is unset."""
    found = getattr(config, name) if config.has_field(name) else None
    return default if found is None else found


def setting_of(config: TrialConfig, *, open_rate: bool = False) -> OptimizerSetting:
    """What theory needs to know of a resolved config; vectors' decay only."""
    optimizer = field_of(config, "optimizer", "")
    if optimizer not in OPTIMIZER_FIELDS:
        return _setting_of_own(config, open_rate=open_rate)
    used = OPTIMIZER_FIELDS[optimizer]
    rate = field_of(config, "alpha_v" if optimizer == "ndadam" else "lr", None)
    decays = optimizer != "ndadam" and field_of(config, "decay_on", "all") in ("vectors", "all")
    return OptimizerSetting(
        optimizer,
        lr=None if open_rate else rate,
        weight_decay=field_of(config, "weight_decay", 0.0) if decays else 0.0,
        # A config may have fields of every optimizer, each with a default.
        momentum=field_of(config, "momentum", 0.0) if "momentum" in used else 0.0,
        nesterov=bool(field_of(config, "nesterov", False)) and "nesterov" in used,
        betas=field_of(config, "betas", (0.9, 0.999)) if "betas" in used else (0.9, 0.999),
    )


def _setting_of_own(config: TrialConfig, *, open_rate: bool) -> OptimizerSetting:
    """What is known of an optimizer of a package: its curve must be measured.

    That is what Adam without decay is to theory, whose name stands for all such.
    """
    beta1 = field_of(config, "betas", (field_of(config, "momentum", 0.0),))[0]
    rate = field_of(config, "lr", None)
    return OptimizerSetting("adam", lr=None if open_rate else rate, betas=(beta1, 0.999))


def refuse_own_stationary(arm: AnyArm, side: str) -> None:
    """Raise FieldError for the stationary rate of an optimizer of which theory knows nothing."""
    if not arm.has_law:
        raise FieldError(
            "criterion",
            f"stationary needs a {side} whose stationary rate theory knows, and "
            f"{arm.optimizer!r} comes from a package; its curve as measured can be matched with "
            "criterion least_squares, equal_rotation"
            + (", equal_mean or schedule" if side == "source" else " or equal_mean"),
        )


def refuse_standing_still(factor: Factor, num_steps: int, field: str) -> None:
    """Raise FieldError for a schedule that is 0 all along a run, in which nothing moves."""
    if not any(factor(step) > 0 for step in grid(num_steps, _LOOKED_AT)):
        raise FieldError(
            field,
            f"lr_schedule must be above 0 somewhere in the {num_steps} steps of the run, and its "
            "factors there are all 0: nothing would move",
        )


def build_config(
    config: type[TrialConfig], base: dict[str, Any], arm: dict[str, Any], side: str
) -> TrialConfig:
    """The config of one side; its error names the part of the spec that holds the field."""
    try:
        return config.model_validate({**base, **arm})
    except ValidationError as error:
        first = explain(error)[0]
        where = side if first["path"].split(".")[0] in Arm.model_fields else "base"
        raise FieldError(f"{where}.{first['path']}", first["reason"]) from error
