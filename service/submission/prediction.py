"""The closed-form match: what to ask it and what it answers. Nothing is trained or created."""

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import (
    NoStationaryRate,
    OptimizerName,
    OptimizerSetting,
    rate_name,
    refuse_without_stationary_rate,
)
from ndadam.theory.prediction import CRITERIA, Level, Prediction, predict, resolve_level
from service.contract.errors import ApiError
from service.contract.outputs import CriterionOut, FieldOut, PredictionOut
from sweeps.match.arms import Arm, refuse_standing_still, setting_of
from worker.config.schedules import build_schedule
from worker.config.train_config import (
    Count,
    FieldError,
    Fraction,
    LrSchedule,
    TrainConfig,
    refuse_disorder,
)

#: A billion steps is a thousand epochs of ImageNet in batches of one.
MOST_STEPS = 10**9


class PredictionArm(Arm):
    """An optimizer that theory knows: also those that nothing here trains."""

    optimizer: OptimizerName = Field(  # type: ignore[assignment]
        description="sgd, sgdw (its decay is decoupled and multiplied by lr), adam, adamw, ndadam."
    )
    dampening: Fraction | None = Field(None, description="Dampening of sgd's momentum.")

    def fields(self) -> dict[str, Any]:
        """The fields of a config that were set; dampening, which no config has, is theory's."""
        return {name: value for name, value in super().fields().items() if name != "dampening"}


class PredictionSpec(BaseModel):
    """A source whose effective learning rate is known, and a target whose learning rate is not."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: PredictionArm = Field(
        description="Optimizer and its fields; weight_decay must be given, other unset ones are "
        "the published ones, and the answer names them."
    )
    target: PredictionArm = Field(
        default_factory=lambda: PredictionArm(optimizer="ndadam"),
        description="Optimizer whose learning rate (alpha_v for ndadam) is asked for.",
    )
    steps: Annotated[Count, Field(le=MOST_STEPS)] = Field(
        80_000, description="Length of the run; the paper's by default."
    )
    lr_schedule: LrSchedule = Field(
        "constant", description="Shared by both: constant, cosine, or (step, factor) points."
    )
    warmup_steps: Annotated[int, Field(strict=True, ge=0, le=MOST_STEPS)] = 0
    level: Level | None = Field(
        None,
        description="step or long_range; must be chosen where momentum and beta1 differ, "
        "none = step elsewhere.",
    )
    gain: Annotated[float, Field(gt=0, le=1e6)] = Field(
        1.0, description="A of ND-Adam's gradients; 1 = uncorrelated in time."
    )

    @model_validator(mode="after")
    def _arms_can_be_trained(self) -> Self:
        if self.lr_schedule == "cosine_epoch":
            raise FieldError(
                "lr_schedule",
                "lr_schedule must be constant, cosine or points, because an epoch has no length "
                "without a data set; got 'cosine_epoch'",
            )
        if not isinstance(self.lr_schedule, str):
            refuse_disorder("lr_schedule", self.lr_schedule)
        if self.warmup_steps > self.steps:
            raise FieldError(
                "warmup_steps",
                f"warmup_steps must be at most steps = {self.steps}, got {self.warmup_steps}",
            )
        refuse_standing_still(self.factor(), self.steps, "lr_schedule")
        rate = self.target.fields().get(self.rate_name)
        if rate is not None:
            raise FieldError(
                f"target.{self.rate_name}",
                f"{self.rate_name} of the target is what is asked for; remove it, got {rate!r}",
            )
        self.source_setting()
        self.target_setting()
        return self

    @property
    def rate_name(self) -> str:
        return rate_name(self.target.optimizer)

    @property
    def is_constant(self) -> bool:
        return self.lr_schedule == "constant" and not self.warmup_steps

    def factor(self) -> Factor:
        """The schedule that both share."""
        return build_schedule(
            self.lr_schedule,
            num_steps=self.steps,
            steps_per_epoch=1,  # cosine_epoch, which alone needs it, is refused
            warmup_steps=self.warmup_steps,
        )

    def source_setting(self) -> OptimizerSetting:
        return _setting("source", self.source)

    def target_setting(self) -> OptimizerSetting:
        return _setting("target", self.target, open_rate=True)


def _setting(side: str, arm: PredictionArm, *, open_rate: bool = False) -> OptimizerSetting:
    if arm.dampening is not None and arm.optimizer != "sgd":
        raise FieldError(
            f"{side}.dampening",
            f"dampening is not used by optimizer {arm.optimizer!r}; remove it (got "
            f"{arm.dampening!r})",
        )
    _refuse_unsaid_decay(side, arm)
    try:
        known = setting_of(_config(side, arm), open_rate=open_rate)
        return replace(known, optimizer=arm.optimizer, dampening=arm.dampening or 0.0)
    except FieldError:
        raise
    except ValueError as error:  # theory's own rules begin with the field's name
        raise FieldError(f"{side}.{str(error).split()[0]}", str(error)) from error


def _refuse_unsaid_decay(side: str, arm: PredictionArm) -> None:
    """An effective learning rate rests on decay, and elsewhere a decay that is unset is none."""
    if arm.weight_decay is None and arm.optimizer in ("sgd", "sgdw", "adamw"):
        published = _config(side, arm).weight_decay
        raise FieldError(
            f"{side}.weight_decay",
            f"weight_decay must be given for {arm.optimizer}: its effective learning rate rests on "
            f"it, and without decay it has none that is stationary; the published value is "
            f"{published:g}",
        )


def _taken_defaults(spec: PredictionSpec) -> list[str]:
    """What the answer rests on and nobody said, as a sentence; nothing where all was said."""
    taken = []
    for side, arm in (("source", spec.source), ("target", spec.target)):
        averaging = "momentum" if arm.optimizer in ("sgd", "sgdw") else "betas"
        config = _config(side, arm)
        for name in [rate_name(arm.optimizer), averaging] if side == "source" else [averaging]:
            if getattr(arm, name) is None:
                taken.append(f"{side}.{name} {getattr(config, name)}")
    return [f"Not given, so published values were taken: {', '.join(taken)}."] if taken else []


def _product(spec: PredictionSpec, found: Prediction) -> list[str]:
    """That lr and weight_decay of a target with decay count as a product alone."""
    decay = found.target.weight_decay
    if spec.rate_name != "lr" or not decay:
        return []
    return [
        f"The rates hold for weight_decay {decay:g}; what counts is lr x weight_decay, "
        f"{found.criteria['stationary'].rate * decay:.3g} by the stationary criterion."
    ]


def _config(side: str, arm: Arm) -> TrainConfig:
    try:
        fields = arm.fields()
        if fields["optimizer"] == "sgdw":  # trained nowhere here; its fields are sgd's
            fields["optimizer"] = "sgd"
        return TrainConfig.model_validate({"steps": 1, **fields}).resolved()
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        name = getattr(cause, "field", None) or ".".join(str(part) for part in first["loc"])
        reason = cause or f"{first['msg']}, got {first['input']!r}"
        raise FieldError(f"{side}.{name}", str(reason)) from error


def answer(spec: PredictionSpec) -> PredictionOut:
    """Answer at once, under every criterion. Raises ApiError 422 where theory has no answer."""
    _refuse_without_answer(spec)
    try:
        found = predict(
            spec.source_setting(),
            spec.target_setting(),
            num_steps=spec.steps,
            factor=spec.factor(),
            level=spec.level,
            gain=spec.gain,
        )
    except (NoStationaryRate, ValueError, ArithmeticError) as error:
        # Nothing is left to go wrong but a rate beyond what numbers and formulas bear.
        raise _refused(f"source.{rate_name(spec.source.optimizer)}", str(error)) from error
    return _output(spec, found)


def _refuse_without_answer(spec: PredictionSpec) -> None:
    """Raise ApiError 422, naming the field, for what theory does not answer."""
    source, target = spec.source_setting(), spec.target_setting()
    for side, arm, setting in (("source", spec.source, source), ("target", spec.target, target)):
        try:
            refuse_without_stationary_rate(setting)
        except NoStationaryRate as error:
            raise _refused(*_in_fields(side, arm, str(error))) from error
    try:
        resolve_level(source, target, spec.level)
    except ValueError as error:
        raise _refused("level", str(error)) from error


def _in_fields(side: str, arm: PredictionArm, reason: str) -> tuple[str, str]:
    """The field that leaves an arm without a stationary rate, and the sentence about it."""
    if arm.optimizer == "adam":
        return f"{side}.optimizer", reason
    if arm.optimizer == "ndadam":
        return f"{side}.alpha_v", reason
    if arm.decay_on == "scalars":
        return f"{side}.decay_on", f"decay_on 'scalars' spares the weight vectors: {reason}"
    return f"{side}.weight_decay", reason


def _refused(path: str, reason: str) -> ApiError:
    return ApiError(422, "NoPrediction", f"{path}: {reason}", [FieldOut(path=path, reason=reason)])


def _output(spec: PredictionSpec, found: Prediction) -> PredictionOut:
    answers = [found.criteria[name] for name in CRITERIA if name in found.criteria]
    return PredictionOut(
        rate_name=spec.rate_name,
        level=found.level,
        num_steps=found.num_steps,
        effective_lr=found.effective_lr,
        target_effective_lr=found.target_effective_lr,
        tau_steps=found.tau_steps,
        beta2_equivalent=found.beta2_equivalent,
        criterion="stationary" if spec.is_constant else "least_squares",
        criteria=[CriterionOut.model_validate(one) for one in answers],
        curve=list(zip(found.curve.steps, found.curve.effective_lr, strict=True)),
        trust_from_step=found.trust_from_step,
        trust_until_step=found.trust_until_step,
        warnings=[*found.warnings, *_product(spec, found), *_taken_defaults(spec)],
    )
