"""The closed-form match: what to ask it and what it answers. Nothing is trained or created."""

from dataclasses import replace
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ndadam.optimizer_laws import NoStationaryRate, OptimizerName, OptimizerSetting
from ndadam.theory import CRITERIA, Level, Prediction, predict
from service.errors import ApiError
from service.outputs import CriterionOut, FieldOut, PredictionOut
from sweeps.match_spec import Arm, setting_of
from worker.config import Count, FieldError, Fraction, LrSchedule, TrainConfig
from worker.schedules import build_schedule

#: A billion steps is a thousand epochs of ImageNet in batches of one.
MOST_STEPS = 10**9


class PredictionArm(Arm):
    """An optimizer that theory knows: also those that nothing here trains."""

    optimizer: OptimizerName = Field(  # type: ignore[assignment]
        description="sgd, sgdw (its decay is decoupled and multiplied by lr), adam, adamw, ndadam."
    )
    dampening: Fraction | None = Field(None, description="Dampening of sgd's momentum.")


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
        return "alpha_v" if self.target.optimizer == "ndadam" else "lr"

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
        rate = "alpha_v" if arm.optimizer == "ndadam" else "lr"
        averaging = "momentum" if arm.optimizer in ("sgd", "sgdw") else "betas"
        config = _config(side, arm)
        for name in [rate, averaging] if side == "source" else [averaging]:
            if getattr(arm, name) is None:
                taken.append(f"{side}.{name} {getattr(config, name)}")
    return [f"Not given, so published values were taken: {', '.join(taken)}."] if taken else []


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
    factor = build_schedule(
        spec.lr_schedule,
        num_steps=spec.steps,
        steps_per_epoch=1,  # cosine_epoch, which alone needs it, is refused
        warmup_steps=spec.warmup_steps,
    )
    try:
        found = predict(
            spec.source_setting(),
            spec.target_setting(),
            num_steps=spec.steps,
            factor=factor,
            level=spec.level,
            gain=spec.gain,
        )
    except (NoStationaryRate, ValueError, ArithmeticError) as error:
        reason = str(error)
        raise ApiError(
            422, "NoPrediction", reason, [FieldOut(path="source", reason=reason)]
        ) from error
    return _output(spec, found)


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
        criteria=[CriterionOut.model_validate(one) for one in answers],
        curve=list(zip(found.curve.steps, found.curve.effective_lr, strict=True)),
        trust_from_step=found.trust_from_step,
        trust_until_step=found.trust_until_step,
        warnings=[*found.warnings, *_taken_defaults(spec)],
    )
