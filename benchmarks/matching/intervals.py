"""What intervals and verdicts of many matches are worth, where the answer is known."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.lockstep import MatchOutcome
from ndadam.matching.verdict import Pair, drift, judge, measure

TOLERANCE = 0.05


def times_as_fast(off: float) -> float:
    """Target over source at a mismatch: 1.05 at 0.05, and 1 / 1.05 at -0.05."""
    return 1 + off if off >= 0 else 1 / (1 - off)


def percent(off: float) -> str:
    return f"{100 * off:+z.0f} %"


def answer_of(outcome: MatchOutcome) -> dict[str, float] | None:
    """The measured rate with its interval; None where a match could not be made."""
    row = next(r for r in outcome.result["criteria"] if r["criterion"] == "stationary")
    found: dict[str, float] | None = row["measured"]
    return found


def state_with(outcome: MatchOutcome, targets: Sequence[Sequence[float]]) -> str:
    """The verdict on other runs of the target, one curve per seed, beside the match's sources."""
    spec = outcome.spec
    start, stop = spec.chosen_window()
    sources = [t for t in outcome.records.trials if t.role == "source"]
    pairs = [
        Pair(
            outcome.records.runs[trial.number].series["effective_lr"][start:stop],
            target[start:stop],
        )
        for trial, target in zip(sources, targets, strict=True)
    ]
    verdict = judge(
        "stationary",
        measure("stationary", pairs, spec.plan.least_block, memory=spec.plan.memory),
        drift("stationary", pairs, spec.plan.least_block, memory=spec.plan.memory),
        tolerance=TOLERANCE,
        inside=1.0,
        num_seeds=len(pairs),
    )
    return verdict.state


def shares(
    answers: Sequence[Mapping[str, float] | None], states: Sequence[str], truth: Sequence[float]
) -> dict[str, Any]:
    """How often the interval holds the truth, and the mean error of its middle.

    A match without an answer covers nothing.
    """
    known = [(a, rate) for a, rate in zip(answers, truth, strict=True) if a is not None]
    errors = [math.log(a["value"] / rate) for a, rate in known]
    n = len(errors)
    mean = sum(errors) / n
    sd = math.sqrt(sum((x - mean) ** 2 for x in errors) / max(1, n - 1))
    return {
        "coverage": sum(a["low"] <= rate <= a["high"] for a, rate in known) / len(answers),
        "bias": math.expm1(mean),
        "bias standard error": sd / math.sqrt(n),
        "scatter": sd,
        "half width": sum(math.log(a["high"] / a["low"]) for a, _ in known) / 2 / n,
        "matched": states.count("matched") / len(states),
    }
