"""Samplers of a branch by Optuna: random, quasi-random, TPE, GP, NSGA-II.

A model's points depend on the spec and on the results so far, never on the order in which results
came: the study is built in memory from the points, in number order, for each question.
"""

import hashlib
import json
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as Told

from sweeps.records import TrialState
from sweeps.search.points import TriedPoint, TriedTrial
from sweeps.spec.branches import Branch
from sweeps.spec.domains import Choice, Domain, FloatRange
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.training import FRACTIONS

optuna.logging.set_verbosity(optuna.logging.WARNING)

#: Refused proposals in a row after which a model is no longer asked.
_INSISTS = 3
#: Points of a generation of NSGA-II.
POPULATION = 16
#: Samplers that learn, each made anew for each question.
_MODELS: dict[str, Any] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "gp": lambda seed: GPSampler(seed=seed),
    "nsga2": lambda seed: _Generations(population_size=POPULATION, seed=seed),
}


class _Generations(NSGAIISampler):  # type: ignore[misc]  # Optuna is not type-checked
    """NSGA-II whose generations follow from the numbers of its trials.

    Optuna writes a trial's generation beside it when it is asked for; a study that is built from
    the store's points has none of that. While the last points of a generation still run, the next
    one descends from those that have ended.
    """

    def get_trial_generation(self, study: optuna.Study, trial: FrozenTrial) -> int:
        number: int = trial.number
        return number // POPULATION

    def get_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        complete = study.get_trials(deepcopy=False, states=(Told.COMPLETE,))
        return [one for one in complete if one.number // POPULATION == generation]


class Model:
    """A branch whose next point follows from the results of its points: TPE, GP, NSGA-II."""

    restarts = False

    def __init__(self, branch: Branch, spec: SweepSpec) -> None:
        self.branch = branch
        self._spec = spec
        self._distributions = distributions(branch)
        self._prior = [
            create_trial(
                value=point.value,
                params=encoded(branch, point.params),
                distributions=self._distributions,
            )
            for point in spec.prior
            if branch.holds(point.params)
        ]

    def count(self, points: Iterable[TriedPoint]) -> int:
        return sum(point.branch == self.branch.number for point in points)

    def ask(self, points: Iterable[TriedPoint], repeats: int) -> dict[str, Any] | None:
        every = sorted(points, key=lambda point: point.number)
        mine = [point for point in every if point.branch == self.branch.number]
        seed = _seed(self._spec.sampler_seed, self.branch.number, len(mine), repeats)
        # A model may insist on its optimum; chance finds what is left of the space.
        is_stuck = repeats >= _INSISTS
        sampler = RandomSampler(seed) if is_stuck else _MODELS[self._spec.sampler](seed)
        directions = [one.direction for one in self._spec.every_objective]
        study = optuna.create_study(directions=directions, sampler=sampler)
        worst = self._worst_case(every)
        trials = (self._trial(point, worst) for point in mine)
        study.add_trials(self._prior + [trial for trial in trials if trial is not None])
        return _decode(self.branch, study.ask(self._distributions).params)

    def first_draws(self) -> Iterable[dict[str, Any]]:
        first = self.ask((), repeats=0)
        return [] if first is None else [first]

    def _trial(self, point: TriedPoint, worst: Sequence[float]) -> FrozenTrial | None:
        """The point as Optuna sees it; None where all of its replicates failed."""
        state, values = self._outcome(point, worst)
        if state == Told.FAIL:
            return None
        return create_trial(
            state=state,
            values=values,
            params=encoded(self.branch, point.params),
            distributions=self._distributions,
            intermediate_values=point.curve if state == Told.PRUNED else None,
        )

    def _outcome(
        self, point: TriedPoint, worst: Sequence[float]
    ) -> tuple[Told, list[float] | None]:
        outcomes = point.outcomes.values()
        open_ones = len(outcomes) < self._spec.replicates
        if open_ones or not all(outcome.state.is_finished() for outcome in outcomes):
            return Told.RUNNING, None
        if any(outcome.state == TrialState.PRUNED for outcome in outcomes):
            return Told.PRUNED, [point.curve[max(point.curve)] if point.curve else worst[0]]
        rows = [worst for outcome in outcomes if outcome.state == TrialState.DIVERGED]
        rows += _finite(outcomes)
        if not rows:
            return Told.FAIL, None
        return Told.COMPLETE, [statistics.fmean(values) for values in zip(*rows, strict=True)]

    def _worst_case(self, points: Iterable[TriedPoint]) -> list[float]:
        """What a diverged trial counts as: all wrong, or the worst that any trial ended with."""
        seen = [values for point in points for values in _finite(point.outcomes.values())]
        found = []
        for index, one in enumerate(self._spec.every_objective):
            minimize = one.direction == "minimize"
            if one.metric in FRACTIONS:
                found.append(1.0 if minimize else 0.0)
            else:
                worst = max if minimize else min
                found.append(worst((values[index] for values in seen), default=0.0))
        return found


def _finite(outcomes: Iterable[TriedTrial]) -> list[Sequence[float]]:
    """The values of each complete trial that has all of them."""
    return [
        [value for value in outcome.values if value is not None]
        for outcome in outcomes
        if outcome.state == TrialState.COMPLETE and None not in outcome.values
    ]


def draws(spec: SweepSpec, branch: Branch) -> Iterable[dict[str, Any]]:
    """The endless sequence of a sampler that learns nothing: random or quasi-random."""
    seed = _seed(spec.sampler_seed, branch.number)
    sampler = RandomSampler(seed) if spec.sampler == "random" else _quasi_random(seed)
    study = optuna.create_study(sampler=sampler)
    space = distributions(branch)
    while True:
        trial = study.ask(space)
        # Told at once: the quasi-random sampler takes its space from a trial that has ended.
        study.tell(trial, 0.0)
        yield _decode(branch, trial.params)


def _quasi_random(seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        # "Experimental": its sequence may change between releases of Optuna, which are locked.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return QMCSampler(
            seed=seed,
            scramble=True,
            independent_sampler=RandomSampler(seed),
            warn_independent_sampling=False,
        )


def _seed(*parts: int) -> int:
    """A seed of 32 bits that differs wherever a part differs."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def distributions(branch: Branch) -> dict[str, BaseDistribution]:
    """The free fields of a branch as Optuna sees them."""
    return {name: _distribution(domain) for name, domain in branch.free.items()}


def _distribution(domain: Domain) -> BaseDistribution:
    if domain.kind == "choice":
        # By position: Optuna wants its choices to be plain values, ours may be pairs.
        return CategoricalDistribution(range(len(domain.values)))
    if domain.kind == "int":
        return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
    if domain.step is not None:
        # By place: with a step Optuna adds up binary fractions, and 0.1, 0.2, … misses 0.3.
        return IntDistribution(0, (domain.size() or 1) - 1)
    return FloatDistribution(domain.low, domain.high, log=domain.log)


def encoded(branch: Branch, params: Mapping[str, Any]) -> dict[str, Any]:
    """The free values of a point as Optuna sees them: choices and grids by their place."""
    return {name: _place(domain, params[name]) for name, domain in branch.free.items()}


def _place(domain: Domain, value: Any) -> Any:
    return domain.index(value) if _has_places(domain) else value


def _has_places(domain: Domain) -> TypeGuard[Choice | FloatRange]:
    """Whether Optuna sees places of its values: of a choice, and of a float range with a step."""
    return domain.kind == "choice" or (domain.kind == "float" and domain.step is not None)


def _decode(branch: Branch, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return branch.fixed | {
        name: _value(domain, drawn[name]) for name, domain in branch.free.items()
    }


def _value(domain: Domain, drawn: Any) -> Any:
    # A logarithm and back may pass the end of a range by a rounding.
    return domain.value(drawn) if _has_places(domain) else domain.canonical(drawn)
