"""``MatchSpec``: what a match runs, refused at submission where it could not end well. Torch-free.

A match finds the learning rate with which a target optimizer moves weight vectors as fast as a
source optimizer does, on one network, data set, length and schedule that both share.
"""

import math
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from ndadam.matching.plan import MatchPlan, default_criterion, default_window
from ndadam.matching.verdict import burn_in_steps
from ndadam.theory.along_schedule import Factor
from ndadam.theory.prediction import (
    SETTLING_TIMES,
    Criterion,
    Level,
    OptimizerSetting,
    beta2_equivalent,
    relaxation_steps,
)
from sweeps.match.arms import (
    AnyArm,
    Arm,
    SourceArm,
    build_config,
    default_rate,
    field_of,
    rate_field,
    refuse_own_stationary,
    refuse_standing_still,
    refuse_unknown_arm,
    setting_of,
)
from sweeps.match.checks import (
    refuse_early_window,
    refuse_short_calibration,
    refuse_unchosen_level,
    refuse_unmatchable,
    refuse_window,
)
from sweeps.match.comparison import Compare, refuse_unmeasured
from sweeps.match.recorded_curve import MOST_RECORDS, refuse_other_runs
from sweeps.spec.declarations import Package, TrialLimits
from sweeps.spec.model import Label, Notes, SpecModel
from sweeps.spec.sweep_spec import Budget, Resources
from sweeps.spec.training_fields import (
    BaseConfig,
    PartPackages,
    Training,
    known_training,
    without_unset_training,
)
from worker.config.schedules import build_schedule
from worker.config.train_config import FieldError, LrSchedule, SchedulePoints, TrainConfig
from worker.config.training import EXTERNAL, IMAGES, load_training
from worker.config.trial_config import TrialConfig

__all__ = ["Arm", "MatchSpec", "setting_of"]

#: Significant digits of a proposed rate: far below any tolerance, and equal after any replay.
_DIGITS = 5


class MatchSpec(SpecModel):
    """One match: a source, a target with one open learning rate, and what both train."""

    name: Label = Field(description="A label for people; the match's id is what identifies it.")
    training: Training = Field(
        IMAGES,
        description="What a trial runs: images, or a registered training whose config has "
        "optimizer, steps and the rates of both optimizers.",
    )
    base: BaseConfig = Field(
        description="What both optimizers share: what is trained, steps, lr_schedule, seed. "
        "bn_scale, if unset, is the source's."
    )
    source: SourceArm = Field(
        description="The optimizer to be matched, with its own fields; with a recorded curve it is "
        "not trained again."
    )
    target: AnyArm = Field(description="The optimizer whose learning rate is open.")
    criterion: Criterion | None = Field(
        None,
        description="What is made equal; none = stationary for a constant lr_schedule, else "
        "least_squares.",
    )
    level: Level | None = Field(
        None,
        description="step: single steps are equally long, as in the paper; long_range: many steps "
        "go equally far. Must be chosen where source and target average gradients over different "
        "times (momentum and beta1 differ); none = step elsewhere.",
    )
    tolerance: Annotated[float, Field(strict=True, gt=0, le=0.5)] = Field(
        0.05, description="Largest ratio, minus 1, that still counts as a match."
    )
    replicates: Annotated[int, Field(strict=True, ge=1, le=64)] = Field(
        3, description="Seeds of source and verdict runs: base.seed + k."
    )
    window: tuple[int, int] | None = Field(
        None,
        description="Steps that the verdict looks at, start <= step < stop; none = the last 5/12 "
        "of the run for stationary, else 5 to 95 % of it.",
    )
    max_corrections: Annotated[int, Field(strict=True, ge=0, le=3)] = Field(
        3, description="Calibration rounds at most; 0 = the verdict judges the prediction."
    )
    calibration_replicates: Annotated[int, Field(strict=True, ge=1, le=8)] = Field(
        1, description="Seeds of each calibration round, none of them a verdict's."
    )
    calibration_steps: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None,
        description="Length of calibration runs, stationary only; none = that of the verdict, "
        "judged in the verdict's window.",
    )
    compare: Compare | None = Field(
        None,
        description="Also train both at the matched rate on fresh seeds, and judge the results; "
        "none = do not.",
    )
    resources: Resources = Field(default_factory=Resources, description="What a trial occupies.")
    concurrency: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = Field(
        None, description="Trials at once; none = as many as the resources allow."
    )
    budget: Budget = Field(default_factory=Budget, description="Limits of the whole match.")
    limits: TrialLimits = Field(default_factory=TrialLimits, description="Limits of one trial.")
    package: Package | None = Field(
        None, description="Where a registered training comes from; set at submission."
    )
    parts: PartPackages = Field(
        default_factory=dict,
        description="Where registered parts of training images come from; set at submission.",
    )
    tags: Annotated[list[Label], Field(max_length=50)] = Field(
        default_factory=list, description="Words to find the match by."
    )
    notes: Notes = Field("", description="Free text.")

    # --- What follows from the fields ---------------------------------------------------------

    @property
    def _shared(self) -> dict[str, Any]:
        return self.base.model_dump(exclude_unset=True)

    @cached_property
    def source_config(self) -> TrialConfig:
        """The resolved config of the source, at base.seed."""
        fields = self.source.fields()
        return build_config(type(self.base), self._shared, fields, "source").resolved()

    def target_config(self, rate: float, points: SchedulePoints | None = None) -> TrialConfig:
        """The resolved config of the target at a learning rate, at base.seed.

        ``points`` replaces the schedule of its weight vectors; that of alpha_s stays.
        """
        shared, arm = dict(self._shared), {**self.target.fields(), self.rate_name: rate}
        if isinstance(self.source_config, TrainConfig):
            shared["bn_scale"] = self.source_config.bn_scale
            if points is not None:
                arm.setdefault("alpha_s_schedule", self.source_config.lr_schedule)
                shared["lr_schedule"] = points
        return build_config(type(self.base), shared, arm, "target").resolved()

    def calibration_config(self, rate: float, points: SchedulePoints | None = None) -> TrialConfig:
        """The target as calibration runs train it: shorter where ``calibration_steps`` says so.

        A short run takes a beta2 that forgets as fast as the source does, because the stationary
        rate does not depend on beta2 and the wait for it does.
        """
        config = self.target_config(rate, points)
        if self.calibration_steps is None:
            return config
        changed: dict[str, Any] = {"steps": self.calibration_steps}
        if self.target.optimizer == "ndadam" and config.has_field("betas"):
            changed["betas"] = self.calibration_betas
        return config.model_copy(update=changed)

    @property
    def calibration_betas(self) -> tuple[float, float]:
        """Of calibration runs that are shorter than the verdict's."""
        beta1, beta2 = self.target_setting.betas
        return beta1, min(beta2, beta2_equivalent(self.source_setting))

    def calibration_window(self) -> tuple[int, int]:
        """The steps that a calibration run is judged by."""
        if self.calibration_steps is None:
            return self.chosen_window()
        if self.target.optimizer == "ndadam" and self.base.has_field("betas"):
            return burn_in_steps(self.calibration_betas), self.calibration_steps
        wait = SETTLING_TIMES * relaxation_steps(self.source_setting)
        return math.ceil(wait), self.calibration_steps

    @cached_property
    def rate_name(self) -> str:
        """The target's open field."""
        return rate_field(self.target.optimizer, self.training)

    @cached_property
    def any_rate(self) -> float:
        """A rate that the target's field takes: its default, where it has one."""
        optimizer, field = self.target.optimizer, self.rate_name
        return default_rate(type(self.base), optimizer, field, self.training) or 1.0

    @property
    def num_steps(self) -> int:
        steps = field_of(self.source_config, "steps", None)
        assert isinstance(steps, int)
        return steps

    @property
    def lr_schedule(self) -> LrSchedule:
        """The schedule that both share; constant where a training has none."""
        found: LrSchedule = field_of(self.source_config, "lr_schedule", "constant")
        return found

    @property
    def warmup_steps(self) -> int:
        return int(field_of(self.source_config, "warmup_steps", 0))

    @property
    def is_constant(self) -> bool:
        return self.lr_schedule == "constant" and not self.warmup_steps

    def chosen_criterion(self) -> Criterion:
        return self.criterion or default_criterion(is_constant=self.is_constant)

    def chosen_window(self) -> tuple[int, int]:
        """The verdict's window, fixed before anything runs."""
        return self.window or default_window(self.chosen_criterion(), self.num_steps)

    @cached_property
    def plan(self) -> MatchPlan:
        """What the match's procedure goes by."""
        curve = self.source.curve
        recorded = None
        if curve is not None:
            recorded = curve.values[: -(-self.num_steps // curve.every)]
        return MatchPlan(
            source=self.source_setting,
            target=self.target_setting,
            num_steps=self.num_steps,
            lr_schedule=self.factor(),
            criterion=self.chosen_criterion(),
            level=self.level or "step",
            tolerance=self.tolerance,
            seeds=tuple(self.seeds()),
            window=self.chosen_window(),
            max_corrections=self.max_corrections,
            calibration_replicates=self.calibration_replicates,
            every=self.record_every,
            short_calibration=None if self.calibration_steps is None else self.calibration_window(),
            recorded=recorded,
            start_rate=None if self.target.has_law else self.any_rate,
            digits=_DIGITS,
        )

    @property
    def record_every(self) -> int:
        """Steps between two records of the weight dynamics."""
        if self.source.curve is not None:
            return self.source.curve.every
        return max(1, math.ceil(self.num_steps / MOST_RECORDS))

    @property
    def source_setting(self) -> OptimizerSetting:
        return setting_of(self.source_config)

    @property
    def target_setting(self) -> OptimizerSetting:
        """Of the target, its learning rate open."""
        return setting_of(self.target_config(self.any_rate), open_rate=True)

    def factor(self) -> Factor:
        """The schedule that both share."""
        return build_schedule(
            self.lr_schedule,
            num_steps=self.num_steps,
            steps_per_epoch=1,  # cosine_epoch, which alone needs it, is refused
            warmup_steps=self.warmup_steps,
        )

    def seeds(self) -> list[int]:
        """Of source and verdict runs."""
        return [self.source_config.seed + k for k in range(self.replicates)]

    def comparison_seeds(self) -> list[int]:
        """Of the runs whose results are compared: behind all that the match itself uses."""
        if self.compare is None:
            return []
        first = self.seeds()[-1] + 1 + 3 * self.calibration_replicates
        return [first + k for k in range(self.compare.replicates)]

    def full_trials(self) -> int:
        """Of source, verdict and comparison, each of ``num_steps``; corrections come on top."""
        sources = 0 if self.source.curve is not None else self.replicates
        return sources + self.replicates + 2 * len(self.comparison_seeds())

    # --- Refusals -----------------------------------------------------------------------------

    @field_validator("base", mode="before")
    @classmethod
    def _base_is_shared(cls, value: Any) -> Any:
        for name in Arm.model_fields if isinstance(value, dict) else ():
            if value.get(name) is not None:
                raise FieldError(
                    name, f"{name} belongs to source or target, not to base; got {value[name]!r}"
                )
        return value

    @field_serializer("base")
    def _what_was_set(self, base: TrialConfig) -> dict[str, Any]:
        # Written out, what base leaves open would be refused here: it belongs to the two arms.
        return base.model_dump(mode="json", exclude_unset=True)

    @field_validator("training")
    @classmethod
    def _training_is_known(cls, training: str) -> str:
        return known_training(training)

    @model_serializer(mode="wrap")
    def _without_what_older_specs_lack(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return without_unset_training(handler(self))

    @model_validator(mode="after")
    def _optimizers_are_known(self) -> Self:
        refuse_unknown_arm(self.source, "source", self.training)
        refuse_unknown_arm(self.target, "target", self.training)
        return self

    @model_validator(mode="after")
    def _training_has_two_optimizers(self) -> Self:
        if self.training == EXTERNAL:
            raise FieldError(
                "training",
                "training must not be 'external': a match records every step of its trials, and "
                "they run here",
            )
        if self.training == IMAGES:
            return self
        rate_of_source = rate_field(self.source.optimizer, self.training)
        needed = ["optimizer", "steps", rate_of_source, self.rate_name]
        for name in needed:
            if not self.base.has_field(name):
                raise FieldError(
                    "training",
                    f"training {self.training!r} cannot be matched: a match sets {name}, and its "
                    "config has no such field",
                )
        if self.chosen_criterion() == "schedule":
            raise FieldError(
                "criterion",
                "criterion schedule gives the target a schedule of its own, which only training "
                f"'images' takes; got training {self.training!r}",
            )
        if self.resources.trials_per_gpu > 1:
            raise FieldError(
                "resources.trials_per_gpu",
                f"resources.trials_per_gpu must be 1 for training {self.training!r}, whose trials "
                f"cannot share a process; got {self.resources.trials_per_gpu}",
            )
        return self

    @model_validator(mode="after")
    def _rate_is_open(self) -> Self:
        rate = self.target.fields().get(self.rate_name)
        if rate is not None:
            raise FieldError(
                f"target.{self.rate_name}",
                f"{self.rate_name} of the target is what the match finds; remove it, got {rate!r}",
            )
        return self

    @model_validator(mode="after")
    def _both_can_be_trained(self) -> Self:
        if isinstance(self.base, TrainConfig) and self.base.steps is None:
            raise FieldError(
                "base.steps",
                "a match needs its length in steps, because its window counts them; set "
                f"base.steps, got epochs = {self.base.epochs}",
            )
        fresh = self.compare.replicates if self.compare is not None else 0
        last_seed = self.base.seed + self.replicates + 3 * self.calibration_replicates + fresh
        if last_seed >= 2**31:
            raise FieldError("base.seed", f"base.seed is too large, got {self.base.seed}")
        self.target_config(self.any_rate)
        if self.lr_schedule == "cosine_epoch":
            raise FieldError(
                "base.lr_schedule",
                "lr_schedule must be constant, cosine or points in a match, got 'cosine_epoch' "
                "(the recipe's, if you set none)",
            )
        refuse_standing_still(self.factor(), self.num_steps, "base.lr_schedule")
        return self

    @model_validator(mode="after")
    def _runs_keep_to_their_limits(self) -> Self:
        most = self.limits.steps
        if most is not None and self.num_steps > most:
            raise FieldError(
                "limits.steps",
                f"limits.steps must be at least base.steps = {self.num_steps:,}, which every "
                f"verdict takes; got {most:,}",
            )
        return self

    @model_validator(mode="after")
    def _records_are_those_of_the_run(self) -> Self:
        curve = self.source.curve
        if curve is not None:
            is_cosine = self.lr_schedule == "cosine"
            refuse_other_runs(curve, self.num_steps, self.source_setting, is_cosine=is_cosine)
        if self.compare is not None:
            refuse_unmeasured(self.compare, field_of(self.base, "validation_fraction", 1.0))
            metrics = [] if self.training == IMAGES else [*load_training(self.training).metrics]
            if metrics and self.compare.metric not in metrics:
                raise FieldError(
                    "compare.metric",
                    f"compare.metric must be a metric of training {self.training!r} "
                    f"({', '.join(metrics)}), got {self.compare.metric!r}",
                )
        return self

    @model_validator(mode="after")
    def _it_can_end_well(self) -> Self:
        criterion, window = self.chosen_criterion(), self.chosen_window()
        source, target = self.source_setting, self.target_setting
        if criterion == "stationary":
            refuse_own_stationary(self.source, "source")
            refuse_own_stationary(self.target, "target")
        refuse_unmatchable(
            criterion,
            self.lr_schedule,
            self.warmup_steps,
            source,
            target if self.target.has_law else None,
        )
        if not self.target.has_law and not self.max_corrections:
            raise FieldError(
                "max_corrections",
                f"max_corrections must be above 0 for target {self.target.optimizer!r}, whose rate "
                "nothing predicts: it comes from a package, and calibration finds it; got 0",
            )
        if self.calibration_steps is not None:
            refuse_short_calibration(
                self.calibration_steps,
                criterion,
                wait=self.calibration_window()[0],
                records=self.plan.least_block * self.record_every,
                num_steps=self.num_steps,
            )
        refuse_unchosen_level(self.level, source.averaging, target.averaging)
        refuse_window(
            window,
            least_block=self.plan.least_block,
            record_every=self.record_every,
            num_steps=self.num_steps,
        )
        if criterion == "stationary":
            refuse_early_window(
                window[0],
                source,
                target,
                self.level or "step",
                num_steps=self.num_steps,
                is_default=self.window is None,
            )
        return self
