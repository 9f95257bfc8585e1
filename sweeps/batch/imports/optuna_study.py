"""Reads a study of Optuna, 4 or newer, from its storage."""

import sqlite3
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from sweeps.batch.imports.found import (
    Found,
    FoundTrial,
    counted,
    finite_numbers,
    is_number,
    metric_name,
    plain_value,
)
from sweeps.records import Direction, TrialState
from sweeps.spec.sweep_spec import MAX_OBJECTIVES
from sweeps.store.commands.imports import ImportRefused
from sweeps.store.database.sqlite_file import sqlite_path, sqlite_url

_SQLITE = b"SQLite format 3\x00"
_STATES = {
    OptunaState.COMPLETE: TrialState.COMPLETE,
    OptunaState.PRUNED: TrialState.PRUNED,
    OptunaState.FAIL: TrialState.FAILED,
}


def read_study(
    study: str, storage: str | None = None, *, objective: str | None = None, seed: str = "seed"
) -> Found:
    """Read a study.

    Args:
        study: Its name; or the file of its storage, if that holds one study.
        storage: URL of the storage, as Optuna takes it, or the path of a file (SQLite, journal).
        objective: Of a study with several: the one that the sweep is about, by its metric name;
            None = all of them.
        seed: Parameter or user attribute that holds the seed of a trial.

    Raises:
        ImportRefused: There is no such storage or study, or no such objective.
    """
    if storage is None and not Path(study).is_file():
        raise ImportRefused(
            f"{study!r} is not the file of a storage; name the storage of the study with "
            "--storage, a URL such as sqlite:///study.db or the path of a file"
        )
    name = study if storage is not None else None
    url, opened = _opened(storage or study)
    try:
        return _read(opened, url, name, objective, seed)
    finally:
        if isinstance(opened, optuna.storages.RDBStorage):
            opened.remove_session()
            opened.engine.dispose()


def _opened(text: str) -> tuple[str, Any]:
    """The storage, and what identifies it. Creates nothing where nothing is."""
    path = Path(text) if "://" not in text else sqlite_path(text)
    if path is None:
        return text, _rdb(text)
    if not path.is_file():
        raise ImportRefused(f"there is no storage {path}")
    path = path.resolve()
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    if is_sqlite:
        _refuse_other_tables(path)
        return str(path), _rdb(sqlite_url(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = optuna.storages.journal.JournalFileBackend(str(path))
        try:
            return str(path), optuna.storages.JournalStorage(backend)
        except (ValueError, KeyError, TypeError) as error:
            raise ImportRefused(
                f"{path} is neither an SQLite file nor a journal of Optuna"
            ) from error


def _refuse_other_tables(path: Path) -> None:
    """Optuna would add its tables to any SQLite file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        names = {name for (name,) in database.execute(query)}
    if "studies" not in names:
        raise ImportRefused(f"{path} holds no studies of Optuna")


def _rdb(url: str) -> Any:
    try:
        return optuna.storages.RDBStorage(url)
    except (RuntimeError, ImportError, ValueError, optuna.exceptions.StorageInternalError) as error:
        # A storage of an older Optuna says how to upgrade it.
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ImportRefused(f"Optuna cannot open the storage: {first}") from error


def _read(storage: Any, identity: str, name: str | None, objective: str | None, seed: str) -> Found:
    names = optuna.get_all_study_names(storage)
    if not names:
        raise ImportRefused(f"{identity} holds no studies of Optuna")
    if name is None and len(names) != 1:
        listed = ", ".join(names[:10])
        raise ImportRefused(
            f"{identity} holds the studies {listed}; name one, and the storage with --storage"
        )
    name = names[0] if name is None else name
    if name not in names:
        listed = ", ".join(names[:10])
        raise ImportRefused(f"there is no study {name!r} in {identity}; there are {listed}")
    study = optuna.load_study(study_name=name, storage=storage)
    metrics = _metrics(study)
    chosen = _chosen(metrics, objective)
    direction = _direction(study.directions[chosen])
    trials = study.get_trials(deepcopy=False)
    read = [_trial(trial, metrics, seed) for trial in trials if trial.state in _STATES]
    objectives = metrics[:MAX_OBJECTIVES] if objective is None and len(metrics) > 1 else []
    others = [name for name in metrics if name not in (objectives or [metrics[chosen]])]
    notes = _left_out(trials)
    if others:
        notes.append(
            f"of {len(metrics)} objectives the sweep has {', '.join(objectives) or metrics[chosen]}"
            f"; {', '.join(others)} are metrics"
            f"{' (--objective names another one)' if objective is not None else ''}"
        )
    if not all(map(is_number, _attributes(trials))):
        notes.append("user attributes that are no numbers")
    finished = [t.finished_at for t in read if t.finished_at is not None]
    return Found(
        tool="Optuna",
        identity=f"{identity}#{name}",
        name=name,
        objective=metrics[chosen],
        objectives=objectives,
        direction=direction,
        trials=read,
        at=max(finished, default=datetime.now(UTC)),
        directions={
            metric: _direction(end) for metric, end in zip(metrics, study.directions, strict=True)
        },
        domains=_domains(trials),
        notes=notes,
    )


def _metrics(study: optuna.Study) -> list[str]:
    """The names of the objectives: those of the study, or ``value``, ``value_0``, …"""
    if study.metric_names:
        return [metric_name(name) for name in study.metric_names]
    count = len(study.directions)
    return ["value"] if count == 1 else [f"value_{place}" for place in range(count)]


def _chosen(metrics: Sequence[str], objective: str | None) -> int:
    if objective is None:
        return 0
    if len(metrics) == 1:
        # Its only objective may be called anything.
        assert isinstance(metrics, list)
        metrics[0] = metric_name(objective)
        return 0
    if objective not in metrics:
        raise ImportRefused(f"the study has the objectives {', '.join(metrics)}, got {objective!r}")
    return metrics.index(objective)


def _direction(direction: Any) -> Direction:
    return "maximize" if direction == optuna.study.StudyDirection.MAXIMIZE else "minimize"


def _trial(trial: FrozenTrial, metrics: Sequence[str], seed: str) -> FoundTrial:
    curve = sorted(finite_numbers(trial.intermediate_values).items())
    attributes = dict(trial.user_attrs)
    params = dict(trial.params)
    found_seed = params.pop(seed, attributes.pop(seed, None))
    values = {metric_name(key): value for key, value in finite_numbers(attributes).items()}
    if curve and len(metrics) == 1:
        values[metrics[0]] = curve[-1][1]
    if trial.values is not None:
        values |= finite_numbers(dict(zip(metrics, trial.values, strict=True)))
    return FoundTrial(
        label=str(trial.number),
        params={name: plain_value(value) for name, value in params.items()},
        state=_STATES[trial.state],
        metrics=values,
        seed=plain_value(found_seed),
        curves={metrics[0]: curve} if curve and len(metrics) == 1 else {},
        step=curve[-1][0] if curve else 0,
        started_at=_moment(trial.datetime_start),
        finished_at=_moment(trial.datetime_complete),
        cause="failed in Optuna" if trial.state == OptunaState.FAIL else "",
    )


def _moment(at: datetime | None) -> datetime | None:
    """Optuna's times have no zone: they are of the machine that ran the study, here of this one."""
    return None if at is None else at.astimezone(UTC)


def _left_out(trials: Sequence[FrozenTrial]) -> list[str]:
    counts = Counter(trial.state.name.lower() for trial in trials if trial.state not in _STATES)
    return [f"{counted(count, 'trial')} left out: {state}" for state, count in counts.items()]


def _attributes(trials: Sequence[FrozenTrial]) -> list[Any]:
    return [value for trial in trials for value in trial.user_attrs.values()]


# --- Domains -------------------------------------------------------------------------------------


def _domains(trials: Sequence[FrozenTrial]) -> dict[str, Mapping[str, Any]]:
    """The domain of each parameter; one that covers all where trials have different ones."""
    by_name: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            by_name.setdefault(name, []).append(distribution)
    return {
        name: domain
        for name, distributions in by_name.items()
        if (domain := _domain(distributions)) is not None
    }


def _domain(distributions: Sequence[BaseDistribution]) -> dict[str, Any] | None:
    kinds = {type(one) for one in distributions}
    first: Any = distributions[0]
    if kinds == {CategoricalDistribution}:
        values: list[Any] = []
        for one in distributions:
            assert isinstance(one, CategoricalDistribution)
            values += [v for v in map(plain_value, one.choices) if v not in values]
        return {"kind": "choice", "values": values}
    if kinds not in ({FloatDistribution}, {IntDistribution}):
        return None
    ranges: list[Any] = list(distributions)
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    if low == high:
        return {"kind": "choice", "values": [low]}
    kind = "int" if kinds == {IntDistribution} else "float"
    domain = {"kind": kind, "low": low, "high": high, "log": all(one.log for one in ranges)}
    alike = all((one.low, one.high, one.step) == (low, high, first.step) for one in ranges)
    if alike and first.step is not None and not domain["log"]:
        domain["step"] = first.step
    return domain
