"""Extensions of an existing sweep: more points, more seeds, a larger budget."""

from typing import Annotated

from pydantic import Field

from sweeps.spec.model import Count, Positive, SpecModel, Steps
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.train_config import FieldError

_BUDGET = ("trials", "gpu_hours", "wall_seconds", "steps")


class NewBudget(SpecModel):
    """Limits to change: a field that is left out stays, null removes a limit."""

    trials: Count | None = Field(None, description="Trials started.")
    gpu_hours: Positive | None = Field(None, description="Hours of GPU occupied, shares counted.")
    wall_seconds: Positive | None = Field(None, description="Seconds since the sweep started.")
    steps: Steps | None = Field(None, description="Optimizer steps of all trials together.")


class Extension(SpecModel):
    """Totals that a sweep should have, not additions: a repeated request extends it only once."""

    num_points: Count | None = Field(None, description="Points in total, also of a grid.")
    replicates: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = Field(
        None, description="Trials per point in total."
    )
    budget: NewBudget = Field(default_factory=NewBudget, description="Limits to raise.")


def extended(spec: SweepSpec, asked: Extension) -> SweepSpec:
    """Return the extended spec.

    Raises FieldError if it asks for less than the sweep has, ValidationError if the larger spec
    is invalid.
    """
    values = spec.model_dump(mode="json")
    # Only the fields that were set: defaults of one optimizer would be refused for another.
    values["base"] = spec.base.model_dump(mode="json", exclude_unset=True)
    if asked.num_points is not None:
        _refuse_less("num_points", asked.num_points, spec.num_points_planned())
        values["num_points"] = _num_points(spec, asked.num_points)
    if asked.replicates is not None:
        _refuse_less("replicates", asked.replicates, spec.replicates)
        values["replicates"] = asked.replicates
    for name in _BUDGET:
        if name in asked.budget.model_fields_set:
            new, old = getattr(asked.budget, name), getattr(spec.budget, name)
            if new is not None and (old is None or new < old):
                raise FieldError(f"budget.{name}", _smaller_budget(name, new, old))
            values["budget"][name] = new
    return SweepSpec.model_validate(values)


def _num_points(spec: SweepSpec, asked: int) -> int | None:
    size = spec.space_size()
    if size is not None and asked > size:
        raise FieldError(
            "num_points",
            f"num_points must be at most the {size:,} points that the space has, got {asked:,}",
        )
    # A spec for a whole grid keeps num_points unset.
    return None if spec.num_points is None and asked == spec.num_points_planned() else asked


def _refuse_less(name: str, asked: int, has: int) -> None:
    if asked < has:
        raise FieldError(
            name, f"{name} must not be less than the {has:,} that the sweep has, got {asked:,}"
        )


def _smaller_budget(name: str, asked: float, has: float | None) -> str:
    if has is None:
        return (
            f"budget.{name} has no limit in this sweep, and an extension only raises limits; "
            f"leave it out, got {asked:,}"
        )
    return f"budget.{name} must not be less than the {has:,} that the sweep has, got {asked:,}"
