"""How far a match is: what its proposer has decided from the trials it was told."""

from dataclasses import dataclass, field

from sweeps.records import Trial
from worker.config.train_config import SchedulePoints


@dataclass(frozen=True)
class CalibrationRun:
    """One calibration run: what it did and what was wanted."""

    trial: int
    effective_lr: float
    log_ratio: float


@dataclass(frozen=True)
class Round:
    """One calibration round: its runs at one rate, and the rate that follows."""

    rate: float
    runs: tuple[CalibrationRun, ...]
    #: Mean over runs.
    log_ratio: float
    slope: float
    next_rate: float


@dataclass
class MatchState:
    """Decisions in the order in which they are made. Rebuilt from the trials whenever asked."""

    #: Complete source runs, one per seed; empty until all are.
    sources: list[Trial] = field(default_factory=list)
    #: Whether the source is known: its runs are complete, or it was recorded before.
    has_source: bool = False
    #: A, averaged over sources; 1 where the target has none.
    gain: float = 1.0
    #: The rate by the chosen criterion from measured sources and gain.
    predicted: float | None = None
    #: For criterion schedule, the target's lr_schedule.
    points: SchedulePoints | None = None
    rounds: list[Round] = field(default_factory=list)
    #: Whether calibration has ended, so that ``rate`` is the one that the verdict tests.
    is_calibrated: bool = False
    rate: float | None = None
    #: Complete verdict runs, in the order of ``sources``; empty until all are.
    verdicts: list[Trial] = field(default_factory=list)
    #: Complete runs on fresh seeds, source and target in turns; empty until all are.
    compared: list[Trial] = field(default_factory=list)
    #: Why there is no comparison, where one was asked for and cannot be made.
    uncompared: str | None = None
    #: Why the match cannot be made, where it cannot.
    refused: str | None = None
    #: Why there is no verdict, where a trial failed; a retry may still lead to one.
    stopped: str | None = None
