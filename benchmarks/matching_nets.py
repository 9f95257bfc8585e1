"""Matches on real networks beside a dense grid and beside the cheapest honest rival.

The grid trains ND-Adam at eight alpha^v on three seeds and interpolates in logs to where it moves
as fast as the measured source: the most careful answer that running things can give. The rival is
what one would do without theory: two short runs and a ratio.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.lockstep import MatchOutcome, TrainedRun, run_matches
from benchmarks.match_training import Workshop
from ndadam.matching import Pair, log_ratio, rms_log_error, smooth
from ndadam.optimizer_laws import lr_of_effective_lr
from ndadam.theory import predict, stationary_effective_lr
from sweeps.match_series import Recorded, rms_over
from sweeps.match_spec import MatchSpec
from worker.config import TrainConfig
from worker.measurement import Measurement

#: alpha^v of the grid over the closed form's.
GRID = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)
SEEDS = (100, 101, 102)
STEPS = 6000
#: The last 2,500 steps; everything between 5 and 95 % of the run under a cosine.
CONSTANT_WINDOW = (3500, 6000)
#: Steps of each of the rival's runs, of which the second half counts.
RIVAL_STEPS = 1000
#: Stretches of a run by which curves are said to follow each other.
STRETCHES = 50

#: What is trained, by the name of the part.
NETWORKS: dict[str, dict[str, Any]] = {
    "digits": {
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
    """Every cell of a network: the match, the grid, the rival, and what each cost."""
    chosen = cells(network, steps)
    print(f"{network}: matches", flush=True)
    outcomes = run_matches([cell.spec() for cell in chosen], shop.train)
    print(f"{network}: grids and rivals", flush=True)
    # All at once, which keeps many cores busy; each cell then finds its own in files.
    shop.runs([run for cell in chosen for run in (*_grid_runs(cell), *_rival_runs(cell))])
    rows = []
    for cell, outcome in zip(chosen, outcomes, strict=True):
        rows.append(_row(cell, outcome, shop))
        print(f"{cell}: {rows[-1]}", flush=True)
    return {"part": network, "steps": steps, "rows": rows, "control": control(network, shop, steps)}


def _row(cell: Cell, outcome: MatchOutcome, shop: Workshop) -> dict[str, Any]:
    spec, result = cell.spec(), outcome.result
    grid, grid_seconds = grid_answer(cell, outcome, shop)
    rival, rival_seconds = rival_answer(cell, shop)
    chosen = next(row for row in result["criteria"] if row["chosen"])
    answer = chosen["measured"]
    match_seconds = sum(row["seconds"] for row in result["cost"])
    return {
        "cell": str(cell),
        "criterion": spec.chosen_criterion(),
        "grid": grid,
        "match": answer["value"] if answer else None,
        "interval": [answer["low"], answer["high"]] if answer else None,
        "match off": _off(answer["value"], grid) if answer else None,
        "predicted off": _off(chosen["predicted"], grid),
        "closed form off": _off(_closed_form(spec, result), grid),
        "rival off": _off(rival, grid),
        "verdict": result["verdict"]["sentence"],
        "gain": result["source"]["gain"] and result["source"]["gain"]["value"],
        "seconds": {"match": match_seconds, "grid": grid_seconds, "rival": rival_seconds},
    }


def _off(found: float | None, grid: float) -> float | None:
    return None if found is None else found / grid - 1


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


def grid_answer(cell: Cell, outcome: MatchOutcome, shop: Workshop) -> tuple[float, float]:
    """alpha^v at which the grid's curve has the source's rate, and the seconds of its runs."""
    spec, rates = cell.spec(), _grid_rates(cell)
    runs = shop.runs(_grid_runs(cell))
    source = _mean([r for t, r in _of(outcome, "source")])
    gaps = []
    for i, rate in enumerate(rates):
        target = _mean(runs[i * len(SEEDS) : (i + 1) * len(SEEDS)])
        pair = Pair(
            source.window(*spec.chosen_window()).values, target.window(*spec.chosen_window()).values
        )
        gaps.append((math.log(rate), log_ratio(spec.chosen_criterion(), pair, spec.least_block)))
    return math.exp(_crossing(gaps)), sum(run.seconds for run in runs)


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
    x, y = fmean(a for a, _ in near), fmean(b for _, b in near)
    slope = sum((a - x) * (b - y) for a, b in near) / sum((a - x) ** 2 for a, _ in near)
    return x - y / slope


def rival_answer(cell: Cell, shop: Workshop) -> tuple[float, float]:
    """Two short runs and a ratio: alpha^v 0.05, times SGD's rate over ND-Adam's."""
    source, target = shop.runs(_rival_runs(cell))
    half = RIVAL_STEPS // 2
    a, b = (_rms(run.series["effective_lr"][half:]) for run in (source, target))
    return 0.05 * a / b, source.seconds + target.seconds


def control(network: str, shop: Workshop, steps: int) -> dict[str, Any]:
    """Under a cosine: the schedule criterion and the closed loop against SGD's curve."""
    cell = Cell(network, "cosine", 1e-3, 0.999, steps)
    spec = MatchSpec.model_validate(
        {**cell.spec().model_dump(mode="json", exclude_unset=True), "criterion": "schedule"}
    )
    (outcome,) = run_matches([spec], shop.train)
    source = _mean([run for _, run in _of(outcome, "source")])
    verdict = _mean([run for _, run in _of(outcome, "verdict")])
    follow = points_of_curve(source)
    loop = spec.target_config(0.05).model_dump(exclude_none=True)
    loop |= {"follow": follow, "alpha_s_schedule": "cosine"}
    del loop["alpha_v"]
    configs = [TrainConfig.model_validate({**loop, "seed": seed}) for seed in spec.seeds()]
    closed = _mean(shop.runs([(config, _headline(spec)) for config in configs]))
    return {
        "cell": str(cell),
        "schedule rms log": _follows(source, verdict),
        "schedule first 5 %": _first(source, verdict),
        "closed loop rms log": _follows(source, closed),
        "closed loop first 5 %": _first(source, closed),
        "verdict": outcome.result["verdict"]["sentence"],
    }


def points_of_curve(source: Recorded) -> tuple[tuple[int, float], ...]:
    """A recorded curve as the points that a closed loop follows."""
    width = max(1, len(source.values) // 400)
    values = smooth(source.values, width)
    return tuple(((i * width + width // 2) * source.every, value) for i, value in enumerate(values))


def _follows(source: Recorded, target: Recorded) -> float:
    """RMS log error between 5 and 95 % of the run, in stretches of a fiftieth of it."""
    n = len(source.values)
    start, stop = n // 20, n - n // 20
    width = max(1, n // STRETCHES)
    return rms_log_error(
        smooth(source.values[start:stop], width), smooth(target.values[start:stop], width)
    )


def _first(source: Recorded, target: Recorded) -> float:
    """Target over source in the first 5 % of the run."""
    n = len(source.values) // 20
    return _rms(target.values[:n]) / _rms(source.values[:n])


def _headline(spec: MatchSpec) -> Measurement:
    return Measurement(every=spec.record_every)


def _of(outcome: MatchOutcome, role: str) -> list[tuple[int, TrainedRun]]:
    records = outcome.records
    return [(t.number, records.runs[t.number]) for t in records.trials if t.role == role]


def _mean(runs: Sequence[TrainedRun]) -> Recorded:
    """Root mean square over seeds."""
    return rms_over([Recorded(run.every, tuple(run.series["effective_lr"])) for run in runs])


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(v * v for v in values))
