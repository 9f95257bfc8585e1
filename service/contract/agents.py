"""What agents send and are answered: ask for trials, report, tell how they ended."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from service.contract.outputs import Output
from sweeps.records import SweepState, TrialState
from sweeps.spec.declarations import MetricName
from sweeps.spec.model import SpecModel, free_text, one_line
from sweeps.store.commands.agent_requests import LEASE_SECONDS, MAX_METRIC_NAMES
from worker.config.training import FRACTIONS
from worker.config.trial_config import FieldError

#: Seconds that a question for trials may wait for one.
MAX_WAIT = 30.0
#: Seconds that an agent may be silent at most.
MAX_LEASE = 3600.0

#: Characters of a reason: a traceback, or the end of what a command printed.
MAX_REASON = 10_000

#: Null stands for a value that is not finite, as in every answer.
MetricValue = Annotated[float, Field(strict=True, allow_inf_nan=False)] | None
MetricValues = Annotated[dict[MetricName, MetricValue], Field(max_length=MAX_METRIC_NAMES)]
Lease = Annotated[str, Field(strict=True, pattern=r"^[\x21-\x7e]{1,64}$")]
Step = Annotated[int, Field(strict=True, ge=0, le=10**15)]


def _fractions(metrics: dict[str, float | None]) -> dict[str, float | None]:
    """Refuse a value that the meaning of its name rules out."""
    for name in metrics.keys() & FRACTIONS:
        value = metrics[name]
        if value is not None and not 0 <= value <= 1:
            raise FieldError(name, f"{name} must be a fraction from 0 to 1, got {value:g}")
    return metrics


class AskSpec(SpecModel):
    """A question for trials to run."""

    agent: Annotated[str, Field(strict=True, min_length=1, max_length=200)] = Field(
        description="Who asks, for people: a host, a job."
    )
    count: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        1, description="Trials wanted at most."
    )
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT)] = Field(
        0.0, description="How long to wait for a trial where none waits."
    )
    lease_seconds: Annotated[float, Field(ge=5, le=MAX_LEASE)] = Field(
        LEASE_SECONDS,
        description="How long the agent may be silent; then others may have its trials.",
    )

    @field_validator("agent")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        return one_line(value)


class ReportSpec(SpecModel):
    """Metrics at one step."""

    step: Step = Field(description="Steps done; never less than in the report before.")
    metrics: MetricValues = Field(
        description="Values by name. Null: not finite; as the objective it ends the trial as "
        "diverged."
    )
    num_steps: Step | None = Field(None, description="Steps of the whole run, if known.")

    @field_validator("metrics")
    @classmethod
    def _has_fractions(cls, metrics: dict[str, float | None]) -> dict[str, float | None]:
        return _fractions(metrics)


class ReportsSpec(SpecModel):
    """Reports of a leased trial, in the order of their steps."""

    lease: Lease = Field(description="Token of the trial's lease.")
    reports: Annotated[list[ReportSpec], Field(fail_fast=True, min_length=1, max_length=1000)] = (
        Field(description="Those since the last answer.")
    )


class HeartbeatSpec(SpecModel):
    """A sign of life of the agent that runs a trial."""

    lease: Lease = Field(description="Token of the trial's lease.")


class TellSpec(SpecModel):
    """How a leased trial ended."""

    lease: Lease = Field(description="Token of the trial's lease.")
    state: Literal["complete", "failed", "diverged", "waiting"] = Field(
        description="Complete needs a value of the objective, reported or in metrics. Waiting "
        "gives the trial back: it has not ended, and whoever asks next gets it."
    )
    metrics: MetricValues = Field(default_factory=dict, description="Last values, if any are new.")
    step: Step | None = Field(
        None,
        description="Step of metrics; left out: the last one, or the next if one of them was "
        "reported before.",
    )
    reason: Annotated[str, Field(strict=True, max_length=MAX_REASON), AfterValidator(free_text)] = (
        Field(
            "",
            description="Why it failed, or was given back. The last line is shown with the trial; "
            "several lines are kept in its log.",
        )
    )

    @field_validator("metrics")
    @classmethod
    def _has_fractions(cls, metrics: dict[str, float | None]) -> dict[str, float | None]:
        return _fractions(metrics)


class LeaseOut(Output):
    """The right to run a trial, for as long as its agent is not silent for ``seconds``."""

    token: str
    seconds: float


class LeasedOut(Output):
    """A trial to run."""

    number: int
    point: int
    seed: int
    params: dict[str, Any]
    config: dict[str, Any]
    lease: LeaseOut


class AskOut(Output):
    """Trials to run, or why there are none and when to ask again (null: no more will come)."""

    trials: list[LeasedOut]
    reason: str
    state: SweepState
    retry_seconds: float | None


class HeardOut(Output):
    """Whether the trial must stop, and why; else how long its agent may be silent."""

    stop: bool
    reason: str
    lease_seconds: float


class ToldOut(Output):
    """The trial's state now. Another verdict may have come before what was told."""

    state: TrialState
    reason: str


def finite_or_none(value: float) -> float | None:
    """Return a number as a report may hold it."""
    return value if math.isfinite(value) else None
