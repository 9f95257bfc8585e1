"""Declarations of a spec beside its search: limits of a trial, comparisons, earlier results."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from sweeps.records import Direction
from sweeps.spec.domains import Finite
from sweeps.spec.model import Positive, SpecModel, Steps, SweepRef, one_line
from worker.config.training import FIXED_METRICS, METRIC_NAME, Metric
from worker.config.trial_config import FieldError

#: Largest number of earlier results that a sampler gets.
MAX_PRIOR = 1000


class TrialLimits(SpecModel):
    """Limits of one trial; a trial beyond them ends as failed, with the limit as its cause."""

    steps: Steps | None = Field(None, description="Optimizer steps.")
    wall_seconds: Positive | None = Field(
        None, description="Seconds that it runs, over all attempts since it last failed."
    )
    gpu_hours: Positive | None = Field(
        None, description="Hours of GPU occupied, shares counted; attempts as for wall_seconds."
    )

    @property
    def is_set(self) -> bool:
        """Whether any limit is set."""
        return any(value is not None for value in (self.steps, self.wall_seconds, self.gpu_hours))


class Declared(SpecModel):
    """How the sweep's arms will be compared, fixed before any result is known."""

    pairing: bool = Field(
        False, strict=True, description="Compare seed by seed instead of with Welch's t."
    )
    margin: Positive | None = Field(
        None,
        description="Non-inferiority: how much worse, in the metric's unit, still counts as good.",
    )
    difference: Positive | None = Field(
        None,
        description="Difference to detect; validation reports how many seeds that takes.",
    )


#: Name of a metric, as trials report it.
MetricName = Annotated[str, Field(strict=True, pattern=METRIC_NAME)]


class MetricDeclaration(SpecModel):
    """What is known of a metric that the training reports."""

    direction: Direction | None = Field(None, description="Which end is better; none = neither.")
    unit: Annotated[str, Field(strict=True, max_length=40)] = Field(
        "", description="Unit of the values as they are reported."
    )
    description: Annotated[str, Field(strict=True, max_length=500)] = Field(
        "", description="What it measures."
    )
    test: bool = Field(
        False, strict=True, description="Measured on test data: nothing may be chosen by it."
    )

    @field_validator("unit", "description")
    @classmethod
    def _text_is_printable(cls, value: str) -> str:
        return one_line(value)

    @classmethod
    def of(cls, metric: Metric) -> "MetricDeclaration":
        """Return what a package declares."""
        return cls.model_validate(vars(metric))


class Package(SpecModel):
    """The package that a training comes from."""

    name: Annotated[str, Field(strict=True, min_length=1, max_length=200)] = Field(
        description="Name of the distribution, as pip knows it."
    )
    version: Annotated[str, Field(strict=True, min_length=1, max_length=100)] = Field(
        description="Its version."
    )


def check_declared(metrics: Mapping[str, MetricDeclaration]) -> None:
    """Refuse a declaration that gives one of the names with a fixed meaning another one."""
    for name, asked in metrics.items():
        fixed = FIXED_METRICS.get(name)
        if fixed is None:
            continue
        for field in ("direction", "unit", "test"):
            got, meant = getattr(asked, field), getattr(fixed, field)
            if field in asked.model_fields_set and got != meant and got not in (None, "", False):
                raise FieldError(
                    f"metrics.{name}.{field}",
                    f"{name} has a fixed meaning, {field} {meant!r}: give it another name, or "
                    f"leave {field} out; got {got!r}",
                )


class FromSweep(SpecModel):
    """An earlier sweep whose results the sampler starts from."""

    sweep: SweepRef = Field(description="Id of a sweep with the same objective.")
    results: bool = Field(
        True, strict=True, description="Give the sampler its points that lie in this space."
    )
    initial_points: Annotated[int, Field(strict=True, ge=0, le=MAX_PRIOR)] = Field(
        0, description="How many of its best points to try first."
    )


class PriorPoint(SpecModel):
    """A point whose objective is known before the sweep begins."""

    params: dict[str, Any] = Field(description="Every active field of the space with its value.")
    value: Finite = Field(description="Mean of the objective.")


class Confirms(SpecModel):
    """Origin of a confirmation's points."""

    sweep: SweepRef = Field(description="Id of the sweep in which they were selected.")
    points: Annotated[list[Annotated[int, Field(strict=True, ge=0)]], Field(max_length=1000)] = (
        Field(description="Their numbers there, in the order of initial_points.")
    )
