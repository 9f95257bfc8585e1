"""The result of a made-up match, with the theory's own numbers where theory has any."""

import math
import random
from typing import Any

from ndadam.theory.prediction import OptimizerSetting, predict
from sweeps.match.result import CriterionRow, Curves, LayerRow, MatchResult

NUM_STEPS = 6000
RATE = 0.0492


def match_spec() -> dict[str, Any]:
    """SGD as in the paper's Table 1, and ND-Adam with its rate open."""
    return {
        "name": "sgd-to-ndadam",
        "base": {
            "dataset": "digits",
            "depth": 10,
            "widen_factor": 1.0,
            "steps": NUM_STEPS,
            "lr_schedule": "cosine",
            # As the shipped match has it: no error is measured.
            "validation_fraction": 0.0,
        },
        "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001},
        "target": {"optimizer": "ndadam", "alpha_s": 0.001, "betas": [0.9, 0.996]},
        "criterion": "least_squares",
        "level": "step",
        "tolerance": 0.05,
        "replicates": 3,
    }


def _cosine(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / NUM_STEPS))


def _prediction() -> Any:
    source = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=0.001)
    target = OptimizerSetting("ndadam")
    return predict(source, target, num_steps=NUM_STEPS, factor=_cosine)


def _criteria(prediction: Any) -> list[CriterionRow]:
    rows: list[CriterionRow] = []
    for name, answer in prediction.criteria.items():
        measured = answer.rate * 1.021
        rows.append(
            {
                "criterion": name,
                "chosen": name == "least_squares",
                "formula": answer.formula,
                "closed_form": answer.rate,
                "predicted": answer.rate * 1.017,
                "measured": {
                    "value": measured,
                    "low": measured * 0.984,
                    "high": measured * 1.017,
                },
            }
        )
    return rows


def _curves(prediction: Any) -> Curves:
    rng = random.Random(5)
    steps = list(range(0, NUM_STEPS, 20))
    known = dict(zip(prediction.curve.steps, prediction.curve.effective_lr, strict=True))
    nearest = sorted(known)
    formula, source, target = [], [], []
    for step in steps:
        value = known[min(nearest, key=lambda s: abs(s - step))]
        formula.append(value)
        source.append(value * math.exp(rng.gauss(0, 0.012)))
        warm = 1 + 0.25 * math.exp(-step / 300)
        turned = RATE * _cosine(step) * math.sqrt(0.1 / 1.9) * warm
        target.append(max(turned, 1e-5) * math.exp(rng.gauss(0, 0.012)))
    return {
        "steps": steps,
        "smoothing_steps": 20,
        "source": source,
        "target": target,
        "target_low": [value * 0.97 for value in target],
        "target_high": [value * 1.035 for value in target],
        "formula": formula,
    }


def _layers() -> list[LayerRow]:
    rng = random.Random(3)
    kinds = ["neither", *["invariant", "jointly_invariant"] * 4, "eps_limited"]
    rows: list[LayerRow] = []
    for index, kind in enumerate(kinds):
        log_ratio = rng.gauss(0.18 if kind == "neither" else 0.0, 0.03)
        rows.append(
            {
                "layer": f"conv{index + 1}",
                "kind": kind,
                "log_ratio": log_ratio,
                "implied_rate": RATE * math.exp(log_ratio),
                "implied_low": RATE * math.exp(log_ratio - 0.02),
                "implied_high": RATE * math.exp(log_ratio + 0.02),
            }
        )
    return rows


def match_result() -> MatchResult:
    """A finished match: matched by least squares, inside the tolerance for part of the run."""
    prediction = _prediction()
    curves = _curves(prediction)
    pairs = list(zip(curves["source"], curves["target"], strict=True))
    inside = sum(abs(math.log(s / t)) <= math.log(1.05) for s, t in pairs) / len(pairs)
    return {
        "stage": "done",
        "progress": 1.0,
        "rate_name": "alpha_v",
        "criterion": "least_squares",
        "level": "step",
        "tolerance": 0.05,
        "criteria": _criteria(prediction),
        "source": {
            "effective_lr": prediction.effective_lr,
            "measured": {"value": 0.01031, "low": 0.01022, "high": 0.0104},
            "tau_steps": prediction.tau_steps,
            "beta2_equivalent": prediction.beta2_equivalent,
            "trust_from_step": prediction.trust_from_step,
            "trust_until_step": prediction.trust_until_step,
            "gain": {"value": 0.962, "low": 0.951, "high": 0.973},
            "gain_by_layer": {f"conv{n}": 0.95 + 0.004 * n for n in range(1, 11)},
            "kappa": 0.0031,
            "balance_residual": 0.0012,
        },
        "calibration": [
            {
                "trial": 3,
                "rate": 0.0489,
                "effective_lr": 0.010221,
                "wanted": 0.01031,
                "log_ratio": 0.00867,
                "slope": 1.0,
                "next_rate": 0.0493,
            },
            {
                "trial": 4,
                "rate": 0.0493,
                "effective_lr": 0.010325,
                "wanted": 0.01031,
                "log_ratio": -0.00145,
                "slope": 0.97,
                "next_rate": RATE,
            },
        ],
        "verdict": {
            "state": "matched",
            "sentence": (
                "Matched by least squares within ±5 %: source over target is 1.004 (0.988 to "
                "1.021) on fresh seeds; the curves are inside the tolerance for "
                f"{inside:.2f} of the run."
            ),
            "rate": RATE,
            "schedule": None,
            "log_ratio": {"value": 0.0041, "low": -0.0121, "high": 0.0207},
            "interval_from": "seeds",
            "window": (300, 5700),
            "drift": {"value": -0.011, "low": -0.034, "high": 0.012},
            "fraction_inside": inside,
            "seeds": [0, 1, 2],
        },
        "layers": _layers(),
        "classes": {"invariant": 144, "jointly_invariant": 128, "neither": 16, "eps_limited": 10},
        "curves": curves,
        "comparison": {
            "metric": "test_error",
            "margin": 0.005,
            "source": {"value": 0.031, "low": 0.028, "high": 0.034},
            "target": {"value": 0.032, "low": 0.029, "high": 0.035},
            "difference": {"value": 0.001, "low": -0.002, "high": 0.004},
            "non_inferior": True,
            "seeds": [6, 7, 8, 9, 10],
            "sentence": "At the matched rate the target is not inferior to the source in test "
            "error, by a margin of 0.5 points: target minus source is +0.1 points, 95 % interval "
            "-0.2 to +0.4, over 5 fresh seeds each.",
        },
        "cost": [
            {"stage": "source", "trials": 3, "steps": 18000, "seconds": 312.0},
            {"stage": "calibration", "trials": 2, "steps": 3000, "seconds": 58.0},
            {"stage": "verdict", "trials": 3, "steps": 18000, "seconds": 334.0},
        ],
        "warnings": [
            "The closed form is not to be trusted beyond step 4632: gradients collapse there."
        ],
    }
