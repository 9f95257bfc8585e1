"""What a trial records per step beyond its metrics, and what it reports. Torch-free."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Measurement(BaseModel):
    """Record weight dynamics every ``every`` steps from ``start`` to ``stop``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: Annotated[int, Field(ge=0)] = Field(
        0, description="First step recorded, counted from 0."
    )
    stop: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Step before which recording ends; none = the end of the run."
    )
    every: Annotated[int, Field(ge=1)] = Field(1, description="Steps between two records.")
    per_layer: bool = Field(False, description="Also one series per layer.")
    shadow_betas: tuple[float, float] | None = Field(
        None,
        description="Feed the projected gradients to ND-Adam's moments with these betas, without "
        "touching the weights, and report the gain A.",
    )


#: Status of a report: a run ends with "complete" or "diverged".
Status = Literal["running", "complete", "diverged"]


class Series(BaseModel):
    """Consecutive records of one quantity: values at ``start``, ``start + every``, …"""

    model_config = ConfigDict(frozen=True)

    start: int
    every: int
    values: list[float]


class Usage(BaseModel):
    """What an attempt used of its machine; kept apart from what it reports of itself."""

    model_config = ConfigDict(frozen=True)

    #: Since the attempt began, as far as it was measured: "seconds", "cpu_hours", "gpu_hours",
    #: "gpu_busy_hours" and "gpu_measured_hours" (those in which the load was known),
    #: "energy_watt_hours"; the largest "memory_megabytes", "gpu_memory_megabytes" and "sharing",
    #: the trials that one process trained together, each of which has its share of the hours.
    totals: dict[str, float]
    #: Since the last usage, by name; start and every are milliseconds, since 1970 and between two.
    samples: dict[str, list[Series]]


class Report(BaseModel):
    """What ``worker.train`` yields and what travels from a trial to its driver."""

    # A training function may report NaN; null would not be read back from the journal.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    #: Optimizer steps done.
    step: int
    #: Optimizer steps of the whole run; None where the training does not say.
    num_steps: int | None
    status: Status
    #: Names as in the docs ("train_loss", "effective_lr/conv5"); of images every value is finite.
    metrics: dict[str, float]
    #: Per-step records since the previous report, by name.
    series: dict[str, Series] = {}
    #: Step at which the loss was first NaN or infinite, with status "diverged".
    diverged_at_step: int | None = None
    #: Host, pid, versions, card, data checksum, peak memory; in the first and the last report.
    provenance: dict[str, Any] = {}
    #: Not in the journal, from which a later attempt would report it again.
    usage: Usage | None = None
