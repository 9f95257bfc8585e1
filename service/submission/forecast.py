"""What a spec would do: trials, steps, GPU-hours, and the difference that its seeds can show.

Of a match also what the closed form predicts before anything runs.
"""

import math

from dashboards.web.ports import MatchEstimate
from ndadam.statistics.inference import detectable_difference, seeds_needed
from ndadam.theory.prediction import CRITERIA, NoStationaryRate
from service.contract.outputs import RateOut, ValidationOut
from service.settings import Settings
from service.submission.admission import run_lengths
from sweeps.analysis.step_times import Earlier, earlier
from sweeps.match.match_spec import MatchSpec
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store
from worker.config.train_config import TrainConfig
from worker.config.training import FRACTIONS, IMAGES

#: Deviation of the test error between seeds of a WRN on CIFAR-10, 0.12 points; assumed where
#: nothing was measured.
SEED_DEVIATION = 0.0012


def describe_sweep(spec: SweepSpec, store: Store, settings: Settings) -> ValidationOut:
    """Say what a spec would do. Creates nothing."""
    trials, gpus = spec.num_trials(), spec.resources.gpus
    lengths: set[int] = set()
    rates: list[RateOut] = []
    # Of a training of one's own nothing is known before it has run.
    steps, known, deviation = None, Earlier([], None), None
    if isinstance(spec.base, TrainConfig):
        lengths = run_lengths(spec, settings)
        known = earlier(store, spec.base, gpus=gpus, metric=spec.objective.metric)
        if lengths:
            steps = trials * max(lengths)
            if spec.budget.steps is not None:
                steps = min(steps, spec.budget.steps)
            rates = [
                _rate(rate.card, rate.seconds_per_step, rate.trials, steps, gpus)
                for rate in known.rates
            ]
        # What is assumed is about errors of networks on images.
        assumed = SEED_DEVIATION if spec.objective.metric in FRACTIONS and not spec.parts else None
        deviation = known.seed_deviation or assumed
    difference, paired = spec.comparison.difference, spec.comparison.pairing
    # Of the differences, seed by seed, as if two arms had nothing in common on a seed.
    spread = None if deviation is None else deviation * (math.sqrt(2) if paired else 1.0)
    return ValidationOut(
        kind="sweep",
        name=spec.name,
        points=trials // spec.replicates,
        replicates=spec.replicates,
        trials=trials,
        steps=steps,
        gpu_hours=_gpu_hours(rates, gpus),
        rates=rates,
        detectable_difference=(
            detectable_difference(spread, spec.replicates, paired=paired)
            if spec.replicates > 1 and spread is not None
            else None
        ),
        difference=difference,
        seeds_needed=(
            None
            if difference is None or spread is None
            else _seeds(spread, difference, paired=paired)
        ),
        assumed_seed_deviation=deviation,
        seed_deviation_is="assumed" if known.seed_deviation is None else "measured",
        notes=_notes(spec, lengths, known),
    )


def _gpu_hours(rates: list[RateOut], gpus: float) -> float | None:
    if gpus == 0:
        return 0.0
    return rates[0].gpu_hours if rates else None


def _seeds(spread: float, difference: float, *, paired: bool) -> int | None:
    """None where nobody would train so many."""
    try:
        return seeds_needed(spread, difference, paired=paired)
    except ValueError:
        return None


def _rate(card: str, seconds_per_step: float, trials: int, steps: int, gpus: float) -> RateOut:
    hours = steps * seconds_per_step / 3600
    return RateOut(
        card=card,
        seconds_per_step=seconds_per_step,
        trials=trials,
        trial_hours=hours,
        gpu_hours=gpus * hours,
    )


def _notes(spec: SweepSpec, lengths: set[int], known: Earlier) -> list[str]:
    notes = []
    if len(lengths) > 1:
        notes.append("steps is an upper bound: trials differ in length")
    if spec.replicates == 1:
        notes.append("one seed per point has no interval: set replicates to 2 or more")
    if spec.comparison.pairing and spec.replicates > 1:
        notes.append(
            "paired by seed: a smaller difference shows where a seed moves two arms the same way"
        )
    if not known.rates:
        what = "no trial of this shape has been trained yet"
        if spec.training != IMAGES:
            what = "only training 'images' says before it runs"
        notes.append(f"how long it takes is not known: {what}")
    return notes


def match_estimate(spec: MatchSpec) -> MatchEstimate:
    """Count a match's trials and steps, and predict its rate under every criterion.

    Where theory has no answer, the rates are empty and a note says why: the match measures.
    """
    least = spec.full_trials()
    corrections = spec.calibration_replicates * spec.max_corrections
    rates: list[tuple[str, float]] = []
    level: str = spec.level or "step"
    try:
        found = spec.plan.predict()
    except (NoStationaryRate, ValueError, ArithmeticError) as error:
        notes: tuple[str, ...] = (str(error).rstrip("."),)
        own = [arm.optimizer for arm in (spec.source, spec.target) if not arm.has_law]
        if own:
            notes = (f"theory has no law for {' and '.join(own)}: the match measures",)
    else:
        level, notes = found.level, tuple(note.rstrip(".") for note in found.warnings)
        rates = [(name, found.criteria[name].rate) for name in CRITERIA if name in found.criteria]
    return MatchEstimate(
        rate_name=spec.rate_name,
        rates=tuple(rates),
        criterion=spec.chosen_criterion(),
        level=level,
        window=spec.chosen_window(),
        least_trials=least,
        most_trials=least + corrections,
        most_steps=least * spec.num_steps
        + corrections * (spec.calibration_steps or spec.num_steps),
        notes=notes,
    )
