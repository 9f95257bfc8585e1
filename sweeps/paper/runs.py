"""Finished runs that may belong to the paper's comparison, from a store or a results folder."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.batch.results import RunResult, read_results
from sweeps.spec.domains import same
from sweeps.spec.presets import read_preset
from sweeps.spec.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from sweeps.store.store import Store

Curve = list[tuple[int, float]]

#: Fields in which a run may differ from its preset and still belong to it: how it was computed and
#: how often it was looked at, not what was trained. A report lists the precisions.
_FREE = ("seed", "precision", "deterministic", "report_every", "test_evaluation")


@dataclass(frozen=True)
class PaperRun:
    """One finished run."""

    config: dict[str, Any]
    seed: int
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    #: Wall time; None where it is not known.
    seconds: float | None
    #: Where a person finds it: a file, or a page of the service.
    where: str
    #: Curves of the named metrics; of all without names.
    curves: Callable[[Sequence[str] | None], Mapping[str, Curve]]

    @property
    def precision(self) -> str:
        return str(self.config["precision"])


@dataclass(frozen=True)
class Arm:
    """A point of a preset, and the runs that trained it: one per seed, by seed."""

    params: dict[str, Any]
    config: dict[str, Any]
    runs: tuple[PaperRun, ...]

    #: Seeds that the preset asks for.
    replicates: int

    def values(self, metric: str) -> list[float]:
        """The final value of each run that has it."""
        return [run.metrics[metric] for run in self.runs if metric in run.metrics]

    def curves(self, metric: str) -> list[Curve]:
        """The curve of each run that has one."""
        found = [run.curves([metric]).get(metric) for run in self.runs]
        return [curve for curve in found if curve]


class PaperRuns:
    """Runs, found by the point of a preset that they trained."""

    def __init__(self, runs: Iterable[PaperRun]) -> None:
        self._by_key: dict[str, list[PaperRun]] = {}
        for run in runs:
            self._by_key.setdefault(what_was_trained(run.config), []).append(run)

    def arm(self, preset: str, params: Mapping[str, Any]) -> Arm:
        """The point of a preset with exactly these params. Raises KeyError for another point."""
        wanted = same(sorted(params.items()))
        for arm in self.arms(preset):
            if same(sorted(arm.params.items())) == wanted:
                return arm
        raise KeyError(f"preset {preset} has no point {dict(params)}")

    def arms(self, preset: str) -> list[Arm]:
        """Every point of a preset."""
        return [
            Arm(params, config, tuple(self._of(config)), replicates)
            for params, config, replicates in _points(preset)
        ]

    def _of(self, config: dict[str, Any]) -> list[PaperRun]:
        """One run per seed: all in the preset's precision if any is, else in one other."""
        found = self._by_key.get(what_was_trained(config), [])
        by_precision: dict[str, dict[int, PaperRun]] = {}
        for run in found:
            by_precision.setdefault(run.precision, {}).setdefault(run.seed, run)
        chosen = by_precision.get(str(config["precision"]))
        if chosen is None:
            chosen = max(by_precision.values(), key=len, default={})
        return [chosen[seed] for seed in sorted(chosen)]


def what_was_trained(config: Mapping[str, Any]) -> str:
    """Equal for stored configs that train the same thing, however it was computed."""
    kept = {name: value for name, value in config.items() if name not in _FREE}
    if not kept.get("validation_fraction"):
        # Nothing is split off, whatever the seed of the split.
        kept.pop("split_seed", None)
    return same(sorted(kept.items(), key=lambda item: item[0]))


@cache
def _points(preset: str) -> list[tuple[dict[str, Any], dict[str, Any], int]]:
    spec = SweepSpec.model_validate(read_preset(preset).spec)
    points = spec.initial_points or list(spec.grid_points())
    return [
        (params, spec.config(params, spec.base.seed).stored(), spec.replicates) for params in points
    ]


def runs_of_folder(folder: Path) -> Iterator[PaperRun]:
    """Every complete run in a results folder of ``ndsweep batch``."""
    for result in read_results(folder):
        if result.state == "complete":
            yield run_of_result(result)


def run_of_result(result: RunResult) -> PaperRun:
    """A batch's result as a run of the comparison."""

    def curves(names: Sequence[str] | None) -> Mapping[str, Curve]:
        known = {name for group in result.curves for name in group.values}
        wanted = known if names is None else known & set(names)
        return {name: result.curve(name) for name in wanted}

    return PaperRun(
        config=result.config,
        seed=result.seed,
        metrics=result.metrics,
        provenance=result.provenance,
        seconds=result.seconds,
        where=f"{result.config_key}-{result.seed}.json",
        curves=curves,
    )


def runs_of_store(store: "Store") -> Iterator[PaperRun]:
    """Every complete trial of the store's sweeps that may be one of the paper's."""
    cursor: str | None = None
    while True:
        page = store.list_sweeps(kind="sweep", cursor=cursor, limit=200)
        for sweep in page.items:
            # CIFAR is what the paper trains on; a sweep of 10,000 digits need not be read.
            if str(sweep.base.get("dataset", "cifar10")).startswith("cifar"):
                yield from _runs_of_sweep(store, sweep.id)
        cursor = page.next
        if cursor is None:
            return


def _runs_of_sweep(store: "Store", sweep_id: str) -> Iterator[PaperRun]:
    for trial in store.all_trials(sweep_id):
        if trial.state != "complete":
            continue
        number = trial.number

        def curves(
            names: Sequence[str] | None, sweep_id: str = sweep_id, number: int = number
        ) -> Mapping[str, Curve]:
            return store.metrics(sweep_id, number, names)

        took = None
        if trial.started_at is not None and trial.finished_at is not None:
            took = (trial.finished_at - trial.started_at).total_seconds()
        attempts = store.trial(sweep_id, number).attempts
        yield PaperRun(
            config=trial.config,
            seed=trial.seed,
            metrics=trial.metrics,
            provenance=attempts[-1].provenance if attempts else {},
            seconds=took,
            where=f"/sweeps/{sweep_id}/trials/{number}",
            curves=curves,
        )
