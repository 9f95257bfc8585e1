"""What the buttons of a sweep's page ask of the service."""

from collections.abc import Mapping
from typing import Protocol

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
