"""What agents send and what they are answered: ask, report, tell. See ``AgentVerbs``."""

from dataclasses import dataclass, field

from sweeps.records import SweepState, Trial, TrialState

#: Metric names that the attempts at one trial may have in all.
MAX_METRIC_NAMES = 1000
#: Seconds that an agent may be silent, unless it asks for another time.
LEASE_SECONDS = 60.0


@dataclass(frozen=True)
class Ask:
    """A question for trials to run."""

    sweep_id: str
    #: Who asks; people read it beside the trial.
    agent: str
    count: int = 1
    lease_seconds: float = LEASE_SECONDS
    #: The same key again is answered with the trials of the first time that still run.
    key: str | None = None


@dataclass(frozen=True)
class AgentReport:
    """Metrics at one step; None is a value that is not finite."""

    step: int
    metrics: dict[str, float | None]
    num_steps: int | None = None


@dataclass(frozen=True)
class AgentReports:
    """Reports of one leased trial, in the order of their steps. None of them: a heartbeat."""

    sweep_id: str
    number: int
    lease: str
    reports: tuple[AgentReport, ...] = ()


@dataclass(frozen=True)
class Tell:
    """How a leased trial ended."""

    sweep_id: str
    number: int
    lease: str
    #: Complete, failed or diverged; waiting: the agent gives it back, and others may run it.
    state: TrialState
    reason: str = ""
    metrics: dict[str, float | None] = field(default_factory=dict)
    #: Of ``metrics``; None = the last step reported, or the next if they were reported before.
    step: int | None = None


AgentRequest = Ask | AgentReports | Tell


@dataclass(frozen=True)
class Leased:
    """A trial that an agent may run until it is silent for ``seconds``."""

    trial: Trial
    lease: str
    seconds: float


@dataclass(frozen=True)
class Handout:
    """The answer to a question: trials, or why there are none."""

    trials: list[Leased]
    #: "" where there are trials.
    reason: str
    state: SweepState

    @property
    def is_over(self) -> bool:
        """Whether no trial will come any more, unless somebody extends the sweep."""
        return not self.trials and self.state.is_finished()


@dataclass(frozen=True)
class Heard:
    """The answer to reports: whether the trial must stop, and why."""

    stop: bool
    reason: str
    #: Seconds until the lease ends unless something is heard; 0 with ``stop``.
    seconds: float


@dataclass(frozen=True)
class Told:
    """The answer to an ending: the trial's state now, which an earlier verdict may have set."""

    state: TrialState
    reason: str


Answer = Handout | Heard | Told


@dataclass(frozen=True)
class LapsedLease:
    """A trial whose agent has been silent for longer than its lease."""

    sweep_id: str
    number: int
    attempt_id: int
    agent: str
    #: For how long.
    seconds: float
    #: How long it may be.
    lease_seconds: float
