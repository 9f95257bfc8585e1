"""A trial that a driver has started."""

from dataclasses import dataclass, field

from sweeps.driver.store_writer import AttemptLog, Ending
from sweeps.records import Trial
from worker.report import Report


@dataclass(eq=False)
class Run:
    """A trial handed out."""

    trial: Trial
    attempt: AttemptLog | None = None
    last: Report | None = None
    #: Objectives that reports of this attempt had.
    reported: set[str] = field(default_factory=set)
    #: Set once it is known how the run ends, whatever else it may report.
    verdict: Ending | None = None
    #: When it was told to stop although its sweep goes on, on the monotonic clock.
    stop_asked_at: float | None = None
