"""Is it worth it? Tuned SGD, ND-Adam at the matched alpha^v, and ND-Adam tuned with 16 points.

SGD is tuned over learning rate and weight decay on a validation split; a match of the winner gives
alpha^v without looking at any error; sixteen alpha^v draw the curve of error against alpha^v, and
its best is the tuned ND-Adam. Then every arm trains on ten fresh seeds and all training images, and
the matched arm must not be worse than tuned ND-Adam, nor than SGD, by more than a margin that was
declared here before anything ran. Reported as found.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.lockstep import run_matches
from benchmarks.matching.nets import NETWORKS
from benchmarks.matching.training import Workshop
from ndadam.statistics.inference import mean_interval, non_inferiority, welch
from sweeps.match.match_spec import MatchSpec
from worker.config.train_config import TrainConfig

#: Test error that the matched arm may be higher by: declared, in fractions.
MARGINS = {"digits": 0.01, "mlp": 0.01, "cifar-gpu": 0.005}
STEPS = {"digits": 3000, "mlp": 3000, "cifar-gpu": 8000}
#: What SGD is tuned over.
SGD_LR = (0.03, 0.1, 0.3)
SGD_DECAY = (5e-4, 1e-3, 2e-3)
#: alpha^v of tuned ND-Adam, evenly spaced in logs over a factor of 32.
ALPHA_V = tuple(float(f"{0.008 * 32 ** (i / 15):.3g}") for i in range(16))
TUNING_SEEDS = (0, 1)
FRESH_SEEDS = tuple(range(1000, 1010))
BETA2 = 0.99


def benchmark_worth(problem: str, shop: Workshop, steps: int | None = None) -> dict[str, Any]:
    """One problem, from tuning to the verdict."""
    steps = steps or STEPS[problem]
    shared = {**NETWORKS[problem], "recipe": "paper-wrn", "steps": steps, "lr_schedule": "cosine"}
    shared["report_every"] = steps
    sgd, tuning_seconds = _tune_sgd(shared, shop)
    match = _match(shared, sgd, shop)
    curve, grid_seconds = _error_curve(shared, shop)
    best = min(curve, key=lambda row: row["validation_error"])["alpha_v"]
    alpha = match["rate"]
    errors = {
        "tuned SGD": _fresh(shared, _sgd(*sgd), shop),
        "ND-Adam, matched": _fresh(shared, _nd(alpha), shop),
        "ND-Adam, tuned with 16 points": _fresh(shared, _nd(best), shop),
    }
    margin = MARGINS[problem]
    return {
        "part": "worth",
        "problem": problem,
        "steps": steps,
        "margin": margin,
        "sgd": {"lr": sgd[0], "weight_decay": sgd[1]},
        "matched alpha_v": alpha,
        "match verdict": match["sentence"],
        "tuned alpha_v": best,
        "curve": curve,
        "arms": {name: _arm(values) for name, values in errors.items()},
        "comparisons": {
            f"matched against {other}": _compared(errors["ND-Adam, matched"], values, margin)
            for other, values in errors.items()
            if other != "ND-Adam, matched"
        },
        "seconds": {
            "tuning SGD": tuning_seconds,
            "match": match["seconds"],
            "tuning ND-Adam": grid_seconds,
        },
    }


def _sgd(lr: float, decay: float) -> dict[str, Any]:
    return {
        "optimizer": "sgd",
        "lr": lr,
        "momentum": 0.9,
        "weight_decay": decay,
        "decay_on": "vectors",
        "bn_scale": "trainable",
    }


def _nd(alpha_v: float) -> dict[str, Any]:
    return {
        "optimizer": "ndadam",
        "alpha_v": alpha_v,
        "alpha_s": 0.01,
        "betas": (0.9, BETA2),
        "bn_scale": "trainable",
    }


def _tune_sgd(shared: dict[str, Any], shop: Workshop) -> tuple[tuple[float, float], float]:
    points = [(lr, decay) for lr in SGD_LR for decay in SGD_DECAY]
    found, seconds = _validated(shared, [_sgd(*point) for point in points], shop)
    return points[min(range(len(points)), key=found.__getitem__)], seconds


def _error_curve(shared: dict[str, Any], shop: Workshop) -> tuple[list[dict[str, float]], float]:
    found, seconds = _validated(shared, [_nd(alpha) for alpha in ALPHA_V], shop)
    rows = [
        {"alpha_v": alpha, "validation_error": error}
        for alpha, error in zip(ALPHA_V, found, strict=True)
    ]
    return rows, seconds


def _validated(
    shared: dict[str, Any], points: Sequence[dict[str, Any]], shop: Workshop
) -> tuple[list[float], float]:
    """Mean validation error of each point over the tuning seeds; a diverged run counts as 1."""
    configs = [
        TrainConfig.model_validate({**shared, **point, "validation_fraction": 0.2, "seed": seed})
        for point in points
        for seed in TUNING_SEEDS
    ]
    runs = shop.runs([(config, None) for config in configs])
    errors = [run.metrics.get("validation_error", 1.0) for run in runs]
    width = len(TUNING_SEEDS)
    means = [fmean(errors[i : i + width]) for i in range(0, len(errors), width)]
    return means, sum(run.seconds for run in runs)


def _match(shared: dict[str, Any], sgd: tuple[float, float], shop: Workshop) -> dict[str, Any]:
    source = {k: v for k, v in _sgd(*sgd).items() if k != "bn_scale"}
    spec = MatchSpec.model_validate(
        {
            "name": "worth",
            "base": {**shared, "validation_fraction": 0.0},
            "source": source,
            "target": {"optimizer": "ndadam", "betas": [0.9, BETA2], "alpha_s": 0.01},
        }
    )
    (outcome,) = run_matches([spec], shop.train)
    chosen = next(row for row in outcome.result["criteria"] if row["chosen"])
    measured = chosen["measured"]
    return {
        "rate": float(f"{measured['value'] if measured else chosen['predicted']:.5g}"),
        "sentence": outcome.result["verdict"]["sentence"],
        "seconds": sum(row["seconds"] for row in outcome.result["cost"]),
    }


def _fresh(shared: dict[str, Any], arm: dict[str, Any], shop: Workshop) -> list[float]:
    """Test errors on fresh seeds, on all training images."""
    configs = [
        TrainConfig.model_validate({**shared, **arm, "validation_fraction": 0.0, "seed": seed})
        for seed in FRESH_SEEDS
    ]
    return [run.metrics.get("test_error", 1.0) for run in shop.runs([(c, None) for c in configs])]


def _arm(errors: Sequence[float]) -> dict[str, Any]:
    found = mean_interval(errors)
    return {"mean": found.mean, "sd": found.sd, "low": found.low, "high": found.high, "n": found.n}


def _compared(a: Sequence[float], b: Sequence[float], margin: float) -> dict[str, Any]:
    difference = welch(a, b)
    verdict = non_inferiority(difference, margin)
    return {
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "non_inferior": verdict.shown,
    }
