"""Interfaces that the service provides to the pages: check and queue specs, act on sweeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps.records import Kind
from sweeps.spec.validation_messages import FieldReason


@dataclass(frozen=True)
class Estimate:
    """What a spec would do."""

    trials: int | None
    points: int | None
    replicates: int
    #: Optimizer steps of all trials together.
    steps: int | None
    #: None if no finished trial is similar to those of the spec.
    gpu_hours: float | None
    #: Difference of two means that the seeds can show, as a fraction; None for a single seed.
    detectable_difference: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MatchEstimate:
    """What a match would do, with the closed form's prediction."""

    #: The target's open field, and its rate under each criterion by the closed form.
    rate_name: str
    rates: tuple[tuple[str, float], ...]
    #: What the verdict will use.
    criterion: str
    level: str
    #: Steps that the verdict covers: start <= step < stop.
    window: tuple[int, int]
    #: Without corrections, and with the largest number of them.
    least_trials: int
    most_trials: int
    #: Optimizer steps of the largest number of trials.
    most_steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The answer to a spec: what is refused, or what it would do."""

    refused: tuple[FieldReason, ...]
    estimate: Estimate | MatchEstimate | None


class Refused(Exception):
    """Raised if a spec was refused, with the reasons by field."""

    def __init__(self, reasons: tuple[FieldReason, ...]) -> None:
        super().__init__("; ".join(item["reason"] for item in reasons))
        self.reasons = reasons


class Submitting(Protocol):
    """How pages submit specs. The service provides it; without one, pages are read-only."""

    def datasets(self) -> list[str]:
        """Names of the prepared data sets."""

    def check(self, kind: Kind, spec: Mapping[str, Any]) -> Checked:
        """Return what a spec would do, or the API's refusals; creates nothing."""

    def create(self, kind: Kind, spec: Mapping[str, Any], key: str) -> str:
        """Queue a spec and return the id; the same key and spec give the same sweep.

        Raises:
            Refused: With the fields that are refused, and why.
        """


#: Verbs of the buttons: those of the API's routes, ``label`` for tags and notes, ``share`` and
#: ``unshare`` for public links, ``view`` and ``unview`` for the views under a name.
VERBS = (
    *("pause", "resume", "cancel", "retry", "extend", "confirm", "label"),
    *("share", "unshare", "view", "unview"),
)


class Steering(Protocol):
    """The service's side of a sweep's buttons, by the rules of its API."""

    def act(self, sweep_id: str, verb: str, values: Mapping[str, str]) -> str:
        """Carry out one of ``VERBS`` with the values of its form; return the sweep to show next.

        Raises SweepsError where the sweep's state forbids it, submitting.Refused for values that
        the API would refuse.
        """

    def add_image(self, sweep_id: str, data: bytes) -> None:
        """Keep an image and show it at the end of the notes; raises ImageRefused."""

    def delete(self, sweep_id: str) -> bool:
        """Delete a sweep in any state; return False if its trials must stop first."""
