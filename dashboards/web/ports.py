"""What the pages ask of the service: check a spec, queue it, and the actions of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps.records import Kind
from sweeps.spec.refusals import FieldReason


@dataclass(frozen=True)
class Estimate:
    """What a spec would do."""

    trials: int | None
    points: int | None
    replicates: int
    #: Optimizer steps of all trials together.
    steps: int | None
    #: None where no finished trial is like those of the spec.
    gpu_hours: float | None
    #: Difference of two means that the seeds can show, as a fraction; None for a single seed.
    detectable_difference: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MatchEstimate:
    """What a match would do, and what theory says of it before anything runs."""

    #: The target's open field, and its rate under each criterion by the closed form.
    rate_name: str
    rates: tuple[tuple[str, float], ...]
    #: What the verdict will use.
    criterion: str
    level: str
    #: Steps that the verdict looks at: start <= step < stop.
    window: tuple[int, int]
    #: Without corrections, and with as many as may be made.
    least_trials: int
    most_trials: int
    #: Optimizer steps of as many trials as may be made.
    most_steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The answer to a spec: what is refused, or what it would do."""

    refused: tuple[FieldReason, ...]
    estimate: Estimate | MatchEstimate | None


class Refused(Exception):
    """A spec that was not queued, with the reasons by field."""

    def __init__(self, reasons: tuple[FieldReason, ...]) -> None:
        super().__init__("; ".join(item["reason"] for item in reasons))
        self.reasons = reasons


class Submitting(Protocol):
    """How pages hand specs in. The service has one; pages alone have none."""

    def datasets(self) -> list[str]:
        """Names of the prepared data sets."""

    def check(self, kind: Kind, spec: Mapping[str, Any]) -> Checked:
        """Say what a spec would do, or what the API would refuse of it; creates nothing."""

    def create(self, kind: Kind, spec: Mapping[str, Any], key: str) -> str:
        """Queue a spec and return the id; the same key and spec give the same sweep.

        Raises:
            Refused: With the fields that are refused, and why.
        """


#: Verbs of the buttons: those of the API's routes, and ``label`` for tags and notes.
VERBS = ("pause", "resume", "cancel", "retry", "extend", "confirm", "label")


class Steering(Protocol):
    """The service's side of a sweep's buttons, by the rules of its API."""

    def act(self, sweep_id: str, verb: str, values: Mapping[str, str]) -> str:
        """Carry out one of ``VERBS`` with what its form asks for; return the sweep to show next.

        Raises SweepsError where the sweep's state forbids it, submitting.Refused for values that
        the API would refuse.
        """

    def delete(self, sweep_id: str) -> bool:
        """Delete a sweep in whatever state; whether it is gone. False: its trials stop first."""
