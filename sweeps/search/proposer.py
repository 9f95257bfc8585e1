"""Proposes the points of a sweep: grid, random, quasi-random, TPE, GP. The only door to Optuna.

Each branch of the space (see ``sweeps.spec.branches``) has a sampler of its own and they take
turns, so optimizers get equal budgets. Grid, random and quasi-random points depend on the spec
alone; TPE and GP points on the spec and on the results so far, never on the order in which results
came: the study is built in memory from the points, in number order, for each question.

Sampled points do not depend on the order in which a spec lists its fields: they are drawn in the
order of names. A sweep whose stored points were drawn in the order of the spec, as up to version
0.1.0, goes on in that order.
"""

import hashlib
import json
import statistics
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeGuard

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as Told

from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from sweeps.spec.branches import Branch, branches, grid
from sweeps.spec.domains import Choice, Domain, FloatRange
from sweeps.spec.sweep_spec import SweepSpec

optuna.logging.set_verbosity(optuna.logging.WARNING)

#: Proposals in a row that were made before; then the branch counts as exhausted.
REPEATS = 100
#: Points that may be asked for ahead of need where results do not change them.
LOOKAHEAD = 32
#: Refused proposals in a row after which a model is no longer asked.
_INSISTS = 3
#: Stored points that tell in which order of fields a sweep was drawn.
_TELLING = 8
#: Samplers whose points end where they were meant to.
_COUNTED = ("grid", "list")


@dataclass(frozen=True)
class _Outcome:
    """What is known of one trial."""

    number: int
    state: TrialState
    objective: float | None


@dataclass
class _Point:
    """A point and what became of its replicates so far."""

    number: int
    params: dict[str, Any]
    #: Number of its branch, -1 until the branches are numbered.
    branch: int = -1
    #: By seed.
    outcomes: dict[int, _Outcome] = field(default_factory=dict)
    #: Where it was pruned: objective by step, mean over replicates.
    curve: dict[int, float] = field(default_factory=dict)


class SweepProposer:
    """Proposes each point of a SweepSpec on each of its replicate seeds. See ``Proposer``."""

    def __init__(self, spec: SweepSpec, reader: TrialReader) -> None:
        self._spec = spec
        self._reader = reader
        self._seeds = [spec.base.seed + k for k in range(spec.replicates)]
        self._points: dict[int, _Point] = {}
        self._keys: set[str] = set()
        # Keys in the store that a sampler which restarts from its first point has yet to pass.
        self._replayed: set[str] = set()
        self._open: deque[Proposal] = deque()
        self._looked_for_gaps = False
        self._initial = deque(spec.initial_points)
        self._arms: list[_Arm] = []
        self._live: list[_Arm] = []

    @property
    def lookahead(self) -> int:
        """How many proposals may be asked for before earlier ones have ended."""
        return 1 if self._spec.sampler in _MODELS else LOOKAHEAD * len(self._seeds)

    def next(self) -> Proposal | Wait | Finished:
        if not self._arms:
            self._choose_order()
        self._open_gaps()
        if not self._open:
            if self._spec.num_points is not None and len(self._points) >= self._spec.num_points:
                return Finished("all done")
            params = self._fresh_params()
            if params is None:
                return Finished("all done" if self._spec.sampler in _COUNTED else "space exhausted")
            self._open_point(self._add_point(max(self._points, default=-1) + 1, params))
        return self._open.popleft()

    def running(self, trial: Trial) -> None:
        self._note(trial)

    def tell(self, trial: Trial) -> None:
        point = self._note(trial)
        if trial.state == TrialState.PRUNED:
            point.curve = self._mean_curve(point)

    def result(self) -> dict[str, Any] | None:
        """Nothing: a sweep's result is the analysis of its rows."""
        return None

    def _note(self, trial: Trial) -> _Point:
        point = self._points.get(trial.point)
        if point is None:
            point = self._add_point(trial.point, trial.params)
            self._replayed.add(trial.config_key)
        point.outcomes[trial.seed] = _Outcome(trial.number, trial.state, trial.objective)
        return point

    def _add_point(self, number: int, params: dict[str, Any]) -> _Point:
        self._points[number] = _Point(number, params, self._branch_number(params))
        self._keys.add(self._key(params))
        return self._points[number]

    def _branch_number(self, params: Mapping[str, Any]) -> int:
        if not self._arms:
            return -1
        return next((arm.branch.number for arm in self._arms if arm.branch.holds(params)), 0)

    def _choose_order(self) -> None:
        """Number the branches and make their samplers, in the order that drew the stored points."""
        chosen = written = self._spec.branches()
        names = sorted(self._spec.space)
        if self._spec.sampler not in _COUNTED and names != list(self._spec.space):
            chosen = branches({name: self._spec.space[name] for name in names})
            if self._points and not self._draws_stored_points(chosen):
                chosen = written if self._draws_stored_points(written) else chosen
        self._arms = [_arm(self._spec, branch) for branch in chosen]
        self._live = list(self._arms)
        for point in self._points.values():
            point.branch = self._branch_number(point.params)

    def _draws_stored_points(self, order: list[Branch]) -> bool:
        """Whether the first draws of each branch are points that the store has."""
        for branch in order:
            initial = {self._key(params) for params in self._spec.initial_points}
            mine = [p for p in self._points.values() if branch.holds(p.params)]
            drawn = [p for p in mine if self._key(p.params) not in initial]
            arm = _arm(self._spec, branch)
            for params in islice(arm.first_draws(), min(len(drawn), _TELLING)):
                if self._key(params) not in self._keys:
                    return False
        return True

    def _open_gaps(self) -> None:
        """Queue replicates that the store lacks: of a point cut short, or of an extended spec."""
        if not self._looked_for_gaps:
            self._looked_for_gaps = True
            for number in sorted(self._points):
                self._open_point(self._points[number])

    def _open_point(self, point: _Point) -> None:
        for seed in self._seeds:
            if seed not in point.outcomes:
                config = self._spec.config(point.params, seed)
                self._open.append(Proposal(point.number, point.params, config))

    def _key(self, params: Mapping[str, Any]) -> str:
        return self._spec.config(self._spec.canonical(params), self._seeds[0]).key()

    def _fresh_params(self) -> dict[str, Any] | None:
        """Params of a point that does not exist yet; None when there are no more."""
        while self._initial:
            params = self._spec.canonical(self._initial.popleft())
            key = self._key(params)
            self._replayed.discard(key)
            if key not in self._keys:
                return params
        while self._live:
            arm = min(self._live, key=lambda a: (a.count(self._points.values()), a.branch.number))
            asked = self._ask(arm)
            if asked is not None:
                return asked
        return None

    def _ask(self, arm: "_Arm") -> dict[str, Any] | None:
        """One new point of a branch; None where it passed a stored one or has no more."""
        for repeats in range(REPEATS):
            params = arm.ask(self._points.values(), repeats)
            if params is None:
                break
            key = self._key(params)
            if key not in self._keys:
                return params
            if key in self._replayed and arm.restarts:
                self._replayed.remove(key)
                return None
        self._live.remove(arm)
        return None

    def _mean_curve(self, point: _Point) -> dict[int, float]:
        metric = self._spec.objective.metric
        by_step: dict[int, list[float]] = {}
        for outcome in point.outcomes.values():
            for step, value in self._reader.metrics(outcome.number, [metric]).get(metric, ()):
                by_step.setdefault(step, []).append(value)
        return {step: statistics.fmean(values) for step, values in sorted(by_step.items())}


class _Arm(Protocol):
    """One branch and what samples it."""

    branch: Branch
    #: Whether it proposes all of its points again in a new process.
    restarts: bool

    def count(self, points: Iterable[_Point]) -> int:
        """Points that it has proposed: the branch with the fewest is next."""

    def ask(self, points: Iterable[_Point], repeats: int) -> dict[str, Any] | None:
        """Another point; ``repeats`` counts refused ones since the last that was new."""

    def first_draws(self) -> Iterable[dict[str, Any]]:
        """Its points that depend on no result, from the first; the arm is of no use afterwards."""


class _Sequence:
    """A branch whose points are a fixed sequence: grid, random, quasi-random."""

    restarts = True

    def __init__(self, branch: Branch, sequence: Iterable[dict[str, Any]]) -> None:
        self.branch = branch
        self._sequence = iter(sequence)
        self._accepted = 0

    def count(self, points: Iterable[_Point]) -> int:
        return self._accepted

    def ask(self, points: Iterable[_Point], repeats: int) -> dict[str, Any] | None:
        self._accepted += repeats == 0
        return next(self._sequence, None)

    def first_draws(self) -> Iterable[dict[str, Any]]:
        return self._sequence


class _Model:
    """A branch whose next point follows from the results of its points: TPE, GP."""

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

    def count(self, points: Iterable[_Point]) -> int:
        return sum(point.branch == self.branch.number for point in points)

    def ask(self, points: Iterable[_Point], repeats: int) -> dict[str, Any] | None:
        every = sorted(points, key=lambda point: point.number)
        mine = [point for point in every if point.branch == self.branch.number]
        seed = _seed(self._spec.sampler_seed, self.branch.number, len(mine), repeats)
        # A model may insist on its optimum; chance finds what is left of the space.
        is_stuck = repeats >= _INSISTS
        sampler = RandomSampler(seed) if is_stuck else _MODELS[self._spec.sampler](seed)
        study = optuna.create_study(direction=self._spec.objective.direction, sampler=sampler)
        worst = self._worst_case(every)
        trials = (self._trial(point, worst) for point in mine)
        study.add_trials(self._prior + [trial for trial in trials if trial is not None])
        return _decode(self.branch, study.ask(self._distributions).params)

    def first_draws(self) -> Iterable[dict[str, Any]]:
        first = self.ask((), repeats=0)
        return [] if first is None else [first]

    def _trial(self, point: _Point, worst: float) -> FrozenTrial | None:
        """The point as Optuna sees it; None where all of its replicates failed."""
        state, value = self._outcome(point, worst)
        if state == Told.FAIL:
            return None
        return create_trial(
            state=state,
            value=value,
            params=encoded(self.branch, point.params),
            distributions=self._distributions,
            intermediate_values=point.curve if state == Told.PRUNED else None,
        )

    def _outcome(self, point: _Point, worst: float) -> tuple[Told, float | None]:
        outcomes = point.outcomes.values()
        open_ones = len(outcomes) < self._spec.replicates
        if open_ones or not all(outcome.state.is_finished() for outcome in outcomes):
            return Told.RUNNING, None
        if any(outcome.state == TrialState.PRUNED for outcome in outcomes):
            return Told.PRUNED, point.curve[max(point.curve)] if point.curve else worst
        values = [worst for outcome in outcomes if outcome.state == TrialState.DIVERGED]
        values += _finite(outcomes)
        return (Told.COMPLETE, statistics.fmean(values)) if values else (Told.FAIL, None)

    def _worst_case(self, points: Iterable[_Point]) -> float:
        """What a diverged trial counts as: all wrong, or the worst that any trial ended with."""
        minimize = self._spec.objective.direction == "minimize"
        if self._spec.objective.metric.endswith("_error"):
            return 1.0 if minimize else 0.0
        seen = [value for point in points for value in _finite(point.outcomes.values())]
        return (max if minimize else min)(seen, default=0.0)


def _finite(outcomes: Iterable[_Outcome]) -> list[float]:
    return [
        outcome.objective
        for outcome in outcomes
        if outcome.state == TrialState.COMPLETE and outcome.objective is not None
    ]


#: Samplers that learn, each made anew for each question.
_MODELS: dict[str, Any] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "gp": lambda seed: GPSampler(seed=seed),
}


def _arm(spec: SweepSpec, branch: Branch) -> _Arm:
    if spec.sampler in _MODELS:
        return _Model(branch, spec)
    if spec.sampler in _COUNTED:
        return _Sequence(branch, grid(branch) if spec.sampler == "grid" else ())
    seed = _seed(spec.sampler_seed, branch.number)
    sampler = RandomSampler(seed) if spec.sampler == "random" else _quasi_random(seed)
    return _Sequence(branch, _draws(branch, sampler))


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


def _draws(branch: Branch, sampler: BaseSampler) -> Iterable[dict[str, Any]]:
    """The endless sequence of a sampler that learns nothing."""
    study = optuna.create_study(sampler=sampler)
    space = distributions(branch)
    while True:
        trial = study.ask(space)
        # Told at once: the quasi-random sampler takes its space from a trial that has ended.
        study.tell(trial, 0.0)
        yield _decode(branch, trial.params)


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
