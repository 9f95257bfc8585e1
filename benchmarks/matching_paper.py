"""The paper's own setting: WRN-22-7.5, CIFAR-10, 80,000 steps; SGD beside ND-Adam at 0.05.

Both are trained once with every layer measured. What each criterion would have answered stands
beside the 0.05 that the paper found by hand. About 100 minutes on an H100: measured steps are
eager, and there are 160,000 of them.
"""

import math
from typing import Any

from benchmarks.match_training import Workshop
from ndadam.matching import Pair, fraction_inside, least_block, log_ratio, smooth
from ndadam.theory import CRITERIA, predict
from sweeps.match_arms import setting_of
from worker.config import TrainConfig
from worker.measurement import Measurement

STEPS = 80_000
ALPHA_V = 0.05
#: Steps between two records.
EVERY = 4


def benchmark_paper(shop: Workshop, steps: int = STEPS) -> dict[str, Any]:
    """Predicted and measured alpha^v under every criterion, every layer's curve, the cost."""
    shared = {
        "dataset": "cifar10",
        "recipe": "paper-tf",
        "steps": steps,
        "gamma_c": 2.5,
        "validation_fraction": 0.0,
        "precision": "tf32",
        "report_every": 390,
    }
    source = TrainConfig.model_validate({**shared, "optimizer": "sgd"}).resolved()
    target = TrainConfig.model_validate(
        {**shared, "optimizer": "ndadam", "alpha_v": ALPHA_V}
    ).resolved()
    measured = Measurement(every=EVERY, per_layer=True, shadow_betas=(0.9, 0.999))
    plain = Measurement(every=EVERY, per_layer=True)
    runs = shop.runs([(source, measured), (target, plain)])
    a, b = (run.series["effective_lr"] for run in runs)
    found = predict(
        setting_of(source),
        setting_of(target, open_rate=True),
        num_steps=steps,
        factor=lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)),
        gain=runs[0].metrics.get("gain", 1.0),
    )
    n = len(a)
    window = slice(n // 20, n - n // 20)
    pair = Pair(a[window], b[window])
    block = least_block(0.9, EVERY)
    width = max(1, n // 200)
    return {
        "part": "paper",
        "steps": steps,
        "gain": runs[0].metrics.get("gain"),
        "rates": {
            criterion: {
                "predicted": found.criteria[criterion].rate,
                "measured": None
                if criterion in ("stationary", "schedule")
                else ALPHA_V * math.exp(log_ratio(criterion, pair, block)),
            }
            for criterion in CRITERIA
        },
        "by hand": ALPHA_V,
        "inside 5 %": fraction_inside(smooth(a, width), smooth(b, width), 0.05),
        "curves": {
            name: {"sgd": _thin(series, width), "ndadam": _thin(runs[1].series[name], width)}
            for name, series in runs[0].series.items()
            if name.startswith("effective_lr")
        },
        "stretch": width * EVERY,
        "test_error": [run.metrics.get("test_error") for run in runs],
        "seconds": [run.seconds for run in runs],
    }


def _thin(values: list[float], width: int) -> list[float]:
    return [float(f"{value:.5g}") for value in smooth(values, width)]
