"""A trial on its way through a driver, and where its files lie."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from sweeps.driver.store_writer import AttemptLog, Ending
from sweeps.records import Trial
from worker.report import Report


@dataclass(eq=False)
class Run:
    """A trial handed out."""

    trial: Trial
    attempt: AttemptLog | None = None
    last: Report | None = None
    #: Set once it is known how the run ends, whatever else it may report.
    verdict: Ending | None = None
    #: When it was told to stop although its sweep goes on, on the monotonic clock.
    stop_asked_at: float | None = None


@dataclass(frozen=True)
class Places:
    """Where the trials of a sweep keep their files."""

    home: Path
    sweep_id: str
    #: Folder of prepared data sets; None = the worker's default.
    data_home: str | None = None

    def checkpoints(self, number: int) -> Path:
        return self.home / "checkpoints" / self.sweep_id / str(number)

    def discard(self, number: int) -> None:
        """Remove a trial's checkpoints."""
        shutil.rmtree(self.checkpoints(number), ignore_errors=True)

    def log(self, number: int) -> Path:
        return self.home / "logs" / self.sweep_id / f"{number}.log"


@dataclass(frozen=True)
class Objective:
    """The metric that a sweep is about."""

    metric: str
    #: "minimize" or "maximize".
    direction: str
