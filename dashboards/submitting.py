"""What the form of a new sweep asks of the service: check a spec, and queue it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps.explain import FieldReason


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
class Checked:
    """The answer to a spec: what is refused, or what it would do."""

    refused: tuple[FieldReason, ...]
    estimate: Estimate | None


class Refused(Exception):
    """A spec that was not queued, with the reasons by field."""

    def __init__(self, reasons: tuple[FieldReason, ...]) -> None:
        super().__init__("; ".join(item["reason"] for item in reasons))
        self.reasons = reasons


class Submitting(Protocol):
    """How pages hand specs in. The service has one; pages alone have none."""

    def datasets(self) -> list[str]:
        """Names of the prepared data sets."""

    def check(self, spec: Mapping[str, Any]) -> Checked:
        """Say what ``POST /sweeps/validate`` of the API would; creates nothing."""

    def create(self, kind: str, spec: Mapping[str, Any], key: str) -> str:
        """Queue a spec and return the id; the same key and spec give the same sweep.

        Raises:
            Refused: With the fields that are refused, and why.
        """
