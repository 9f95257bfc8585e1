"""Decides from measured series whether one optimizer moves weights as fast as another.

Input are per-step effective learning rates, root mean squares over weight vectors, of a source and
a target over the same steps, one pair per seed. Everything is compared as a log ratio, source over
target. Pure Python: the runs are trained elsewhere, by ``sweeps`` through Ray or in any loop with
``EffectiveLR``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean
from typing import Literal

from ndadam.statistics.blocked_means import MeanError, block_error, moving_average, smooth
from ndadam.statistics.inference import CONFIDENCE, equivalence_of_logs
from ndadam.statistics.seed_interval import difference_error, seed_interval
from ndadam.theory.decay_memory import (
    error_under_decay,
    share_in_difference,
    share_in_mean,
    undo_decay,
)
from ndadam.theory.prediction import Criterion, burn_in_steps, fit_rate

#: Slopes d log e / d log rate outside this range come from noise, not from an optimizer.
SLOPE_RANGE = (0.5, 1.5)
#: The block of a bootstrap spans at least this many 1 / (1 - beta1).
_BLOCK_BETA1 = 3
#: Beyond this number of seeds a sentence does not give the exact one.
_MANY_SEEDS = 64
#: Least squares compares curves smoothed over this share of the window, or over a block if longer.
_SMOOTHED_SHARE = 20

__all__ = [
    "SLOPE_RANGE",
    "Finding",
    "LogRatio",
    "Pair",
    "VerdictState",
    "burn_in_steps",
    "correct_rate",
    "drift",
    "fraction_inside",
    "influence",
    "judge",
    "least_block",
    "log_ratio",
    "measure",
    "rms_log_error",
    "smooth",
]

VerdictState = Literal["matched", "not shown", "not matchable"]

#: What each criterion compares, for sentences.
_NAMES: dict[Criterion, str] = {
    "stationary": "stationary",
    "least_squares": "least squares",
    "equal_rotation": "equal rotation",
    "equal_mean": "equal mean",
    "schedule": "schedule",
}


def least_block(averaging: float, every: int) -> int:
    """Shortest block, in records taken ``every`` steps, given momentum or beta1."""
    return max(2, math.ceil(_BLOCK_BETA1 / (1 - averaging) / every - 1e-6))


@dataclass(frozen=True)
class Pair:
    """Effective learning rates of source and target at the same steps, with the same seed."""

    source: Sequence[float]
    target: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(
                "source and target must cover the same steps, got "
                f"{len(self.source)} and {len(self.target)} values"
            )
        for name, values in (("source", self.source), ("target", self.target)):
            for i, value in enumerate(values):
                if not (math.isfinite(value) and value >= 0):
                    raise ValueError(
                        f"{name} must hold effective learning rates, finite and >= 0; value {i} "
                        f"is {value}"
                    )
            if not any(values):
                raise ValueError(f"{name} never moved: all of its {len(values)} values are 0")

    def part(self, start: int, stop: int) -> "Pair":
        return Pair(self.source[start:stop], self.target[start:stop])


# --- The log ratio by a criterion ----------------------------------------------------------------


def log_ratio(criterion: Criterion, pair: Pair, least: int = 1) -> float:
    """Log of the multiple by which the target's curve falls short of the source's.

    ``least`` is the shortest block, from ``least_block``. Least squares fits curves, so noise of
    single steps is averaged out first: squared in its denominator alone, it would make a target
    that is right look too fast.
    """
    ones = [1.0] * len(pair.source)
    source, target = _curves(criterion, pair, least)
    return math.log(fit_rate(_sum_criterion(criterion), ones, source, target))


def _curves(
    criterion: Criterion, pair: Pair, least: int
) -> tuple[Sequence[float], Sequence[float]]:
    if criterion != "least_squares" or least == 1:
        return pair.source, pair.target
    width = max(least, len(pair.source) // _SMOOTHED_SHARE)
    return moving_average(pair.source, width), moving_average(pair.target, width)


def _sum_criterion(criterion: Criterion) -> Criterion:
    """Stationary rates are root mean squares, and so is the size of a schedule's match."""
    return "equal_rotation" if criterion in ("stationary", "schedule") else criterion


def influence(criterion: Criterion, pair: Pair, least: int = 1) -> list[float]:
    """What each step adds to the log ratio, to first order: a series with mean 0.

    The error of its mean is the error of the log ratio. ``least`` as for ``log_ratio``.
    """
    a, b = pair.source, pair.target
    kind = _sum_criterion(criterion)
    if kind == "equal_mean":
        ma, mb = fmean(a), fmean(b)
        return [x / ma - y / mb for x, y in zip(a, b, strict=True)]
    if kind == "least_squares":
        smooth_a, smooth_b = _curves(criterion, pair, least)
        ab = fmean(map(mul, smooth_a, smooth_b))
        bb = fmean(map(mul, smooth_b, smooth_b))
        return [
            (x * sy + sx * y - sx * sy) / ab - (2 * y - sy) * sy / bb
            for x, y, sx, sy in zip(a, b, smooth_a, smooth_b, strict=True)
        ]
    bb = fmean(y * y for y in b)
    aa = fmean(x * x for x in a)
    return [(x * x / aa - y * y / bb) / 2 for x, y in zip(a, b, strict=True)]


@dataclass(frozen=True)
class LogRatio:
    """Log ratio over seeds with its interval."""

    value: float
    low: float
    high: float
    #: "steps": errors within the runs; "seeds": the runs differ by more than those explain.
    interval_from: Literal["steps", "seeds"]
    per_seed: tuple[float, ...]

    @property
    def half_width(self) -> float:
        return self.high - self.value


def measure(
    criterion: Criterion,
    pairs: Sequence[Pair],
    least: int,
    confidence: float = CONFIDENCE,
    *,
    memory: float = math.inf,
) -> LogRatio:
    """The log ratio of a criterion over seeds, with its interval.

    The interval is that of ``ndadam.statistics.seed_interval``.

    ``least`` is the shortest block, from ``least_block``. ``memory``, from ``decay_memory``, says
    within how many steps decay undoes the source's fluctuations, which makes a stationary mean
    more certain than blocks of steps see; it counts for that criterion and from two seeds on, which
    would contradict it where it did not hold. Raises ValueError for a window of fewer than four
    blocks.
    """
    if not pairs:
        raise ValueError("pairs needs at least one seed, got none")
    memory = _counting(criterion, pairs, memory)
    share = share_in_mean(len(pairs[0].source), memory)
    return _over_seeds(*_ratios(criterion, pairs, least, memory, share), confidence)


def drift(
    criterion: Criterion,
    pairs: Sequence[Pair],
    least: int,
    confidence: float = CONFIDENCE,
    *,
    memory: float = math.inf,
) -> LogRatio:
    """Log ratio of the window's second half minus that of its first, with its interval.

    ``least`` and ``memory`` as for ``measure``.
    """
    half = len(pairs[0].source) // 2
    memory = _counting(criterion, pairs, memory)
    share = share_in_difference(half, memory)
    first, first_errors = _ratios(criterion, [p.part(0, half) for p in pairs], least, memory, share)
    second, second_errors = _ratios(
        criterion, [p.part(half, 2 * half) for p in pairs], least, memory, share
    )
    moved = [b - a for a, b in zip(first, second, strict=True)]
    errors = list(map(difference_error, first_errors, second_errors))
    return _over_seeds(moved, errors, confidence)


def _counting(criterion: Criterion, pairs: Sequence[Pair], memory: float) -> float:
    return memory if criterion == "stationary" and len(pairs) > 1 else math.inf


def _ratios(
    criterion: Criterion, pairs: Sequence[Pair], least: int, memory: float, share: float
) -> tuple[list[float], list[MeanError]]:
    """Log ratio of each seed, and its error from blocks of steps."""
    values = [log_ratio(criterion, pair, least) for pair in pairs]
    if math.isinf(memory):
        return values, [block_error(influence(criterion, pair, least), least) for pair in pairs]
    return values, [_error_under_decay(pair, least, memory, share) for pair in pairs]


def _error_under_decay(pair: Pair, least: int, memory: float, share: float) -> MeanError:
    """Of a stationary log ratio whose source has weight decay (``ndadam.theory.decay_memory``)."""
    still = [1.0] * len(pair.source)
    source = influence("stationary", Pair(pair.source, still))
    target = influence("stationary", Pair(still, pair.target))
    undone = [a + b for a, b in zip(undo_decay(source, memory), target, strict=True)]
    return error_under_decay(block_error(undone, least), block_error(target, least), share)


def _over_seeds(
    values: Sequence[float], errors: Sequence[MeanError], confidence: float
) -> LogRatio:
    found, mean = seed_interval(values, errors, confidence), fmean(values)
    return LogRatio(
        mean, mean - found.half_width, mean + found.half_width, found.rests_on, tuple(values)
    )


# --- Correction ----------------------------------------------------------------------------------


def correct_rate(
    history: Sequence[tuple[float, float]], *, first_slope: float
) -> tuple[float, float]:
    """The next rate to try and the slope used, from (rate, log ratio) of the runs so far.

    Secant in logs: the first correction takes ``first_slope`` = d log e / d log rate (1 for
    ndadam, 1/2 for optimizers with decay), later ones the slope that two runs showed, within
    ``SLOPE_RANGE`` of it.
    """
    rate, gap = history[-1]
    slope = first_slope
    if len(history) > 1:
        before, gap_before = history[-2]
        apart = math.log(rate / before)
        if abs(apart) > 1e-12:
            low, high = (bound * first_slope for bound in SLOPE_RANGE)
            slope = min(high, max(low, (gap_before - gap) / apart))
    return rate * math.exp(gap / slope), slope


# --- Over the whole run --------------------------------------------------------------------------


def fraction_inside(source: Sequence[float], target: Sequence[float], tolerance: float) -> float:
    """Share of the stretches in which source and target differ by no more than the tolerance."""
    bound = math.log1p(tolerance)
    inside = [
        a > 0 and b > 0 and abs(math.log(a / b)) <= bound
        for a, b in zip(source, target, strict=True)
    ]
    return sum(inside) / len(inside)


def rms_log_error(source: Sequence[float], target: Sequence[float]) -> float:
    """Root mean square of log(source / target) over stretches, where both move."""
    logs = [math.log(a / b) for a, b in zip(source, target, strict=True) if a > 0 and b > 0]
    return math.sqrt(fmean(x * x for x in logs))


# --- Verdict -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A verdict and the sentence that justifies it."""

    state: VerdictState
    sentence: str


def judge(
    criterion: Criterion,
    ratio: LogRatio,
    moved: LogRatio | None,
    *,
    tolerance: float,
    inside: float,
    num_seeds: int,
    log_error: float | None = None,
    seeds_help: bool = True,
) -> Finding:
    """Matched only where the whole interval lies inside the tolerance and nothing drifts.

    ``moved`` is the drift of a window that should be stationary, None where the criterion allows
    ratios to change along the run; ``log_error`` the RMS log error that the schedule criterion
    must keep inside the tolerance as well; ``seeds_help`` is False where one recorded source sets
    the interval, whatever the number of targets. A ratio that merely is not significantly different
    from 1 is "not shown".
    """
    name = _NAMES[criterion]
    found = (
        f"source over target is {math.exp(ratio.value):.3f}, 95 % interval "
        f"{math.exp(ratio.low):.3f} to {math.exp(ratio.high):.3f}, over {num_seeds} "
        f"seed{'s' if num_seeds > 1 else ''}"
    )
    bound = math.log1p(tolerance)
    label = f"{name}, ±{100 * tolerance:.3g} %"
    reason = ""
    if not equivalence_of_logs(ratio.low, ratio.high, tolerance).shown:
        if ratio.low > bound or ratio.high < -bound:
            reason = "the two differ by more than the tolerance"
        elif abs(ratio.value) >= bound:
            reason = "the measured ratio lies outside the tolerance"
        else:
            reason = "the interval reaches outside the tolerance; "
            reason += _what_helps(ratio, bound, num_seeds if seeds_help else None)
    elif moved is not None and _drifts(moved, bound):
        moves = f"{100 * math.expm1(moved.value):+z.1f}".replace("-", "\N{MINUS SIGN}")
        reason = (
            f"the ratio still moves by {moves} % between the halves of the window; a longer run "
            "with a later window would settle"
        )
    elif log_error is not None and log_error > bound:
        reason = f"along the run the curves differ by {100 * log_error:.1f} % RMS in logs"
    if reason:
        return Finding("not shown", f"Not shown ({label}): {found}; {reason}.")
    return Finding(
        "matched", f"Matched ({label}, inside tolerance for {inside:.2f} of the run): {found}."
    )


def _what_helps(ratio: LogRatio, bound: float, num_seeds: int | None) -> str:
    """How an interval around a ratio inside ``bound`` comes inside; None: seeds have no part."""
    narrow = "more seeds or steps narrow it"
    if num_seeds is None:
        return narrow
    room = bound - abs(ratio.value)
    enough = max(num_seeds + 1, math.ceil(num_seeds * (ratio.half_width / room) ** 2))
    if enough <= _MANY_SEEDS:
        return f"{narrow} (about {enough} seeds would, if the ratio stays)"
    if ratio.half_width < bound:
        # The interval is short enough: it lies in the wrong place.
        return (
            "the ratio lies too near its edge: calibrating on more seeds helps, judging on more not"
        )
    return f"{narrow} (more than {_MANY_SEEDS} seeds would, if the ratio stays)"


def _drifts(moved: LogRatio, bound: float) -> bool:
    """A drift counts where it is certain and as large as the tolerance."""
    return abs(moved.value) > moved.half_width and abs(moved.value) > bound
