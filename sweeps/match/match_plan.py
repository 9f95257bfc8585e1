"""The trials of each stage of a match, as proposals. Nothing here looks at results.

Source and verdict run on the seeds base.seed + k, so that a pair shares its data order.
Calibration runs on the seeds behind them: nothing that a verdict sees was used to choose the rate.
"""

from typing import Any

from sweeps.match.match_spec import MatchSpec
from sweeps.search.protocol import Proposal
from worker.config.train_config import SchedulePoints, TrainConfig
from worker.report import Measurement

#: Significant digits of a proposed rate: far below any tolerance, and equal after any replay.
_DIGITS = 5


def rounded(rate: float) -> float:
    """A rate as it is proposed and stored."""
    return float(f"{rate:.{_DIGITS}g}")


def source_proposals(spec: MatchSpec) -> list[Proposal]:
    """One run of the source per seed, with shadow moments where the target is ndadam.

    None where its curve was recorded before.
    """
    if spec.source.curve is not None:
        return []
    shadow = spec.target_setting.betas if spec.target.optimizer == "ndadam" else None
    return [
        Proposal(
            point=0,
            params={"optimizer": spec.source.optimizer},
            config=_with_seed(spec.source_config, seed),
            role="source",
            measurement=_measurement(spec, shadow),
        )
        for seed in spec.seeds()
    ]


def calibration_proposals(
    spec: MatchSpec, number: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Calibration round ``number`` (from 0), on seeds that no other run has."""
    config = spec.calibration_config(rate, points)
    first = spec.seeds()[-1] + 1 + number * spec.calibration_replicates
    return [
        Proposal(
            point=1 + number,
            params=_params(spec, rate),
            config=_with_seed(config, first + k),
            role="calibration",
            measurement=_measurement(spec, None),
        )
        for k in range(spec.calibration_replicates)
    ]


def verdict_proposals(
    spec: MatchSpec, rounds: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Fresh runs at the final rate, after ``rounds`` calibration rounds."""
    config = spec.target_config(rate, points)
    return [
        Proposal(
            point=1 + rounds,
            params=_params(spec, rate),
            config=_with_seed(config, seed),
            role="verdict",
            measurement=_measurement(spec, None),
        )
        for seed in spec.seeds()
    ]


def comparison_proposals(
    spec: MatchSpec, rounds: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Source and target at the matched rate on fresh seeds, in pairs, without measurement."""
    source = (0, {"optimizer": spec.source.optimizer}, spec.source_config)
    target = (1 + rounds, _params(spec, rate), spec.target_config(rate, points))
    return [
        Proposal(point=point, params=params, config=_with_seed(config, seed), role="comparison")
        for seed in spec.comparison_seeds()
        for point, params, config in (source, target)
    ]


def _params(spec: MatchSpec, rate: float) -> dict[str, Any]:
    return {"optimizer": spec.target.optimizer, spec.rate_name: rate}


def _with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    return config.model_copy(update={"seed": seed})


def _measurement(spec: MatchSpec, shadow: tuple[float, float] | None) -> Measurement:
    return Measurement(every=spec.record_every, per_layer=True, shadow_betas=shadow)
