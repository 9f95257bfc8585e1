"""``SweepSpec``: a sweep before it has run. Refuses specs with trials that would fail."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from sweeps.records import Direction, sign_of
from sweeps.spec.branches import Branch, branches, grid, grid_size
from sweeps.spec.checks import (
    COUNTED,
    check_device,
    check_initial_points,
    check_prior,
    check_sampler,
    check_space,
    check_step_limit,
    check_trainable,
)
from sweeps.spec.declarations import (
    MAX_PRIOR,
    Confirms,
    Declared,
    FromSweep,
    MetricDeclaration,
    MetricName,
    Package,
    PriorPoint,
    TrialLimits,
    check_declared,
)
from sweeps.spec.domains import Domain, Finite
from sweeps.spec.model import MAX_TRIALS, Count, Label, Notes, Positive, SpecModel, Steps
from sweeps.spec.text import load_spec_text
from sweeps.spec.training_fields import (
    BaseConfig,
    PartPackages,
    Training,
    has_parts,
    known_training,
    reported_metrics,
    without_unset_training,
)
from sweeps.spec.validation_messages import explain, in_words, shown
from worker.config.train_config import TrainConfig
from worker.config.training import (
    EXTERNAL,
    FIXED_METRICS,
    IMAGES,
    is_test,
    load_training,
)
from worker.config.trial_config import FieldError, TrialConfig

__all__ = [
    "MAX_TRIALS",
    "Asha",
    "Budget",
    "Domain",
    "Label",
    "Median",
    "Objective",
    "Resources",
    "SpecModel",
    "SweepSpec",
    "explain",
    "in_words",
    "load_spec_text",
]

Sampler = Literal["grid", "random", "qmc", "tpe", "gp", "nsga2", "list"]
#: The smallest share of a CPU or GPU that Ray accepts.
LEAST_SHARE = 0.0001
#: Metrics that a sweep declares at most.
MAX_METRICS = 100
#: Samplers that learn from results.
MODELS = ("tpe", "gp", "nsga2")
#: Objectives of a sweep at most: with more, nearly every point is on the front.
MAX_OBJECTIVES = 5
#: Metrics by which a sweep over images may choose.
IMAGE_OBJECTIVES = tuple(FIXED_METRICS)


def _few_metrics(metrics: Any) -> Any:
    # Pydantic counts after it has refused every one.
    if isinstance(metrics, dict) and len(metrics) > MAX_METRICS:
        raise ValueError(f"metrics must be at most {MAX_METRICS}, got {len(metrics):,}")
    for name, one in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(one, dict) and len(one) > 2 * len(MetricDeclaration.model_fields):
            raise ValueError(f"metrics.{name[:80]} has {len(one):,} fields, none has so many")
    return metrics


class Objective(SpecModel):
    """Metric that the sweep minimises or maximises, by the last value that a trial reports."""

    metric: Annotated[str, Field(strict=True, min_length=1, max_length=100)] = Field(
        "validation_error", description="Name of a metric.", examples=list(IMAGE_OBJECTIVES)
    )
    direction: Direction = Field("minimize", description="Which end is better.")

    @property
    def sign(self) -> float:
        """Factor by which the better of two values becomes the smaller: 1 or -1."""
        return sign_of(self.direction)


class OneOfSeveral(Objective):
    """One of several objectives, none of which counts more than another."""

    metric: Annotated[str, Field(strict=True, min_length=1, max_length=100)] = Field(
        description="Name of a metric.", examples=list(IMAGE_OBJECTIVES)
    )
    reference: Finite | None = Field(
        None,
        description="Value from which the hypervolume is measured, worse than any result that "
        "counts; none = the worst mean of any point.",
    )


#: An objective, alone or of several.
ObjectiveKind = TypeVar("ObjectiveKind", bound=Objective)


class Asha(SpecModel):
    """Successive halving over points: only the best 1/reduction_factor pass each rung."""

    kind: Literal["asha"]
    min_steps: Annotated[int, Field(strict=True, ge=1)] = Field(
        description="Steps before the first rung; later rungs at reduction_factor times as many."
    )
    reduction_factor: Annotated[int, Field(strict=True, ge=2, le=16)] = Field(
        3, description="One point in this many passes a rung."
    )


class Median(SpecModel):
    """Stops a point that is worse than the median of the earlier ones at the same step."""

    kind: Literal["median"]
    min_steps: Annotated[int, Field(strict=True, ge=0)] = Field(
        0, description="Steps before any point may be stopped."
    )
    min_points: Annotated[int, Field(strict=True, ge=1)] = Field(
        5, description="Points that must have reached a step before it is judged."
    )


Scheduler = Annotated[Asha | Median, Field(discriminator="kind")]


class Resources(SpecModel):
    """Resources of one trial."""

    cpus: Annotated[Finite, Field(ge=LEAST_SHARE, le=1024)] = Field(
        1.0, description="CPU cores, or a share of one."
    )
    gpus: Annotated[Finite, Field(ge=0)] = Field(
        0.0, description="One GPU, or a share of one between 0 and 1."
    )
    trials_per_gpu: Annotated[int, Field(strict=True, ge=1, le=8)] = Field(
        1, description="Trials that share one GPU, trained side by side in one process; gpus is 1."
    )

    @model_validator(mode="before")
    @classmethod
    def _gpu_is_shared(cls, values: Any) -> Any:
        """With ``trials_per_gpu``, ``gpus`` becomes a trial's share of the card."""
        count = values.get("trials_per_gpu", 1) if isinstance(values, Mapping) else 1
        if type(count) is not int or not 1 < count <= 8:
            return values
        # Rounded down to Ray's smallest unit, so that all of them fit.
        share = math.floor(10_000 / count) / 10_000
        if values.get("gpus") not in (1, share):
            raise FieldError(
                "gpus",
                f"gpus must be 1 with trials_per_gpu = {count}: the card that they share, "
                f"got {shown(values.get('gpus', 0))}",
            )
        return {**values, "gpus": share}

    @field_validator("gpus")
    @classmethod
    def _one_gpu_at_most(cls, gpus: float) -> float:
        if gpus > 1:
            raise ValueError("gpus must be at most 1, one trial trains on one GPU")
        if 0 < gpus < LEAST_SHARE:
            raise ValueError(f"gpus must be 0 or at least {LEAST_SHARE}")
        return gpus


class Budget(SpecModel):
    """Limits at which the sweep ends although points are left. None = no limit."""

    trials: Count | None = Field(None, description="Trials started.")
    gpu_hours: Positive | None = Field(None, description="Hours of GPU occupied, shares counted.")
    wall_seconds: Positive | None = Field(None, description="Seconds since the sweep started.")
    steps: Steps | None = Field(None, description="Optimizer steps of all trials together.")


class SweepSpec(SpecModel):
    """One sweep: a fixed base config, the fields that vary, the search and its budget.

    An accepted spec has no point that the config of its training refuses.
    """

    name: Label = Field(description="A label for people; the id identifies the sweep.")
    training: Training = Field(
        IMAGES,
        description="What a trial runs: images, a training that a package registers, or external "
        "for trials that agents run.",
    )
    base: BaseConfig = Field(
        description="Every field that the space leaves fixed; the fields shown are those of "
        "training images."
    )
    space: Annotated[dict[str, Domain], Field(min_length=1, max_length=50)] = Field(
        description="Field of the training's config -> domain."
    )
    sampler: Sampler = Field("random", description="What proposes points.")
    scheduler: Scheduler | None = Field(
        None, description="What stops points early; none = no early stopping."
    )
    num_points: Count | None = Field(
        None, description="Points to try; none = all, with sampler grid or list."
    )
    replicates: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        1, description="Trials per point, on seeds base.seed + k, the same for every point."
    )
    objective: Objective = Field(
        default_factory=Objective, description="What is minimised or maximised."
    )
    objectives: Annotated[list[OneOfSeveral], Field(fail_fast=True, max_length=MAX_OBJECTIVES)] = (
        Field(
            default_factory=list,
            description="Two or more that are searched together, in place of objective, which is "
            "then the first of them.",
        )
    )
    metrics: Annotated[dict[MetricName, MetricDeclaration], BeforeValidator(_few_metrics)] = Field(
        default_factory=dict,
        description="Metrics that the training declares, by name; set at submission for a "
        "registered training.",
    )
    resources: Resources = Field(default_factory=Resources, description="Resources of one trial.")
    concurrency: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = Field(
        None, description="Trials at once; none = as many as fit."
    )
    budget: Budget = Field(default_factory=Budget, description="Limits of the whole sweep.")
    limits: TrialLimits = Field(default_factory=TrialLimits, description="Limits of one trial.")
    comparison: Declared = Field(
        default_factory=Declared, description="How arms are compared, declared before any result."
    )
    sampler_seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = Field(
        0, description="The same spec and seed give the same points."
    )
    initial_points: Annotated[list[dict[str, Any]], Field(max_length=1000)] = Field(
        default_factory=list, description="Points to try first: every active field with its value."
    )
    from_sweep: FromSweep | None = Field(
        None, description="An earlier sweep to learn from; its results are copied at submission."
    )
    prior: Annotated[list[PriorPoint], Field(fail_fast=True, max_length=MAX_PRIOR)] = Field(
        default_factory=list, description="Results that samplers which learn start from."
    )
    confirms: Confirms | None = Field(
        None, description="The sweep in which the points were selected; set by confirm."
    )
    package: Package | None = Field(
        None, description="Where a registered training comes from; set at submission."
    )
    parts: PartPackages = Field(
        default_factory=dict,
        description="Where registered parts of training images come from, by group and name; set "
        "at submission.",
    )
    tags: Annotated[list[Label], Field(max_length=50)] = Field(
        default_factory=list, description="Words to find the sweep by."
    )
    notes: Notes = Field("", description="Free text.")

    @field_validator("training")
    @classmethod
    def _is_known(cls, training: str) -> str:
        return known_training(training)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        """Check cheap rules first; check sizes before enumerating."""
        config = type(self.base)
        base = self.base.model_dump(exclude_unset=True)
        check_space(self.space, config, base)
        check_sampler(self.sampler, self.space, self.num_points, self.initial_points)
        self._check_prior_is_used()
        self._check_size()
        self._check_seeds()
        self._check_declarations()
        self._check_required()
        self._take_declared_directions()
        self._check_objectives()
        self._check_rungs()
        check_device(self.base, self.resources.gpus)
        check_trainable(config, base, self.space, self.branches())
        check_initial_points(config, base, self.branches(), self.initial_points)
        check_prior(self.branches(), self.prior)
        check_step_limit(self.limits.steps, self.base, self.space)
        return self

    @model_serializer(mode="wrap")
    def _without_what_older_specs_lack(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        values = without_unset_training(handler(self))
        if "base" in values and (self.parts or has_parts(self.base, self.space)):
            # A part has defaults of its own: those of images, written out, would replace them.
            values["base"] = self.base.model_dump(mode="json", exclude_unset=True)
        return values

    @property
    def every_objective(self) -> tuple[Objective, ...]:
        """What is minimised or maximised: one, or several with the first as ``objective``."""
        return tuple(self.objectives) or (self.objective,)

    def known_metrics(self) -> dict[str, MetricDeclaration]:
        """Return the metrics that the training declares, by name; {} where any may be reported."""
        if self.metrics or self.training == EXTERNAL:
            return self.metrics
        if isinstance(self.base, TrainConfig):
            return reported_metrics(self.base, self.space)
        found = load_training(self.training).metrics
        return {name: MetricDeclaration.of(metric) for name, metric in found.items()}

    def branches(self) -> list[Branch]:
        """Return the branches of the space, within which no field has a condition."""
        return branches(self.space)

    def canonical(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a point with each value written as the space writes it: 0.3, not 0.1 + 0.2."""
        return {
            name: self.space[name].canonical(value) if name in self.space else value
            for name, value in params.items()
        }

    def grid_points(self) -> Iterator[dict[str, Any]]:
        """Yield every point of the grid, one at a time, branch after branch."""
        for branch in self.branches():
            yield from grid(branch)

    def space_size(self) -> int | None:
        """Return how many points the space has, by multiplication; None if it is continuous."""
        total = 0
        for branch in self.branches():
            size = grid_size(branch)
            if size is None:
                return None
            total += size
        return total

    def num_points_planned(self) -> int:
        """Return how many points the sweep tries: as requested, at most all of the space."""
        listed = len(self.initial_points) if self.sampler == "list" else None
        sizes = (self.num_points, self.space_size(), listed)
        return min(size for size in sizes if size is not None)

    def num_trials(self) -> int:
        """Return how many trials the sweep runs if nothing is stopped early."""
        planned = self.num_points_planned() * self.replicates
        return planned if self.budget.trials is None else min(planned, self.budget.trials)

    def config(self, params: dict[str, Any], seed: int) -> TrialConfig:
        """Return the config of one point on one training seed."""
        base = self.base.model_dump(exclude_unset=True)
        return type(self.base).model_validate(base | params | {"seed": seed})

    def _check_size(self) -> None:
        total = self.num_points_planned() * self.replicates
        if total > MAX_TRIALS:
            field = "space" if self.num_points is None else "num_points"
            raise FieldError(
                field,
                f"a sweep may have {MAX_TRIALS:,} trials, this one has "
                f"{self.num_points_planned():,} points x {self.replicates:,} replicates = "
                f"{total:,}; set num_points or make the space smaller",
            )

    def _check_seeds(self) -> None:
        last = self.base.seed + self.replicates - 1
        if last >= 2**31:
            raise FieldError(
                "base.seed", f"base.seed + replicates - 1 must be below 2^31, got {last:,}"
            )

    def _check_declarations(self) -> None:
        """Refuse what only some trainings can have."""
        if self.training == IMAGES and self.metrics and not self.parts:
            raise FieldError(
                "metrics",
                "metrics are declared by training 'images' itself; remove them, got "
                f"{shown(list(self.metrics))}",
            )
        if self.training in (IMAGES, EXTERNAL) and self.package is not None:
            raise FieldError(
                "package",
                f"package must be none for training {self.training!r}, which comes from no "
                f"package; got {shown(self.package.name)}",
            )
        if self.training != IMAGES and self.parts:
            raise FieldError(
                "parts",
                f"parts must be left out for training {self.training!r}: they are those of "
                f"training 'images'; got {shown(list(self.parts))}",
            )
        if self.training != IMAGES and self.resources.trials_per_gpu > 1:
            raise FieldError(
                "resources.trials_per_gpu",
                f"resources.trials_per_gpu must be 1 for training {self.training!r}, whose trials "
                "cannot share a process: give each a share of the card with gpus; got "
                f"{self.resources.trials_per_gpu}",
            )
        check_declared(self.known_metrics())

    def _check_required(self) -> None:
        """Refuse a spec that sets a field without a default nowhere, or not in every branch."""
        given = self.base.model_fields_set
        for name in self.base.required():
            if name not in given and (name not in self.space or self.space[name].when):
                raise FieldError(
                    f"base.{name}",
                    f"{name} has no default in training {self.training!r}: set it in base or, "
                    "without a condition, in space; got none",
                )

    def _check_rungs(self) -> None:
        """Refuse a first rung at or after the end of every run, which would stop no point."""
        steps = self.base.planned_steps
        if self.scheduler is None or steps is None or self.base.LENGTH in self.space:
            return
        if self.scheduler.min_steps >= steps:
            raise FieldError(
                "scheduler.min_steps",
                f"scheduler.min_steps must be below base.steps = {steps:,}, or nothing is ever "
                f"stopped; got {self.scheduler.min_steps:,}",
            )

    def _check_prior_is_used(self) -> None:
        """Refuse earlier results where no sampler, or no single objective, takes them."""
        if not self.prior and self.from_sweep is None:
            return
        field = "prior" if self.prior else "from_sweep"
        if self.sampler not in MODELS:
            raise FieldError(
                field,
                f"{field} needs a sampler that learns, one of {', '.join(MODELS)}; got "
                f"{self.sampler!r}",
            )
        if self.objectives:
            raise FieldError(
                field,
                f"{field} has one value for a point, and this sweep has {len(self.objectives)} "
                f"objectives; remove {field}",
            )

    def _take_declared_directions(self) -> None:
        """Where an objective leaves its direction out, take the one that its metric declares."""
        # Frozen, and not handed out yet.
        self.__dict__["objectives"] = [self._directed(one) for one in self.objectives]
        given, first = self.objective, next(iter(self.objectives), None)
        if first is None:
            self.__dict__["objective"] = self._directed(given)
            return
        if "objective" in self.model_fields_set and (
            given.metric != first.metric
            or ("direction" in given.model_fields_set and given.direction != first.direction)
        ):
            raise FieldError(
                "objective",
                "objective must be left out where objectives are given, or be the first of them, "
                f"{first.direction} {first.metric}; got {given.direction} {given.metric}",
            )
        self.__dict__["objective"] = Objective(metric=first.metric, direction=first.direction)

    def _directed(self, objective: ObjectiveKind) -> ObjectiveKind:
        known = self.known_metrics().get(objective.metric)
        if not known or not known.direction or "direction" in objective.model_fields_set:
            return objective
        return objective.model_copy(update={"direction": known.direction})

    def _check_objectives(self) -> None:
        """Refuse objectives that are not reported, that are one too few, or steer by test data."""
        if not self.objectives:
            self._check_objective(self.objective, "objective")
            return
        names = [one.metric for one in self.objectives]
        if len(names) == 1:
            raise FieldError(
                "objectives",
                f"objectives must be two or more; a single one, {names[0]}, belongs in objective",
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldError("objectives", f"objectives must differ, and {twice} is there twice")
        if self.scheduler is not None:
            raise FieldError(
                "scheduler",
                "scheduler must be none with several objectives: a point that is behind in one may "
                f"be ahead in another, so none is stopped early; got {self.scheduler.kind!r}",
            )
        for index, one in enumerate(self.objectives):
            self._check_objective(one, f"objectives.{index}")

    def _check_objective(self, objective: Objective, place: str) -> None:
        """Refuse a metric that is not reported, and a search steered by the test set."""
        metric = objective.metric
        declared = self.known_metrics()
        known = declared.get(metric)
        if declared and known is None:
            names = ", ".join(declared)
            raise FieldError(
                f"{place}.metric",
                f"{place}.metric must be one of the metrics of training {self.training!r} "
                f"({names}), got {shown(metric)}",
            )
        asked = objective.direction
        if self.training != IMAGES or metric not in FIXED_METRICS:
            fixed = FIXED_METRICS.get(metric)
            better = fixed.direction if fixed else known.direction if known else None
            if better not in (None, asked):
                raise FieldError(
                    f"{place}.direction",
                    f"{place}.direction must be {better!r}, which is better for {metric}; got "
                    f"{asked!r}",
                )
        chooses = self.sampler not in COUNTED or self.scheduler is not None
        if chooses and (is_test(metric) or (known is not None and known.test)):
            raise FieldError(
                f"{place}.metric",
                f"{place}.metric must not be {metric!r} where results steer the search: use "
                f"sampler grid without a scheduler, got sampler {self.sampler!r} and scheduler "
                f"{shown(self.scheduler and self.scheduler.kind)}",
            )
        if (
            isinstance(self.base, TrainConfig)
            and metric.startswith("validation_")
            and chooses
            and self.base.validation_fraction == 0
        ):
            raise FieldError(
                "base.validation_fraction",
                f"base.validation_fraction must be above 0 for objective {metric!r}, got 0.0",
            )
