"""Hundreds of whole matches on a small real network, to see what their intervals are worth.

The answer is not known from a law here, so it is measured first, far more precisely than a match
does: many seeds of the source and of the target at a few rates, a line through the logs. Then come
the matches, each on seeds of its own, and beside each the verdict on targets at rates that are off
by a known amount. A file is kept of each match.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, linear_regression, variance
from typing import Any

from benchmarks.lockstep import TrainedRun, run_matches
from benchmarks.matching.intervals import (
    TOLERANCE,
    answer_of,
    percent,
    shares,
    state_with,
    times_as_fast,
)
from benchmarks.matching.nets import NETWORKS
from benchmarks.matching.training import StopTime, Workshop, train_one, write_whole
from ndadam.theory.laws import lr_of_effective_lr
from ndadam.theory.prediction import stationary_effective_lr
from sweeps.match.match_spec import MatchSpec
from sweeps.search.protocol import Proposal
from worker.config.train_config import TrainConfig
from worker.report import Measurement

MATCHES, STEPS = 300, 1000
#: Fast to settle (time constant 125 steps), so that runs can be short.
DECAY = 2e-3
#: Matches take turns with these, three runs for each verdict.
MISMATCHES = (0.01, TOLERANCE, -0.01, -TOLERANCE)
#: Seeds and rates, over the closed form's, from which the answer is known.
REFERENCE_SEEDS = tuple(range(1000, 1048))
REFERENCE_RATES = (0.92, 1.0, 1.08)
#: The first seed of the first match, and how far matches are apart.
FIRST_SEED, SEEDS_APART = 10_000, 100


def coverage_spec(network: str, number: int, steps: int = STEPS) -> MatchSpec:
    """A match of SGD (0.1, 0.9, 0.002) and ND-Adam on the seeds that belong to its number."""
    return MatchSpec.model_validate(
        {
            "name": f"coverage {number}",
            "base": {
                **NETWORKS[network],
                "recipe": "paper-wrn",
                "validation_fraction": 0.0,
                "steps": steps,
                "lr_schedule": "constant",
                "report_every": steps,
                "seed": FIRST_SEED + SEEDS_APART * number,
            },
            "source": {
                "optimizer": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "weight_decay": DECAY,
                "decay_on": "vectors",
            },
            "target": {"optimizer": "ndadam", "betas": [0.9, 0.99], "alpha_s": 0.01},
        }
    )


def benchmark_coverage(
    network: str, shop: Workshop, matches: int = MATCHES, steps: int = STEPS
) -> dict[str, Any]:
    """Coverage, bias, and how often "matched" is said; of the matches that time allowed."""
    began = time.perf_counter()
    reference = Reference.measured(network, shop, steps)
    (shop.out / "matches").mkdir(parents=True, exist_ok=True)
    wanted = [MatchJob.of(shop, network, number, steps, reference) for number in range(matches)]
    missing = [job for job in wanted if not Path(job.path).is_file()]
    for i, done in enumerate(shop.spread(match_once, missing), 1):
        if done is None:
            break
        print(f"  {i} of {len(missing)} matches: {Path(done).name}", flush=True)
    kept = [Path(job.path) for job in wanted if Path(job.path).is_file()]
    if not kept:
        raise StopTime("no match has ended")
    found = [json.loads(path.read_text(encoding="utf-8")) for path in kept]
    left = len(wanted) - len(kept)
    return {
        "part": "coverage",
        "network": network,
        "matches": len(found),
        "steps": steps,
        "truth": reference.rate(0.0),
        "truth standard error": reference.error,
        **_summary(found, reference.rate(0.0)),
        "seconds": time.perf_counter() - began,
        **({"stopped": f"{left} of {len(wanted)} matches were not begun"} if left else {}),
    }


def _summary(found: Sequence[dict[str, Any]], truth: float) -> dict[str, Any]:
    said: dict[str, list[bool]] = {}
    for match in found:
        for off, state in match["said"].items():
            said.setdefault(off, []).append(state == "matched")
    return {
        **shares([m["answer"] for m in found], [m["state"] for m in found], [truth] * len(found)),
        "matched said at": {off: fmean(map(float, votes)) for off, votes in said.items()},
        "verdicts at each": {off: len(votes) for off, votes in said.items()},
    }


# --- The answer, precisely -----------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """log(effective rate of the target) = level + slope * log(rate), beside the source's."""

    source: float
    level: float
    slope: float
    #: Standard error of the log of the rate at which both are equal.
    error: float

    def rate(self, off: float) -> float:
        """The rate at which the target is this much faster than the source."""
        wanted = self.source + math.log(times_as_fast(off))
        return float(f"{math.exp((wanted - self.level) / self.slope):.6g}")

    @classmethod
    def measured(cls, network: str, shop: Workshop, steps: int) -> "Reference":
        spec = coverage_spec(network, 0, steps)
        unit = lr_of_effective_lr(spec.target_setting, stationary_effective_lr(spec.source_setting))
        rates = [float(f"{unit * factor:.5g}") for factor in REFERENCE_RATES]
        configs = [spec.source_config, *(spec.target_config(rate) for rate in rates)]
        measured = Measurement(every=1)
        runs = shop.runs(
            [(_seeded(config, seed), measured) for config in configs for seed in REFERENCE_SEEDS]
        )
        n, window = len(REFERENCE_SEEDS), slice(*spec.chosen_window())
        logs = [
            [_log_rms(run.series["effective_lr"][window]) for run in runs[i : i + n]]
            for i in range(0, len(runs), n)
        ]
        return cls._through(rates, logs)

    @classmethod
    def _through(cls, rates: Sequence[float], logs: Sequence[Sequence[float]]) -> "Reference":
        """A line through the means at the rates; logs holds the source's seeds first."""
        source, targets = fmean(logs[0]), [fmean(values) for values in logs[1:]]
        x = [math.log(rate) for rate in rates]
        slope, level = linear_regression(x, targets)
        spread = [variance(values) / len(values) for values in logs]
        # Near the middle of the rates the line's error is that of the mean of its points.
        error = math.sqrt(spread[0] + sum(spread[1:]) / len(rates) ** 2) / slope
        return cls(source, level, slope, error)


def _log_rms(values: Sequence[float]) -> float:
    return math.log(fmean(v * v for v in values)) / 2


def _seeded(config: TrainConfig, seed: int) -> TrainConfig:
    return config.model_copy(update={"seed": seed})


# --- One match -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchJob:
    """A whole match for one process."""

    path: str
    home: str
    network: str
    number: int
    steps: int
    #: A mismatch and the rate of the target that makes it.
    mismatch: str
    mismatched_rate: float
    until: float | None

    @classmethod
    def of(
        cls, shop: Workshop, network: str, number: int, steps: int, reference: Reference
    ) -> "MatchJob":
        off = MISMATCHES[number % len(MISMATCHES)]
        return cls(
            str(shop.out / "matches" / f"{network}-{steps}-{number}.json"),
            str(shop.data_home),
            network,
            number,
            steps,
            percent(off),
            reference.rate(off),
            shop.until,
        )


def match_once(job: MatchJob) -> str | None:
    """Run one match and the verdicts beside it, and write its file; None if time has come."""
    spec = coverage_spec(job.network, job.number, job.steps)

    def trained(config: TrainConfig, measurement: Measurement | None) -> TrainedRun:
        run = train_one(config, measurement, job.home, job.until)
        if run is None:
            raise StopTime("the time to stop has come")
        return run

    def train(wanted: Sequence[tuple[int, Proposal]]) -> list[TrainedRun]:
        return [trained(proposal.config, proposal.measurement) for _, proposal in wanted]

    try:
        (outcome,) = run_matches([spec], train)
        config = spec.target_config(job.mismatched_rate)
        runs = [trained(_seeded(config, s), Measurement(every=1)) for s in spec.seeds()]
    except StopTime:
        return None
    verdict = outcome.result["verdict"]
    write_whole(
        job.path,
        {
            "number": job.number,
            "answer": answer_of(outcome),
            "state": verdict["state"],
            "rests on": verdict["interval_from"],
            "log ratio": verdict["log_ratio"],
            "said": {
                job.mismatch: state_with(outcome, [run.series["effective_lr"] for run in runs])
            },
        },
    )
    return job.path
