"""The paper's tables beside ours: means over seeds, differences with intervals, verdicts.

The paper gives means of three runs and no spread. The interval of a difference therefore takes
the spread of our runs for theirs: mean ± t(n - 1) · s · √(1/n + 1/3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from ndadam.statistics.inference import holm, mean_interval, t_quantile, welch
from sweeps.paper.runs import Arm, PaperRun, PaperRuns
from sweeps.paper.values import PaperClaim, PaperEntry, PaperTable, paper_values

Verdict = Literal["not run", "one run, no interval", "agrees", "lower", "higher"]


@dataclass(frozen=True)
class Measured:
    """Our runs of one arm. Errors in percent."""

    #: By seed, in the order of ``seeds``.
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def n(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class ComparedEntry:
    """A number of the paper and ours."""

    entry: PaperEntry
    measured: Measured
    #: Ours minus the paper's, percentage points; None without runs.
    difference: float | None
    #: Ends of its 95 % interval; None with fewer than two runs.
    low: float | None
    high: float | None
    verdict: Verdict
    #: Why it agrees: "within 0.25 points", "the interval contains 0", or both.
    because: str
    runs: tuple[PaperRun, ...]


@dataclass(frozen=True)
class ArmDifference:
    """Two of our arms of one table, alike in ``of``. Percentage points."""

    #: The table's part for two methods, the method for two parts; "" where there is one part.
    of: str
    over: str
    under: str
    difference: float
    low: float
    high: float
    #: Adjusted after Holm for all differences of its kind in the table.
    p_value: float
    verdict: Literal["lower", "higher", "not shown"]


@dataclass(frozen=True)
class ComparedTable:
    """One table of the paper with our numbers."""

    table: PaperTable
    rows: tuple[ComparedEntry, ...]
    #: Between the methods of each part.
    differences: tuple[ArmDifference, ...]
    #: Of each method between the parts, the later one minus the first.
    gains: tuple[ArmDifference, ...]

    @property
    def num_runs(self) -> int:
        return sum(row.measured.n for row in self.rows)


@dataclass(frozen=True)
class ClaimedArm:
    """A point of a claim's preset with what our runs of it gave."""

    arm: Arm
    metric: str
    measured: Measured


@dataclass(frozen=True)
class ComparedClaim:
    """A sentence of the text, with the arms that try it."""

    claim: PaperClaim
    metric: str
    arms: tuple[ClaimedArm, ...]

    @property
    def num_runs(self) -> int:
        return sum(arm.measured.n for arm in self.arms)


def compared_tables(runs: PaperRuns) -> list[ComparedTable]:
    """Every table of the paper, also those without a run of ours."""
    return [_table(runs, table) for table in paper_values().tables]


def compared_claims(runs: PaperRuns) -> list[ComparedClaim]:
    """Every claim of the text that a preset tries."""
    return [_claim(runs, claim) for claim in paper_values().claims]


def measured(arm: Arm, metric: str) -> Measured:
    """An arm's final errors in percent, with mean, deviation and 95 % t-interval over seeds."""
    having = [run for run in arm.runs if metric in run.metrics]
    values = tuple(100 * run.metrics[metric] for run in having)
    seeds = tuple(run.seed for run in having)
    if not values:
        return Measured((), ())
    found = mean_interval(values)
    return Measured(values, seeds, found.mean, found.sd, found.low, found.high)


def _table(runs: PaperRuns, table: PaperTable) -> ComparedTable:
    rows = tuple(_entry(runs, table, entry) for entry in table.rows)
    pairs = list(combinations((row for row in rows if row.measured.n >= 2), 2))
    methods = [(a, b) for a, b in pairs if a.entry.part == b.entry.part]
    parts = [(b, a) for a, b in pairs if a.entry.label == b.entry.label]
    return ComparedTable(
        table,
        rows,
        differences=_differences(methods, of="part", between="label"),
        gains=_differences(parts, of="label", between="part"),
    )


def _entry(runs: PaperRuns, table: PaperTable, entry: PaperEntry) -> ComparedEntry:
    arm = runs.arm(table.preset, entry.params)
    ours = measured(arm, "test_error")
    if ours.mean is None:
        return ComparedEntry(entry, ours, None, None, None, "not run", "", ())
    gap = ours.mean - entry.test_error
    if ours.sd is None:
        verdict: Verdict = "one run, no interval"
        return ComparedEntry(entry, ours, gap, None, None, verdict, "", arm.runs)
    paper = paper_values()
    half = t_quantile(0.975, ours.n - 1) * ours.sd * math.sqrt(1 / ours.n + 1 / paper.runs)
    reasons = []
    if abs(gap) <= paper.margin + 1e-9:
        reasons.append(f"within {paper.margin:g} points")
    if abs(gap) <= half:
        reasons.append("the interval contains 0")
    verdict = "agrees" if reasons else "lower" if gap < 0 else "higher"
    because = " and ".join(reasons)
    return ComparedEntry(entry, ours, gap, gap - half, gap + half, verdict, because, arm.runs)


def _differences(
    pairs: Sequence[tuple[ComparedEntry, ComparedEntry]], *, of: str, between: str
) -> tuple[ArmDifference, ...]:
    """Welch for each pair, Holm over them all. ``of`` and ``between`` are fields of an entry."""
    found = [welch(a.measured.values, b.measured.values) for a, b in pairs]
    adjusted = holm([difference.p_value for difference in found]) if found else []
    return tuple(
        ArmDifference(
            of=getattr(a.entry, of),
            over=getattr(a.entry, between),
            under=getattr(b.entry, between),
            difference=difference.difference,
            low=difference.low,
            high=difference.high,
            p_value=p_value,
            verdict=difference.direction(p_value),
        )
        for (a, b), difference, p_value in zip(pairs, found, adjusted, strict=True)
    )


def _claim(runs: PaperRuns, claim: PaperClaim) -> ComparedClaim:
    arms = runs.arms(claim.preset)
    metric = "validation_error" if arms[0].config["validation_fraction"] else "test_error"
    return ComparedClaim(
        claim, metric, tuple(ClaimedArm(arm, metric, measured(arm, metric)) for arm in arms)
    )
