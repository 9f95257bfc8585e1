"""What a driver needs to know of a sweep, by kind: who proposes, what counts, what it takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.records import Sweep, SweepObjective
from sweeps.search.early_stopping import PointScheduler, rule_of
from sweeps.search.protocol import Proposer
from sweeps.spec.declarations import TrialLimits
from sweeps.spec.sweep_spec import Budget, Resources, SweepSpec
from sweeps.store.store import Store
from worker.config.train_config import TrainConfig
from worker.config.training import IMAGES
from worker.config.trial_config import TrialConfig
from worker.report import Series


@dataclass(frozen=True)
class SweepPlan:
    """One sweep, ready to be driven."""

    proposer: Proposer
    #: Proposals that may be asked for before earlier ones have ended.
    lookahead: int
    scheduler: PointScheduler
    resources: Resources
    budget: Budget
    #: Of each trial.
    limits: TrialLimits
    #: Trials at once; None = as many as fit.
    concurrency: int | None
    #: Empty for a match, whose proposer reads what it needs.
    objectives: Sequence[SweepObjective]
    #: Prepared data sets that its trials may train on, as far as the spec tells.
    datasets: Sequence[str]
    #: Packages of its training and of its parts -> version at submission.
    packages: Mapping[str, str]
    #: Computes a sweep's result from its rows; None where the proposer knows it.
    analyse: Callable[[], dict[str, Any]] | None


class StoreReader:
    """Reads what the trials of one sweep recorded. See ``TrialReader``."""

    def __init__(self, store: Store, sweep_id: str) -> None:
        self._store = store
        self._sweep_id = sweep_id

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> Mapping[str, list[tuple[int, float]]]:
        return self._store.metrics(self._sweep_id, number, names, max_points)

    def series(self, number: int, name: str) -> list[Series]:
        return self._store.series(self._sweep_id, number, name)


def plan(store: Store, sweep: Sweep) -> SweepPlan:
    """Build the plan of a stored sweep. Raises ValidationError for a spec of another version."""
    return _match(store, sweep) if sweep.kind == "match" else _sweep(store, sweep)


def _sweep(store: Store, sweep: Sweep) -> SweepPlan:
    # Optuna costs half a second that a match does not need.
    from sweeps.search.proposer import SweepProposer

    spec = SweepSpec.model_validate(sweep.spec)
    proposer = SweepProposer(spec, StoreReader(store, sweep.id))
    return SweepPlan(
        proposer=proposer,
        lookahead=proposer.lookahead,
        scheduler=PointScheduler(rule_of(spec), maximize=sweep.objective.is_maximized),
        resources=spec.resources,
        budget=spec.budget,
        limits=spec.limits,
        concurrency=spec.concurrency,
        objectives=sweep.objectives,
        datasets=_datasets(spec),
        packages=_packages(sweep),
        analyse=lambda: _analyse(store, sweep.id),
    )


def _datasets(spec: SweepSpec) -> list[str]:
    domain = spec.space.get("dataset") if spec.training == IMAGES else None
    return [str(name) for name in getattr(domain, "values", _dataset(spec.base))]


def _dataset(config: TrialConfig) -> list[str]:
    return [config.dataset] if isinstance(config, TrainConfig) else []


def _packages(sweep: Sweep) -> dict[str, str]:
    named = [*([sweep.package] if sweep.package else []), *(sweep.parts or {}).values()]
    return {package["name"]: package["version"] for package in named}


def _match(store: Store, sweep: Sweep) -> SweepPlan:
    from sweeps.match.match_spec import MatchSpec
    from sweeps.match.proposer import MatchProposer

    spec = MatchSpec.model_validate(sweep.spec)
    return SweepPlan(
        proposer=MatchProposer(spec, StoreReader(store, sweep.id)),
        lookahead=1,
        scheduler=PointScheduler(None),
        resources=spec.resources,
        budget=spec.budget,
        limits=spec.limits,
        concurrency=spec.concurrency,
        objectives=(),
        datasets=_dataset(spec.source_config),
        packages=_packages(sweep),
        analyse=None,
    )


def _analyse(store: Store, sweep_id: str) -> dict[str, Any]:
    from sweeps.analysis.whole import driver_analysis

    return driver_analysis(store, sweep_id)
