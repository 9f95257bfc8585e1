"""How fast trials of a shape were on a card, measured on earlier trials of any sweep.

A shape is what decides the time of a step (``sweeps.spec.step_shape``), and the share of the card.
Nothing is extrapolated: where no such trial was trained the rate is not known.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sweeps.records import Sweep, Trial, TrialState
from sweeps.spec.step_shape import may_have_shape, rough_shape
from sweeps.store.store import Store
from worker.config.train_config import TrainConfig

#: Sweeps that are looked through, newest first, those of them whose trials are read, and those
#: that turn out to be of the shape: this many say enough.
_SWEEPS, _READ, _ENOUGH = 200, 25, 5
#: Trials that are read of each.
_TRIALS = 20


@dataclass(frozen=True)
class Rate:
    """Seconds per step on one card, start and evaluation included: the median over trials."""

    card: str
    seconds_per_step: float
    trials: int


@dataclass(frozen=True)
class Earlier:
    """What earlier trials of a shape say, the card with the most trials first."""

    rates: list[Rate]
    #: Deviation of the objective between seeds; None where nothing was replicated.
    seed_deviation: float | None


def earlier(store: Store, config: TrainConfig, *, gpus: float, metric: str) -> Earlier:
    """What trials of this shape, on this share of a GPU, took and how far seeds lay apart."""
    resolved = config.resolved().stored()
    shape = rough_shape(resolved)
    seconds: dict[str, list[float]] = defaultdict(list)
    deviations = []
    likely = (s for s in _recent(store) if _may_have(s, resolved, gpus))
    found = 0
    for sweep in islice(likely, _READ):
        trials = [t for t in _complete(store, sweep) if rough_shape(t.config) == shape]
        if not trials:
            continue
        for card, one in _seconds_per_step(store, sweep.id, trials):
            seconds[card].append(one)
        deviation = (sweep.result or {}).get("seed_deviation")
        if deviation and sweep.objective.metric == metric:
            deviations.append(float(deviation))
        found += 1
        if found == _ENOUGH:
            break
    rates = [Rate(card, statistics.median(all_), len(all_)) for card, all_ in seconds.items()]
    rates.sort(key=lambda rate: (-rate.trials, rate.card))
    return Earlier(rates, statistics.median(deviations) if deviations else None)


def _recent(store: Store) -> Iterator[Sweep]:
    """The last sweeps with complete trials, read a few at a time: mostly the first few are enough.

    One that completes meanwhile may make an earlier one appear twice, which moves a median little.
    """
    for skip in range(0, _SWEEPS, _READ):
        sweeps = store.recently_complete(_READ, with_trials=True, skip=skip)
        yield from sweeps
        if len(sweeps) < _READ:
            return


def _may_have(sweep: Sweep, config: dict[str, Any], gpus: float) -> bool:
    """A look at the spec alone: most sweeps are of another shape and need not be read."""
    if sweep.resources.gpus != gpus:
        return False
    return may_have_shape(sweep.base, sweep.space, config)


def _complete(store: Store, sweep: Sweep) -> list[Trial]:
    page = store.trials(sweep.id, state=TrialState.COMPLETE.value, limit=_TRIALS)
    return page.items


def _seconds_per_step(
    store: Store, sweep_id: str, trials: Sequence[Trial]
) -> Iterator[tuple[str, float]]:
    """Card and seconds per step of each trial that went through in one attempt."""
    tries = store.attempts_of(sweep_id, [trial.number for trial in trials])
    for trial in trials:
        attempts = tries.get(trial.number, [])
        if len(attempts) != 1 or not trial.step:
            continue
        attempt = attempts[0]
        card = attempt.provenance.get("card")
        if card and attempt.finished_at is not None:
            took = (attempt.finished_at - attempt.started_at).total_seconds()
            yield str(card), took / trial.step
