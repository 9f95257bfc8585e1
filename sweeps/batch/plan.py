"""Which runs a batch consists of, and in which order.

Replicate by replicate over all specs: every point with the first seed, then with the next, so that
a batch that ends early leaves whole sets. What two specs have in common is run once. Needs no
Optuna for grids and for points that the spec lists itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sweeps.errors import SweepsError
from sweeps.search.proposer import fixed_points
from sweeps.spec.sweep_spec import MODELS, SweepSpec, load_spec_text
from sweeps.spec.validation_messages import in_words, shown
from worker.config.parts import is_registered
from worker.config.train_config import FieldError, TrainConfig
from worker.data.prepared import dataset_info
from worker.data.run_length import check_fits
from worker.errors import WorkerError

#: Runs of one spec in a batch, whose plan is held in memory.
MAX_RUNS = 100_000


class BatchRefused(SweepsError):
    """A batch that cannot be run as asked. Nothing was started."""


class Membership(BaseModel):
    """That a run belongs to a spec: as which point, with which sampled values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Name of the spec.
    spec: str
    point: int
    params: dict[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One configuration to be trained once with one seed."""

    config: TrainConfig
    config_key: str
    num_steps: int
    specs: tuple[Membership, ...]

    @property
    def name(self) -> str:
        """Names its files: unique among runs."""
        return f"{self.config_key}-{self.config.seed}"

    @property
    def label(self) -> str:
        """What a person calls it."""
        first = self.specs[0]
        params = " ".join(f"{name}={value}" for name, value in first.params.items())
        return f"{first.spec} {params} seed {self.config.seed}"


def read_specs(
    paths: Sequence[Path], *, replicates: int | None = None, seed_offset: int = 0
) -> list[SweepSpec]:
    """Read spec files, with the number and the first of their seeds replaced where asked.

    Raises BatchRefused, naming the file, for a spec that is wrong or that a batch cannot run.
    """
    specs: list[SweepSpec] = []
    for path in paths:
        try:
            values = load_spec_text(path.read_text(encoding="utf-8"))
            spec = _override(SweepSpec.model_validate(values), replicates, seed_offset)
        except ValidationError as error:
            kind = "; it is a match: use `ndsweep match run`" if _is_match(values) else ""
            raise BatchRefused(f"{path}: {in_words(error)}{kind}") from error
        except (SweepsError, UnicodeDecodeError) as error:
            raise BatchRefused(f"{path}: {error}") from error
        _check_can_run(path, spec)
        if spec.name in [other.name for other in specs]:
            raise BatchRefused(f"{path}: name must differ from the other specs', got {spec.name!r}")
        specs.append(spec)
    return specs


def plan_runs(specs: Sequence[SweepSpec], data_home: Path) -> list[PlannedRun]:
    """Every run of the specs in the order in which they should be started.

    Raises BatchRefused where a config does not fit its data set or the set is not prepared, and
    for epochs of a data set that a package registers.
    """
    found: dict[str, PlannedRun] = {}
    for spec, point, params, seed in _in_order(specs):
        config = spec.config(params, seed).resolved()
        assert isinstance(config, TrainConfig)  # _check_can_run refuses others
        member = Membership(spec=spec.name, point=point, params=params)
        try:
            num_steps = _num_steps(config, data_home)
        except (FieldError, WorkerError) as error:
            raise BatchRefused(f"{spec.name}: {error}") from error
        most = spec.limits.steps
        if most is not None and num_steps > most:
            raise BatchRefused(
                f"{spec.name}: limits.steps must be at least the {num_steps:,} steps of a run, got "
                f"{most:,}: raise it, or shorten the runs"
            )
        run = PlannedRun(config, config.key(), num_steps, (member,))
        earlier = found.get(run.name)
        if earlier is not None:
            run = PlannedRun(config, run.config_key, num_steps, (*earlier.specs, member))
        found[run.name] = run
    return list(found.values())


def _num_steps(config: TrainConfig, data_home: Path) -> int:
    """Return the length of a resolved config's run. Raises FieldError, WorkerError."""
    if not is_registered("dataset", config.dataset):
        return check_fits(config, dataset_info(config.dataset, data_home)).num_steps
    if config.steps is None:
        # Its examples are counted where they are loaded, by the processes that train.
        raise FieldError(
            "steps",
            f"steps must be set in a batch for dataset {config.dataset!r}, which a package "
            f"registers: how many examples an epoch has is not known here; got epochs = "
            f"{config.epochs}",
        )
    return config.steps


def _in_order(
    specs: Sequence[SweepSpec],
) -> Iterator[tuple[SweepSpec, int, dict[str, Any], int]]:
    points = [list(spec_points(spec)) for spec in specs]
    taken = [0 for _ in specs]
    for replicate in range(max((spec.replicates for spec in specs), default=0)):
        for index, spec in enumerate(specs):
            if replicate >= spec.replicates:
                continue
            for point, params in enumerate(points[index]):
                if taken[index] == spec.num_trials():
                    break
                taken[index] += 1
                yield spec, point, params, spec.base.seed + replicate


def spec_points(spec: SweepSpec) -> Iterator[dict[str, Any]]:
    """The points of a spec, each once, numbered as the sweep engine numbers them.

    Raises BatchRefused for points that need Optuna where it is not.
    """
    try:
        yield from fixed_points(spec)
    except ModuleNotFoundError as error:
        raise BatchRefused(
            f"{spec.name}: sampler {spec.sampler!r} needs the package {error.name!r}, which is not "
            "here; use sampler grid, or list the points in initial_points"
        ) from error


def _override(spec: SweepSpec, replicates: int | None, seed_offset: int) -> SweepSpec:
    if replicates is None and not seed_offset:
        return spec
    base = spec.base.model_dump(exclude_unset=True) | {"seed": spec.base.seed + seed_offset}
    changed = spec.model_dump(exclude_unset=True) | {
        "base": base,
        "replicates": replicates or spec.replicates,
    }
    return SweepSpec.model_validate(changed)


def _is_match(values: Any) -> bool:
    return isinstance(values, dict) and "source" in values


#: What a batch cannot do: field, why not, and what to do instead.
_REFUSED = (
    ("scheduler", "which stops no point early", "remove it"),
    ("budget.gpu_hours", "which counts none", "end it with --until"),
    ("budget.wall_seconds", "which has a clock of its own", "end it with --until"),
    ("budget.steps", "which runs all that it plans", "set num_points or budget.trials"),
    ("limits.wall_seconds", "which ends no run early", "remove it and end the batch with --until"),
    ("limits.gpu_hours", "which ends no run early", "remove it and end the batch with --until"),
)


def _check_can_run(path: Path, spec: SweepSpec) -> None:
    if not isinstance(spec.base, TrainConfig):
        raise BatchRefused(
            f"{path}: training must be 'images' in a batch, got {spec.training!r}: run the spec "
            "with a service (`ndsweep submit`)"
        )
    if spec.sampler in MODELS:
        raise BatchRefused(
            f"{path}: sampler must be grid, random, qmc or list in a batch, which plans every run "
            f"before it has a result; got {spec.sampler!r}: choose one of them, or run the spec "
            "with a service (`ndsweep submit`)"
        )
    if spec.num_trials() > MAX_RUNS:
        raise BatchRefused(
            f"{path}: a batch plans its runs ahead and may have {MAX_RUNS:,}, this spec has "
            f"{spec.num_trials():,}; set num_points, or submit it to a service"
        )
    for field, why, instead in _REFUSED:
        value = attrgetter(field)(spec)
        if value is not None:
            raise BatchRefused(
                f"{path}: {field} must be none in a batch, {why}; got "
                f"{shown(getattr(value, 'kind', value))}: {instead}, or run the spec with a "
                "service (`ndsweep submit`)"
            )
