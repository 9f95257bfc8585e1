"""Proposes the points of a sweep: grid, random, quasi-random, TPE, GP, NSGA-II.

Each branch of the space (see ``sweeps.spec.branches``) has a sampler of its own and they take
turns, so optimizers get equal budgets. Grid, random and quasi-random points depend on the spec
alone; points of the others also on the results so far (``sweeps.search.optuna_samplers``).

Sampled points do not depend on the order in which a spec lists its fields: they are drawn in the
order of names. A sweep whose stored points were drawn in the order of the spec, as up to version
0.1.0, goes on in that order. Optuna is loaded when the first point is drawn, which those of a grid
and those that a spec lists are not.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from sweeps.records import Trial, TrialState
from sweeps.search.points import BranchSampler, TriedPoint, TriedTrial
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from sweeps.spec.branches import Branch, branches, grid
from sweeps.spec.checks import COUNTED
from sweeps.spec.sweep_spec import MODELS, SweepSpec
from worker.report import Series

#: Proposals in a row that were made before; then the branch counts as exhausted.
REPEATS = 100
#: Points that may be asked for ahead of need where results do not change them.
LOOKAHEAD = 32
#: Stored points that tell in which order of fields a sweep was drawn.
_TELLING = 8


class SweepProposer:
    """Proposes each point of a SweepSpec on each of its replicate seeds. See ``Proposer``."""

    def __init__(self, spec: SweepSpec, reader: TrialReader) -> None:
        self._spec = spec
        self._reader = reader
        self._objectives = [one.metric for one in spec.every_objective]
        self._seeds = [spec.base.seed + k for k in range(spec.replicates)]
        self._points: dict[int, TriedPoint] = {}
        self._keys: set[str] = set()
        # Keys in the store that a sampler which restarts from its first point has yet to pass.
        self._replayed: set[str] = set()
        self._open: deque[Proposal] = deque()
        self._looked_for_gaps = False
        self._initial = deque(spec.initial_points)
        # In the order that drew the stored points; empty until the first question.
        self._branches: list[Branch] = []
        # One more than the highest number of a point.
        self._next_number = 0

    @property
    def lookahead(self) -> int:
        """How many proposals may be asked for before earlier ones have ended."""
        return 1 if self._spec.sampler in MODELS else LOOKAHEAD * len(self._seeds)

    def next(self) -> Proposal | Wait | Finished:
        if not self._branches:
            self._choose_order()
        self._open_gaps()
        if not self._open:
            if self._spec.num_points is not None and len(self._points) >= self._spec.num_points:
                return Finished("all done")
            params = self._fresh_params()
            if params is None:
                return Finished("all done" if self._spec.sampler in COUNTED else "space exhausted")
            self._open_point(self._add_point(self._next_number, params))
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

    def _note(self, trial: Trial) -> TriedPoint:
        point = self._points.get(trial.point)
        if point is None:
            point = self._add_point(trial.point, trial.params)
            self._replayed.add(trial.config_key)
        point.outcomes[trial.seed] = TriedTrial(
            trial.number, trial.state, trial.values_of(self._objectives)
        )
        return point

    def _add_point(self, number: int, params: dict[str, Any]) -> TriedPoint:
        self._points[number] = TriedPoint(number, params, self._branch_number(params))
        self._next_number = max(self._next_number, number + 1)
        self._keys.add(self._key(params))
        return self._points[number]

    def _branch_number(self, params: Mapping[str, Any]) -> int:
        if not self._branches:
            return -1
        return next((branch.number for branch in self._branches if branch.holds(params)), 0)

    def _choose_order(self) -> None:
        """Number the branches in the order that drew the stored points."""
        chosen = written = self._spec.branches()
        names = sorted(self._spec.space)
        if self._spec.sampler not in COUNTED and names != list(self._spec.space):
            chosen = branches({name: self._spec.space[name] for name in names})
            if self._points and not self._draws_stored_points(chosen):
                chosen = written if self._draws_stored_points(written) else chosen
        self._branches = chosen
        for point in self._points.values():
            point.branch = self._branch_number(point.params)

    def _draws_stored_points(self, order: list[Branch]) -> bool:
        """Whether the first draws of each branch are points that the store has."""
        for branch in order:
            initial = {self._key(params) for params in self._spec.initial_points}
            mine = [p for p in self._points.values() if branch.holds(p.params)]
            drawn = [p for p in mine if self._key(p.params) not in initial]
            arm = _sampler(self._spec, branch)
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

    def _open_point(self, point: TriedPoint) -> None:
        for seed in self._seeds:
            if seed not in point.outcomes:
                config = self._spec.config(point.params, seed)
                self._open.append(Proposal(point.number, point.params, config))

    def _key(self, params: Mapping[str, Any]) -> str:
        return self._spec.config(self._spec.canonical(params), self._seeds[0]).key()

    @cached_property
    def _live(self) -> list[BranchSampler]:
        """Branches that may have more points."""
        return [_sampler(self._spec, branch) for branch in self._branches]

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

    def _ask(self, arm: BranchSampler) -> dict[str, Any] | None:
        """One new point of a branch; None where it passed a stored one or has no more."""
        for repeats in range(REPEATS):
            params = arm.ask(self._points.values(), repeats)
            if params is None:
                break
            key = self._key(params)
            if key not in self._keys:
                # Fields in the order in which people wrote them, whatever order drew them.
                return {name: params[name] for name in self._spec.space if name in params}
            if key in self._replayed and arm.restarts:
                self._replayed.remove(key)
                return None
        self._live.remove(arm)
        return None

    def _mean_curve(self, point: TriedPoint) -> dict[int, float]:
        metric = self._spec.objective.metric
        by_step: dict[int, list[float]] = {}
        for outcome in point.outcomes.values():
            for step, value in self._reader.metrics(outcome.number, [metric]).get(metric, ()):
                by_step.setdefault(step, []).append(value)
        return {step: statistics.fmean(values) for step, values in sorted(by_step.items())}


class _Sequence:
    """A branch whose points are a fixed sequence: grid, random, quasi-random."""

    restarts = True

    def __init__(self, branch: Branch, sequence: Iterable[dict[str, Any]]) -> None:
        self.branch = branch
        self._sequence = iter(sequence)
        self._accepted = 0

    def count(self, points: Iterable[TriedPoint]) -> int:
        return self._accepted

    def ask(self, points: Iterable[TriedPoint], repeats: int) -> dict[str, Any] | None:
        self._accepted += repeats == 0
        return next(self._sequence, None)

    def first_draws(self) -> Iterable[dict[str, Any]]:
        return self._sequence


def _sampler(spec: SweepSpec, branch: Branch) -> BranchSampler:
    if spec.sampler in COUNTED:
        return _Sequence(branch, grid(branch) if spec.sampler == "grid" else ())
    from sweeps.search.optuna_samplers import Model, draws

    if spec.sampler in MODELS:
        return Model(branch, spec)
    return _Sequence(branch, draws(spec, branch))


class _NoResults:
    """There are no trials to read."""

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> Mapping[str, list[tuple[int, float]]]:
        return {}

    def series(self, number: int, name: str) -> list[Series]:
        return []


def fixed_points(spec: SweepSpec) -> Iterator[dict[str, Any]]:
    """Yield the params of each point of a spec whose sampler learns nothing, each once, in order.

    These are the points that ``SweepProposer`` proposes, without a sweep around them. Raises
    ModuleNotFoundError before a point that Optuna must draw where it is not installed.
    """
    proposer = SweepProposer(spec.model_copy(update={"replicates": 1}), _NoResults())
    while isinstance(proposal := proposer.next(), Proposal):
        yield proposal.params
