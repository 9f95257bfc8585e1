"""Goes through a part in seconds: three real steps of each kind of run, the rest invented.

What is invented follows the laws, with noise, so that matches, grids and verdicts reach their ends.
What this shows is that a machine has everything that a part wants; its figures mean nothing.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.lockstep import TrainedRun
from benchmarks.matching.training import Workshop
from ndadam.theory.fitted_curve import factor_of_points
from ndadam.theory.laws import stationary_effective_lr
from sweeps.match.arms import setting_of
from worker.config.schedules import build_schedule
from worker.config.train_config import TrainConfig
from worker.report import Measurement

STEPS = 3
#: Relative scatter of an invented step.
_SCATTER = 0.05


class Rehearsal(Workshop):
    """A workshop that trains one short run of each kind and invents the others."""

    def has(self, wanted: Sequence[tuple[TrainConfig, Measurement | None]]) -> bool:
        return True

    def runs(self, wanted: Sequence[tuple[TrainConfig, Measurement | None]]) -> list[TrainedRun]:
        kinds: dict[tuple[object, ...], tuple[TrainConfig, Measurement | None]] = {}
        keys = []
        for config, measurement in wanted:
            key = (
                config.dataset,
                config.network,
                config.depth,
                config.optimizer,
                config.follow is None,
                measurement and (measurement.per_layer, measurement.shadow_betas),
            )
            keys.append(key)
            kinds.setdefault(key, (_short(config), measurement))
        trained = dict(zip(kinds, super().runs(list(kinds.values())), strict=True))
        return [
            _invented(config, measurement, trained[key])
            for key, (config, measurement) in zip(keys, wanted, strict=True)
        ]


def _short(config: TrainConfig) -> TrainConfig:
    """All runs of a kind at one seed and rate, so that one file holds them."""
    same = {"steps": STEPS, "report_every": STEPS, "seed": 0}
    return config.model_copy(update=same | ({"alpha_v": 0.05} if config.alpha_v else {}))


def _invented(
    config: TrainConfig, measurement: Measurement | None, trained: TrainedRun
) -> TrainedRun:
    """The short run with series as long as the run would be."""
    if measurement is None:
        return trained
    steps = config.steps or 0
    count = len(range(0, min(steps, measurement.stop or steps), measurement.every))
    draw = random.Random(config.key())
    factor = build_schedule(config.lr_schedule or "constant", num_steps=steps, steps_per_epoch=1)
    if config.follow is not None:
        wanted = factor_of_points(config.follow)
    else:
        setting = setting_of(config)
        full = stationary_effective_lr(setting)
        power = 1.0 if setting.optimizer == "ndadam" else 0.5
        wanted = lambda step: full * factor(step) ** power  # noqa: E731
    values = [wanted(i * measurement.every) for i in range(count)]
    series = {
        name: [max(value, 1e-9) * math.exp(draw.gauss(0.0, _SCATTER)) for value in values]
        for name in trained.series
    }
    return replace(trained, series=series, every=measurement.every)
