"""How much of what sweeps leave behind is kept; apart, so that settings need no database."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Keep:
    """How much is kept. Sizes in bytes."""

    sweep_bytes: int = 20 * 10**9
    bytes: int = 200 * 10**9
    #: How long failed and cancelled trials keep their checkpoints after their sweep has ended, and
    #: ended sweeps their progress events.
    days: float = 7.0
