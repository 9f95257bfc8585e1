"""The noise model: random gradients on a scale-invariant loss, hundreds of matches in one array.

Letters: R runs, N weight vectors of D elements each. A gradient is noise of AR(1) correlation rho
on the unit sphere, made orthogonal to its vector and divided by the vector's norm, as a
batch-normalised layer would have it. The product's own proposer and verdict do the matching.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lockstep import MatchOutcome, TrainedRun, run_matches
from benchmarks.matching.intervals import (
    TOLERANCE,
    answer_of,
    percent,
    shares,
    state_with,
    times_as_fast,
)
from benchmarks.matching.training import Workshop
from ndadam.theory.laws import gain_autoregressive, lr_of_effective_lr
from ndadam.theory.prediction import stationary_effective_lr
from sweeps.match.arms import setting_of
from sweeps.match.match_spec import MatchSpec
from sweeps.search.protocol import Proposal
from worker.config.train_config import TrainConfig

Floats = NDArray[np.float32]
#: Of random numbers: one number or several.
Seed = int | Sequence[int]

MATCHES, STEPS = 300, 2400
#: Matches in one array.
LOT = 25
VECTORS, ELEMENTS = 16, 16
#: Correlation of successive gradients; each match has its own between these.
RHO = (-0.1, 0.3)
#: Ratios minus 1 at which it is counted how often "matched" is said.
MISMATCHES = (0.0, 0.01, -0.01, TOLERANCE, -TOLERANCE)
PROBE = {"counts": {"invariant": VECTORS}, "layers": {"linear1": "invariant"}}


def noise_spec(number: int) -> MatchSpec:
    """A match of SGD (0.1, 0.9, 0.001) and ND-Adam; ``number`` makes it unlike the others."""
    return MatchSpec.model_validate(
        {
            "name": f"noise {number}",
            "base": {
                "dataset": "noise",
                "recipe": "paper-wrn",
                "lr_schedule": "constant",
                "steps": STEPS,
                "seed": number * 100,
            },
            "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3},
            "target": {"optimizer": "ndadam", "betas": [0.9, 0.99], "alpha_s": 0.01},
        }
    )


def rho_of(number: int, matches: int) -> float:
    low, high = RHO
    return low + (high - low) * (number % matches) / max(1, matches - 1)


class NoiseRuns:
    """R runs at once, each with its own optimizer setting, correlation and seed."""

    def __init__(self, configs: Sequence[TrainConfig], rho: Sequence[float], seed: Seed) -> None:
        self._random = np.random.default_rng(seed)
        shape = (len(configs), VECTORS, ELEMENTS)
        self._sgd = np.array([c.optimizer == "sgd" for c in configs])
        self._rho = _column(rho)
        self._lr = _column([c.lr if c.optimizer == "sgd" else c.alpha_v for c in configs])
        self._decay = _column([c.weight_decay or 0.0 for c in configs])
        self._mu = _column([c.momentum or 0.0 for c in configs])
        betas = [c.betas or (0.9, 0.999) for c in configs]
        self._beta1, self._beta2 = (_column([b[i] for b in betas]) for i in (0, 1))
        self._w = self._normal(shape)
        self._w /= np.linalg.norm(self._w, axis=2, keepdims=True)
        # SGD starts at the norm at which decay and updates balance.
        gain = (1 + self._mu * self._rho) / (1 - self._mu * self._rho)
        strength = ELEMENTS - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = (self._lr * strength * gain / (2 * self._decay * (1 - self._mu))) ** 0.25
        self._w *= np.where(self._sgd[:, None, None], norm, 1.0)
        self._noise = self._normal(shape)
        self._m = np.zeros(shape, np.float32)
        self._v = np.zeros((*shape[:2], 1), np.float32)
        self._shadow = np.zeros(shape, np.float32)
        self._sums = np.zeros((2, *shape[:2]))
        self._step = 0

    def _normal(self, shape: tuple[int, ...]) -> Floats:
        return self._random.standard_normal(shape, dtype=np.float32)

    def step(self) -> NDArray[np.float64]:
        """One step of every run: root mean square over vectors of ||dw|| / ||w||, (R,)."""
        self._step += 1
        fresh = np.sqrt(1 - self._rho**2) * self._normal(self._w.shape)
        self._noise = self._rho * self._noise + fresh
        w, norm = self._w, np.linalg.norm(self._w, axis=2, keepdims=True)
        unit = w / norm
        g = self._noise - (self._noise * unit).sum(2, keepdims=True) * unit  # on the sphere
        self._watch(g)
        new = np.where(self._sgd[:, None, None], self._sgd_step(g / norm), self._nd_step(g))
        moved = ((new - w) ** 2).sum(2) / norm[..., 0] ** 2
        self._w = new.astype(np.float32)
        e: NDArray[np.float64] = np.sqrt(moved.mean(1, dtype=np.float64))
        return e

    def _sgd_step(self, g: Floats) -> Floats:
        m = self._mu * self._m + g + self._decay * self._w
        self._m = np.where(self._sgd[:, None, None], m, self._m)
        out: Floats = self._w - self._lr * m
        return out

    def _nd_step(self, g: Floats) -> Floats:
        is_nd = ~self._sgd[:, None, None]
        self._m = np.where(is_nd, self._beta1 * self._m + (1 - self._beta1) * g, self._m)
        square = (g**2).sum(2, keepdims=True)
        self._v = np.where(is_nd, self._beta2 * self._v + (1 - self._beta2) * square, self._v)
        with np.errstate(divide="ignore", invalid="ignore"):
            v_hat = np.sqrt(self._v / (1 - self._beta2**self._step))
            out = self._w - self._lr * self._m / (1 - self._beta1**self._step) / v_hat
            out /= np.linalg.norm(out, axis=2, keepdims=True)
        return np.where(is_nd, out, self._w)

    def _watch(self, g: Floats) -> None:
        """Shadow first moment, for the gain A."""
        self._shadow = 0.9 * self._shadow + np.float32(0.1) * g
        if self._step > 50:
            self._sums += np.stack([(self._shadow**2).sum(2), (g**2).sum(2)])

    def gains(self) -> NDArray[np.float64]:
        """A of each run, (R,)."""
        found: NDArray[np.float64] = (19.0 * self._sums[0] / self._sums[1]).mean(1)
        return found


def _column(values: Sequence[float | None]) -> Floats:
    return np.array(values, np.float32)[:, None, None]


def curves(
    configs: Sequence[TrainConfig], rho: Sequence[float], seed: Seed, steps: int = STEPS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Effective learning rates (R, steps) and gains (R,)."""
    runs = NoiseRuns(configs, rho, seed)
    found = np.stack([runs.step() for _ in range(steps)], 1)
    return found, runs.gains()


def benchmark_noise(
    shop: Workshop, matches: int = MATCHES, mismatches: Sequence[float] = MISMATCHES
) -> dict[str, Any]:
    """Coverage, bias, and how often "matched" is said, over whole matches.

    In lots, each with random numbers of its own, so that how many processes share them changes
    nothing.
    """
    began = time.perf_counter()
    jobs = [
        Lot(range(first, min(matches, first + LOT)), matches, tuple(mismatches))
        for first in range(0, matches, LOT)
    ]
    lots = list(shop.spread(match_lot, jobs))
    return {
        "part": "noise",
        "matches": matches,
        "steps": STEPS,
        **shares(
            [answer for lot in lots for answer in lot.answers],
            [state for lot in lots for state in lot.states],
            [rate for lot in lots for rate in lot.truth],
        ),
        "matched said at": {
            percent(off): sum(lot.said[off] for lot in lots) / matches for off in mismatches
        },
        "seconds": time.perf_counter() - began,
    }


@dataclass(frozen=True)
class Lot:
    """Matches that are run in one array, of so many in all."""

    numbers: range
    matches: int
    mismatches: tuple[float, ...]

    def rho(self, number: int) -> float:
        return rho_of(number, self.matches)


@dataclass(frozen=True)
class FoundInLot:
    answers: list[dict[str, float] | None]
    states: list[str]
    truth: list[float]
    #: Verdicts "matched" by mismatch.
    said: dict[float, int]


def match_lot(lot: Lot) -> FoundInLot:
    """Run a lot, in a process of its own where several are at work."""
    batch = 0

    def train(wanted: Sequence[tuple[int, Proposal]]) -> list[TrainedRun]:
        nonlocal batch
        batch += 1
        rho = [lot.rho(lot.numbers[i]) for i, _ in wanted]
        found, gains = curves([p.config for _, p in wanted], rho, seed=(lot.numbers.start, batch))
        return [
            TrainedRun(
                series={name: row.tolist() for name in ("effective_lr", "effective_lr/linear1")},
                every=1,
                metrics={"gain": float(gain), "effective_lr/linear1": float(row[-1])},
                probe=PROBE,
                seconds=0.0,
            )
            for row, gain in zip(found, gains, strict=True)
        ]

    outcomes = run_matches([noise_spec(number) for number in lot.numbers], train)
    truth = [
        true_rate(outcome.spec, lot.rho(number))
        for outcome, number in zip(outcomes, lot.numbers, strict=True)
    ]
    return FoundInLot(
        [answer_of(outcome) for outcome in outcomes],
        [outcome.result["verdict"]["state"] for outcome in outcomes],
        truth,
        {off: _said(lot, outcomes, truth, off) for off in lot.mismatches},
    )


def true_rate(spec: MatchSpec, rho: float) -> float:
    """The alpha^v at which ND-Adam's law with the exact gain gives SGD's exact e*."""
    e = stationary_effective_lr(spec.source_setting)
    return lr_of_effective_lr(spec.target_setting, e, gain_autoregressive(0.9, rho))


def _said(lot: Lot, outcomes: Sequence[MatchOutcome], truth: Sequence[float], off: float) -> int:
    """Number of verdicts "matched" where the target runs at exactly this mismatch."""
    configs, rho = [], []
    for number, outcome, rate in zip(lot.numbers, outcomes, truth, strict=True):
        spec = outcome.spec
        # A mismatch of effective learning rates, which the law turns into one of rates.
        e = stationary_effective_lr(setting_of(spec.source_config)) * times_as_fast(off)
        gain = gain_autoregressive(0.9, lot.rho(number))
        exact = lr_of_effective_lr(spec.target_setting, e, gain) if off else rate
        configs += [spec.target_config(exact)] * spec.replicates
        rho += [lot.rho(number)] * spec.replicates
    found, _ = curves(configs, rho, seed=(lot.numbers.start, round(1000 + 100 * off)))
    said = 0
    for i, outcome in enumerate(outcomes):
        n = outcome.spec.replicates
        said += state_with(outcome, found[i * n : (i + 1) * n].tolist()) == "matched"
    return said
