"""Matches on real networks beside a dense grid and beside the cheapest honest rival.

The grid trains ND-Adam at eight alpha^v on three seeds and interpolates in logs to where it moves
as fast as the measured source: the most careful answer that running things can give. The rival is
what one would do without theory: two short runs and a ratio.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression, stdev
from typing import Any

from benchmarks.lockstep import MatchOutcome, TrainedRun, run_matches
from benchmarks.matching.training import StopTime, Workshop
from ndadam.matching.plan import MatchPlan
from ndadam.matching.verdict import Pair, log_ratio, rms_log_error
from ndadam.statistics.blocked_means import rms, rms_over, smooth
from ndadam.theory.laws import lr_of_effective_lr
from ndadam.theory.prediction import predict, stationary_effective_lr
from sweeps.match.match_spec import MatchSpec
from worker.config.train_config import TrainConfig
from worker.report import Measurement

#: alpha^v of the grid over the closed form's.
GRID = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)
SEEDS = (100, 101, 102)
STEPS = 6000
#: The last 2,500 steps; everything between 5 and 95 % of the run under a cosine.
CONSTANT_WINDOW = (3500, 6000)
#: Steps of each of the rival's runs, of which the second half counts.
RIVAL_STEPS = 1000
#: Second moments with which a whole cosine is followed: about SGD's own memory, and the usual one.
CONTROL_BETA2 = (0.996, 0.999)
#: Stretches of a run by which curves are said to follow each other.
STRETCHES = 50

#: What is trained, by the name of the part.
NETWORKS: dict[str, dict[str, Any]] = {
    "digits": {
        "device": "cpu",
        "dataset": "digits",
        "depth": 10,
        "widen_factor": 1.0,
        "gamma_c": 2.5,
        "flip": False,
        "crop_pad": 4,
        "last_batch": "drop",
        "batch_size": 32,
    },
    "mlp": {
        "device": "cpu",
        "dataset": "digits",
        "network": "mlp",
        "depth": 2,
        "widen_factor": 1.0,
        "gamma_c": 2.5,
        "flip": False,
        "crop_pad": 2,
        "last_batch": "drop",
        "batch_size": 32,
    },
    "cifar-gpu": {
        "dataset": "cifar10",
        "depth": 10,
        "widen_factor": 1.0,
        "gamma_c": 2.5,
        "last_batch": "drop",
        "batch_size": 128,
        "precision": "bf16",
    },
}


@dataclass(frozen=True)
class Cell:
    """One comparison: a network, a schedule, a weight decay, a beta2."""

    network: str
    schedule: str
    weight_decay: float
    beta2: float
    steps: int = STEPS

    def spec(self) -> MatchSpec:
        fields: dict[str, Any] = {
            "name": str(self),
            "base": {
                **NETWORKS[self.network],
                "recipe": "paper-wrn",
                "validation_fraction": 0.0,
                "steps": self.steps,
                "lr_schedule": self.schedule,
                "report_every": self.steps,
            },
            "source": {
                "optimizer": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "weight_decay": self.weight_decay,
                "decay_on": "vectors",
            },
            "target": {"optimizer": "ndadam", "betas": [0.9, self.beta2], "alpha_s": 0.01},
        }
        if self.schedule == "constant":
            start, stop = (x * self.steps // STEPS for x in CONSTANT_WINDOW)
            fields["window"] = [start, stop]
        return MatchSpec.model_validate(fields)

    def __str__(self) -> str:
        return f"{self.network} {self.schedule} lambda {self.weight_decay:g} beta2 {self.beta2:g}"


def cells(network: str, steps: int = STEPS) -> list[Cell]:
    """Constant and cosine, two weight decays, two beta2."""
    return [
        Cell(network, schedule, decay, beta2, steps)
        for schedule in ("constant", "cosine")
        for decay in (1e-3, 5e-4)
        for beta2 in (0.99, 0.999)
    ]


def benchmark_nets(network: str, shop: Workshop, steps: int = STEPS) -> dict[str, Any]:
    """Every cell of a network: the match, the grid, the rival, and what each cost.

    Where the time to stop comes among the grids, cells whose grid was not complete keep what their
    match found, with nothing beside it.
    """
    chosen = cells(network, steps)
    controls = [schedule_spec(network, steps, beta2) for beta2 in CONTROL_BETA2]
    print(f"{network}: matches", flush=True)
    outcomes = run_matches([*(cell.spec() for cell in chosen), *controls], shop.train)
    matched, scheduled = outcomes[: len(chosen)], outcomes[len(chosen) :]
    print(f"{network}: closed loops, grids and rivals", flush=True)
    # All at once, which keeps many cores busy; each row then finds its own in files.
    wanted = [run for outcome in scheduled for run in _loop_runs(outcome)]
    wanted += [run for cell in chosen for run in (*_grid_runs(cell), *_rival_runs(cell))]
    stopped = {}
    try:
        shop.runs(wanted)
    except StopTime as stop:
        stopped = {"stopped": str(stop)}
    rows = [_row(cell, outcome, shop) for cell, outcome in zip(chosen, matched, strict=True)]
    controlled = [control(one, shop) for one in scheduled if shop.has(_loop_runs(one))]
    part = {"part": network, "steps": steps, "cells": len(chosen)}
    return {**part, "rows": rows, "control": controlled, **stopped}


def _row(cell: Cell, outcome: MatchOutcome, shop: Workshop) -> dict[str, Any]:
    spec, result = cell.spec(), outcome.result
    complete = shop.has([*_grid_runs(cell), *_rival_runs(cell)])
    grid = grid_answer(cell, outcome, shop) if complete else None
    rival, rival_seconds = rival_answer(cell, shop) if complete else (None, None)
    chosen = next(row for row in result["criteria"] if row["chosen"])
    answer = chosen["measured"]
    match_seconds = sum(row["seconds"] for row in result["cost"])
    return {
        "cell": str(cell),
        "criterion": spec.chosen_criterion(),
        "grid": grid.rate if grid else None,
        "grid error": grid.error if grid else None,
        "match": answer["value"] if answer else None,
        "interval": [answer["low"], answer["high"]] if answer else None,
        "match off": _off(answer["value"] if answer else None, grid),
        "predicted off": _off(chosen["predicted"], grid),
        "closed form off": _off(_closed_form(spec, result), grid),
        "rival off": _off(rival, grid),
        "verdict": result["verdict"]["sentence"],
        "gain": result["source"]["gain"] and result["source"]["gain"]["value"],
        "seconds": {
            "match": match_seconds,
            "grid": grid.seconds if grid else None,
            "rival": rival_seconds,
        },
    }


def _off(found: float | None, grid: "GridAnswer | None") -> float | None:
    return None if found is None or grid is None else found / grid.rate - 1


def _closed_form(spec: MatchSpec, result: dict[str, Any]) -> float:
    """From settings and the measured gain A alone, under the cell's criterion."""
    gain = result["source"]["gain"]
    found = predict(
        spec.source_setting,
        spec.target_setting,
        num_steps=spec.num_steps,
        factor=spec.factor(),
        gain=gain["value"] if gain else 1.0,
    )
    return found.criteria[spec.chosen_criterion()].rate


@dataclass(frozen=True)
class GridAnswer:
    """alpha^v at which the grid's curve has the source's rate."""

    rate: float
    #: Standard error of its log, from the answers of single seeds.
    error: float
    #: Seconds of the grid's runs.
    seconds: float


def grid_answer(cell: Cell, outcome: MatchOutcome, shop: Workshop) -> GridAnswer:
    rates, runs = _grid_rates(cell), shop.runs(_grid_runs(cell))
    sources = [run for _, run in _of(outcome, "source")]
    n = len(SEEDS)

    def crossing(seeds: slice) -> float:
        source, gaps = _mean(sources[seeds]), []
        for i, rate in enumerate(rates):
            target = _mean(runs[i * n : (i + 1) * n][seeds])
            gaps.append((math.log(rate), _log_ratio(cell.spec().plan, source, target)))
        return _crossing(gaps)

    singles = [crossing(slice(k, k + 1)) for k in range(n)]
    return GridAnswer(
        math.exp(crossing(slice(None))),
        stdev(singles) / math.sqrt(n),
        sum(run.seconds for run in runs),
    )


def _log_ratio(plan: MatchPlan, source: Sequence[float], target: Sequence[float]) -> float:
    pair = Pair(plan.in_window(source), plan.in_window(target))
    return log_ratio(plan.criterion, pair, plan.least_block)


def _grid_rates(cell: Cell) -> list[float]:
    spec = cell.spec()
    unit = lr_of_effective_lr(spec.target_setting, stationary_effective_lr(spec.source_setting))
    return [float(f"{unit * factor:.5g}") for factor in GRID]


def _grid_runs(cell: Cell) -> list[tuple[TrainConfig, Measurement | None]]:
    spec = cell.spec()
    return [
        (spec.target_config(rate).model_copy(update={"seed": seed}), _headline(spec))
        for rate in _grid_rates(cell)
        for seed in SEEDS
    ]


def _rival_runs(cell: Cell) -> list[tuple[TrainConfig, Measurement | None]]:
    spec = cell.spec()
    measured = Measurement(every=1, stop=RIVAL_STEPS)
    shorter = {"steps": RIVAL_STEPS, "report_every": None}
    return [
        (config.model_copy(update=shorter), measured)
        for config in (spec.source_config, spec.target_config(0.05))
    ]


def _crossing(gaps: Sequence[tuple[float, float]]) -> float:
    """Where a straight line through (log rate, log ratio) crosses 0, by least squares.

    Over the four points nearest to 0: interpolation between two would keep all of their noise.
    """
    near = sorted(gaps, key=lambda point: abs(point[1]))[:4]
    slope, intercept = linear_regression(*zip(*near, strict=True))
    return -intercept / slope


def rival_answer(cell: Cell, shop: Workshop) -> tuple[float, float]:
    """Two short runs and a ratio: alpha^v 0.05, times SGD's rate over ND-Adam's."""
    source, target = shop.runs(_rival_runs(cell))
    half = RIVAL_STEPS // 2
    a, b = (rms(run.series["effective_lr"][half:]) for run in (source, target))
    return 0.05 * a / b, source.seconds + target.seconds


def schedule_spec(network: str, steps: int, beta2: float) -> MatchSpec:
    """A match by schedule under a cosine."""
    fields = (
        Cell(network, "cosine", 1e-3, beta2, steps)
        .spec()
        .model_dump(mode="json", exclude_unset=True)
    )
    return MatchSpec.model_validate({**fields, "criterion": "schedule"})


def control(outcome: MatchOutcome, shop: Workshop) -> dict[str, Any]:
    """The schedule criterion and the closed loop against SGD's curve under a cosine."""
    source = _mean([run for _, run in _of(outcome, "source")])
    verdict = _mean([run for _, run in _of(outcome, "verdict")])
    closed = _mean(shop.runs(_loop_runs(outcome)))
    return {
        "cell": outcome.spec.name,
        "schedule rms log": _follows(source, verdict),
        "schedule first 5 %": _first(source, verdict),
        "closed loop rms log": _follows(source, closed),
        "closed loop first 5 %": _first(source, closed),
        "verdict": outcome.result["verdict"]["sentence"],
    }


def _loop_runs(outcome: MatchOutcome) -> list[tuple[TrainConfig, Measurement | None]]:
    """Closed loops along the curve that the match's sources recorded, one per seed."""
    spec = outcome.spec
    loop = spec.target_config(0.05).model_dump(exclude_none=True)
    loop["follow"] = points_of_curve(
        _mean([run for _, run in _of(outcome, "source")]), spec.record_every
    )
    loop["alpha_s_schedule"] = "cosine"
    del loop["alpha_v"]
    configs = [TrainConfig.model_validate({**loop, "seed": seed}) for seed in spec.seeds()]
    return [(config, _headline(spec)) for config in configs]


def points_of_curve(source: Sequence[float], every: int) -> tuple[tuple[int, float], ...]:
    """Records of every ``every``-th step as the points that a closed loop follows."""
    width = max(1, len(source) // 400)
    values = smooth(source, width)
    return tuple(((i * width + width // 2) * every, value) for i, value in enumerate(values))


def _follows(source: Sequence[float], target: Sequence[float]) -> float:
    """RMS log error between 5 and 95 % of the run, in stretches of a fiftieth of it."""
    n = len(source)
    start, stop = n // 20, n - n // 20
    width = max(1, n // STRETCHES)
    return rms_log_error(smooth(source[start:stop], width), smooth(target[start:stop], width))


def _first(source: Sequence[float], target: Sequence[float]) -> float:
    """Target over source in the first 5 % of the run."""
    n = len(source) // 20
    return rms(target[:n]) / rms(source[:n])


def _headline(spec: MatchSpec) -> Measurement:
    return Measurement(every=spec.record_every)


def _of(outcome: MatchOutcome, role: str) -> list[tuple[int, TrainedRun]]:
    records = outcome.records
    return [(t.number, records.runs[t.number]) for t in records.trials if t.role == role]


def _mean(runs: Sequence[TrainedRun]) -> list[float]:
    """Root mean square over seeds."""
    return rms_over([run.series["effective_lr"] for run in runs])
