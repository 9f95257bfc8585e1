"""Points of a sweep as a proposer knows them, and what a branch's sampler is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeps.records import TrialState
from sweeps.spec.branches import Branch


@dataclass(frozen=True)
class TriedTrial:
    """What is known of one trial."""

    number: int
    state: TrialState
    #: Last value of each objective, the sweep's own first.
    values: tuple[float | None, ...]


@dataclass
class TriedPoint:
    """A point and what became of its replicates so far."""

    number: int
    params: dict[str, Any]
    #: Number of its branch, -1 until the branches are numbered.
    branch: int = -1
    #: By seed.
    outcomes: dict[int, TriedTrial] = field(default_factory=dict)
    #: Where it was pruned: objective by step, mean over replicates.
    curve: dict[int, float] = field(default_factory=dict)


class BranchSampler(Protocol):
    """One branch and what samples it."""

    branch: Branch
    #: Whether it proposes all of its points again in a new process.
    restarts: bool

    def count(self, points: Iterable[TriedPoint]) -> int:
        """Points that it has proposed: the branch with the fewest is next."""

    def ask(self, points: Iterable[TriedPoint], repeats: int) -> dict[str, Any] | None:
        """Another point; ``repeats`` counts refused ones since the last that was new."""

    def first_draws(self) -> Iterable[dict[str, Any]]:
        """Its points that depend on no result, from the first; the arm is of no use afterwards."""
