"""The paper's own setting, that of Fig. 1 (b): SGD beside ND-Adam at 0.05 for 80,000 steps.

Both are trained once with every layer measured. What each criterion would have answered stands
beside the 0.05 that the paper found by hand; a third run, on a seed of its own, is trained at the
answer by least squares, to see how much of the run it follows. ``curves_by_law`` gives what both
laws say of the first two.
"""

import math
from typing import Any

from benchmarks.lockstep import TrainedRun
from benchmarks.matching.training import StopTime, Workshop
from ndadam.matching.verdict import (
    Pair,
    fraction_inside,
    least_block,
    log_ratio,
    rms_log_error,
    smooth,
)
from ndadam.theory.along_schedule import interpolate
from ndadam.theory.prediction import CRITERIA, Criterion, lag_curve, predict
from sweeps.match.arms import setting_of
from worker.config.train_config import TrainConfig
from worker.report import Measurement

STEPS = 80_000
ALPHA_V = 0.05
#: Steps between two records.
EVERY = 4


def benchmark_paper(shop: Workshop, steps: int = STEPS) -> dict[str, Any]:
    """Predicted and measured alpha^v under every criterion, every layer's curve, the cost."""
    source, target = paper_configs(steps)
    measured = Measurement(every=EVERY, per_layer=True, shadow_betas=(0.9, 0.999))
    plain = Measurement(every=EVERY, per_layer=True)
    runs = shop.runs([(source, measured), (target, plain)])
    a, b = (run.series["effective_lr"] for run in runs)
    found = predict(
        setting_of(source),
        setting_of(target, open_rate=True),
        num_steps=steps,
        factor=lambda step: _cosine(step, steps),
        gain=runs[0].metrics.get("gain", 1.0),
    )
    width = max(1, len(a) // 200)
    rates = {
        criterion: {
            "predicted": found.criteria[criterion].rate,
            "measured": None
            if criterion in ("stationary", "schedule")
            else ALPHA_V * math.exp(_log_ratio(criterion, a, b)),
        }
        for criterion in CRITERIA
    }
    answer = float(f"{rates['least_squares']['measured']:.4g}")
    fresh = target.model_copy(update={"alpha_v": answer, "seed": 1})
    try:
        (matched,) = shop.runs([(fresh, plain)])
        runs.append(matched)
        follows = {"alpha_v": answer, **_follows(runs[0], matched)}
    except StopTime:
        follows = {"alpha_v": answer}
    return {
        "part": "paper",
        "steps": steps,
        "gain": runs[0].metrics.get("gain"),
        "rates": rates,
        "by hand": {"alpha_v": ALPHA_V, **_follows(runs[0], runs[1])},
        "matched": follows,
        "curves": {
            name: {"sgd": _thin(series, width), "ndadam": _thin(runs[1].series[name], width)}
            for name, series in runs[0].series.items()
            if name.startswith("effective_lr")
        },
        "stretch": width * EVERY,
        "test_error": [run.metrics.get("test_error") for run in runs],
        "seconds": [run.seconds for run in runs],
    }


def paper_configs(steps: int = STEPS) -> tuple[TrainConfig, TrainConfig]:
    """SGD and ND-Adam at 0.05 as in Fig. 1 (b)."""
    shared = {
        "dataset": "cifar10",
        "recipe": "paper-tf",
        "steps": steps,
        "validation_fraction": 0.0,
        "precision": "bf16",
        "report_every": 390,
    }
    source = {**shared, "optimizer": "sgd"}
    target = {**shared, "optimizer": "ndadam", "alpha_v": ALPHA_V}
    sgd, ndadam = (TrainConfig.model_validate(fields) for fields in (source, target))
    return sgd.resolved(), ndadam.resolved()


def middles(part: dict[str, Any]) -> list[float]:
    """Steps in the middle of the stretches whose means a result's curves hold."""
    return [(i + 0.5) * part["stretch"] for i in range(len(part["curves"]["effective_lr"]["sgd"]))]


def curves_by_law(part: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Effective learning rates of SGD and ND-Adam at the ``middles``, by the laws with measured A.

    Gradients are taken to keep their strength, and norms to begin at balance.
    """
    steps, at, found = part["steps"], middles(part), []
    for config in paper_configs(steps):
        curve = lag_curve(
            setting_of(config),
            lambda step: _cosine(step, steps),
            tuple(range(0, steps, max(1, steps // 800))),
            gain=part["gain"],
        )
        found.append([interpolate(curve.steps, curve.effective_lr, step) for step in at])
    return found[0], found[1]


def _cosine(step: int, steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def without_ends(values: list[float]) -> list[float]:
    """Without the first and last 5 %, where all of it is measured."""
    n = len(values)
    return values[n // 20 : n - n // 20]


def _log_ratio(criterion: Criterion, source: list[float], target: list[float]) -> float:
    """Log of source over target between 5 and 95 % of the run."""
    return log_ratio(
        criterion, Pair(without_ends(source), without_ends(target)), least_block(0.9, EVERY)
    )


def _follows(source: TrainedRun, target: TrainedRun) -> dict[str, float]:
    """How near a run's curve is to the source's, in stretches of a two-hundredth of it."""
    a, b = (run.series["effective_lr"] for run in (source, target))
    width = max(1, len(a) // 200)
    return {
        "source over target": math.exp(_log_ratio("least_squares", a, b)),
        "inside 5 %": fraction_inside(smooth(a, width), smooth(b, width), 0.05),
        "rms log": rms_log_error(smooth(without_ends(a), width), smooth(without_ends(b), width)),
    }


def _thin(values: list[float], width: int) -> list[float]:
    return [float(f"{value:.5g}") for value in smooth(values, width)]
