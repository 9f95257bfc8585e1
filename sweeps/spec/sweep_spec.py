"""``SweepSpec``: a sweep before it has run. Refuses specs with trials that would fail."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

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
    PriorPoint,
    TrialLimits,
)
from sweeps.spec.domains import Domain, Finite
from sweeps.spec.model import MAX_TRIALS, Count, Label, Notes, Positive, SpecModel, Steps
from sweeps.spec.text import load_spec_text
from sweeps.spec.validation_messages import explain, in_words, shown
from worker.config.train_config import FieldError, TrainConfig

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

Sampler = Literal["grid", "random", "qmc", "tpe", "gp", "list"]
#: The smallest share of a CPU or GPU that Ray accepts.
LEAST_SHARE = 0.0001
#: Samplers that learn from results.
MODELS = ("tpe", "gp")


class Objective(SpecModel):
    """Metric that the sweep minimises or maximises, by the last value that a trial reports."""

    metric: Literal["validation_error", "train_error", "train_loss", "test_error"] = Field(
        "validation_error", description="Name of a metric."
    )
    direction: Direction = Field("minimize", description="Which end is better.")

    @property
    def sign(self) -> float:
        """Factor by which the better of two values becomes the smaller: 1 or -1."""
        return sign_of(self.direction)


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

    An accepted spec has no point that ``TrainConfig`` refuses.
    """

    name: Label = Field(description="A label for people; the id identifies the sweep.")
    base: TrainConfig = Field(description="Every field that the space leaves fixed.")
    space: Annotated[dict[str, Domain], Field(min_length=1, max_length=50)] = Field(
        description="TrainConfig field -> domain."
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
        default_factory=list, description="Results that tpe and gp start from."
    )
    confirms: Confirms | None = Field(
        None, description="The sweep in which the points were selected; set by confirm."
    )
    tags: Annotated[list[Label], Field(max_length=50)] = Field(
        default_factory=list, description="Words to find the sweep by."
    )
    notes: Notes = Field("", description="Free text.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        """Check cheap rules first; check sizes before enumerating."""
        check_space(self.space)
        check_sampler(self.sampler, self.space, self.num_points, self.initial_points)
        if self.sampler not in MODELS and (self.prior or self.from_sweep is not None):
            field = "prior" if self.prior else "from_sweep"
            raise FieldError(
                field, f"{field} needs a sampler that learns, tpe or gp; got {self.sampler!r}"
            )
        self._check_size()
        self._check_seeds()
        self._check_objective()
        self._check_rungs()
        check_device(self.base, self.resources.gpus)
        base = self.base.model_dump(exclude_unset=True)
        check_trainable(base, self.space, self.branches())
        check_initial_points(base, self.branches(), self.initial_points)
        check_prior(self.branches(), self.prior)
        check_step_limit(self.limits.steps, self.base, self.space)
        return self

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

    def config(self, params: dict[str, Any], seed: int) -> TrainConfig:
        """Return the config of one point on one training seed."""
        base = self.base.model_dump(exclude_unset=True)
        return TrainConfig.model_validate(base | params | {"seed": seed})

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

    def _check_rungs(self) -> None:
        """Refuse a first rung at or after the end of every run, which would stop no point."""
        steps = self.base.steps
        if self.scheduler is None or steps is None or "steps" in self.space:
            return
        if self.scheduler.min_steps >= steps:
            raise FieldError(
                "scheduler.min_steps",
                f"scheduler.min_steps must be below base.steps = {steps:,}, or nothing is ever "
                f"stopped; got {self.scheduler.min_steps:,}",
            )

    def _check_objective(self) -> None:
        """Refuse a search steered by the test set, or by a validation error without images."""
        chooses = self.sampler not in COUNTED or self.scheduler is not None
        metric = self.objective.metric
        if metric == "test_error" and chooses:
            raise FieldError(
                "objective.metric",
                "objective.metric must not be 'test_error' where results steer the search: use "
                f"sampler grid without a scheduler, got sampler {self.sampler!r} and scheduler "
                f"{shown(self.scheduler and self.scheduler.kind)}",
            )
        if metric == "validation_error" and chooses and self.base.validation_fraction == 0:
            raise FieldError(
                "base.validation_fraction",
                "base.validation_fraction must be above 0 for objective 'validation_error', "
                "got 0.0",
            )
