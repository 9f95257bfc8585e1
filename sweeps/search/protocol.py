"""What decides which trial comes next: the protocol between a driver and its proposer.

A driver feeds a new proposer with the store's trials in number order, finished ones through
``tell`` and unfinished ones through ``running``, and then asks ``next`` until it is ``Finished``.
So resuming a sweep, retrying and extending it are one thing: replay, then hand out what is missing.
A proposer therefore decides from its spec and from what it was fed alone: no clock, no state of its
own that outlives the process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps.records import Trial
from worker.config.trial_config import TrialConfig
from worker.report import Measurement, Series


@dataclass(frozen=True)
class Proposal:
    """A trial that should run: one point with one training seed."""

    #: Number of the point, counted from 0; the replicates of a point share it.
    point: int
    #: The sampled values; what a person sees of the trial.
    params: dict[str, Any]
    #: All of its hyperparameters, ``config.seed`` included.
    config: TrialConfig
    #: What the trial is for in a match ("source", "calibration", "verdict"); "" in a sweep.
    role: str = ""
    #: Per-step dynamics to record, or None.
    measurement: Measurement | None = None

    @property
    def seed(self) -> int:
        return self.config.seed


@dataclass(frozen=True)
class Wait:
    """Nothing to propose until a running trial ends."""

    #: What is waited for, for the person who watches: "waiting for 3 source trials".
    reason: str = ""


@dataclass(frozen=True)
class Finished:
    """Nothing will be proposed any more, whatever the running trials still report."""

    #: Becomes the reason of the sweep: "all done", "space exhausted", ….
    reason: str = "all done"


class TrialReader(Protocol):
    """Reads what the trials of one sweep recorded: the store's copy, which replay sees too."""

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> Mapping[str, list[tuple[int, float]]]:
        """(step, value) by metric name, thinned to ``max_points`` each; all names if None."""
        ...

    def series(self, number: int, name: str) -> list[Series]:
        """Per-step records of one quantity, in step order; adjacent pieces are joined."""
        ...


class Proposer(Protocol):
    """Decides which trial comes next from the results of earlier ones.

    Called from one thread. The driver calls ``running`` once for each trial that a proposal became
    and ``tell`` once when it ends; both may refer to trials that this proposer never proposed,
    because an earlier process did.
    """

    def next(self) -> Proposal | Wait | Finished:
        """Propose one more trial. After ``Wait``, asked again as soon as a trial was told.

        Proposing what is already in the store is allowed: it is answered from there, through
        ``running`` and, where it has ended, ``tell``.
        """
        ...

    def running(self, trial: Trial) -> None:
        """Learn that a trial exists and will run (again, where it was interrupted)."""
        ...

    def tell(self, trial: Trial) -> None:
        """Learn how a trial ended: its state, objective, metrics. Its series are in the store."""
        ...

    def result(self) -> dict[str, Any] | None:
        """What is known so far, as JSON values to store with the sweep; None = nothing yet."""
        ...
