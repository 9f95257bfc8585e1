"""Makes a finished sweep of training ``external`` of what was found in another tool's results."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sweeps.analysis.whole import driver_analysis
from sweeps.batch.imports.domains import space_of
from sweeps.batch.imports.found import Found, FoundTrial, counted, field_name, metric_name
from sweeps.batch.imports.seeds import with_seeds
from sweeps.records import Sweep, TrialState
from sweeps.spec.domains import Domain, same
from sweeps.spec.sweep_spec import MAX_OBJECTIVES, SweepSpec
from sweeps.spec.validation_messages import in_words
from sweeps.store.commands.imports import (
    ImportedAttempt,
    ImportedSweep,
    ImportedTrial,
    ImportRefused,
)
from sweeps.store.store import Store
from worker.config.training import EXTERNAL, FRACTIONS
from worker.config.trial_config import FreeConfig

#: Largest number of points that a spec lists.
_MOST_LISTED = 1000
_DOMAIN: TypeAdapter[Any] = TypeAdapter(Domain)


@dataclass(frozen=True)
class ImportReport:
    """What an import did, in words for a person."""

    sweep: ImportedSweep
    taken: list[str]
    #: What the source lacks and what was left out.
    lacks: list[str]


@dataclass(frozen=True)
class _Run:
    """A trial with its place in the sweep."""

    trial: FoundTrial
    seed: int
    params: dict[str, Any]
    config: dict[str, Any]
    key: str


def import_found(store: Store, found: Found, *, name: str | None = None) -> ImportReport:
    """Import as a finished sweep; the same source again adds only what is new.

    Raises ImportRefused for a source without finished trials, or with what no spec can hold.
    """
    if not found.trials:
        notes = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise ImportRefused(f"{found.name} of {found.tool} holds no finished trial{notes}")
    found, renamed = _within_fixed_meanings(_with_valid_names(found))
    base, fields = _shared(found)
    runs, with_intervals, no_seeds = _runs(found, base, fields)
    points = _points(runs)
    spec, spec_notes = _spec(found, name, base, fields, points, runs)
    key = _key(found)
    known = store.imported_sweep(key)
    if known is not None:
        _refuse_other_fields(known, spec)
    numbers = _numbers(store, known, points)
    done = store.import_sweep(
        spec.model_dump(mode="json", exclude_unset=True),
        [_imported(found, run, numbers[run.key]) for run in runs],
        key=key,
        name=spec.name,
        tags=[*spec.tags],
        notes=spec.notes,
        num_trials=len(runs),
    )
    if done.added or done.replaced:
        store.set_imported_result(done.sweep.id, driver_analysis(store, done.sweep.id))
    taken = [_counts(runs, points), *_described(found, spec, fields, base), *with_intervals]
    lacks = [*no_seeds, *_lacking(found), *renamed, *spec_notes, *found.notes]
    return ImportReport(replace(done, sweep=store.get_sweep(done.sweep.id)), taken, lacks)


# --- Names and meanings --------------------------------------------------------------------------


def _with_valid_names(found: Found) -> Found:
    """Fields and metrics under names that a spec can hold. Raises ImportRefused for equal ones."""
    fields = _renaming((name for trial in found.trials for name in trial.params), field_name)
    metrics = _renaming(
        (name for t in found.trials for part in (t.metrics, t.curves) for name in part),
        metric_name,
    )
    trials = [
        replace(
            trial,
            params={fields[name]: value for name, value in trial.params.items()},
            metrics={metrics[name]: value for name, value in trial.metrics.items()},
            curves={metrics[name]: curve for name, curve in trial.curves.items()},
        )
        for trial in found.trials
    ]
    return replace(
        found,
        trials=trials,
        objective=metric_name(found.objective),
        objectives=[metric_name(name) for name in found.objectives],
        directions={metric_name(name): end for name, end in found.directions.items()},
        domains={field_name(name): domain for name, domain in found.domains.items()},
    )


def _renaming(names: Any, rename: Any) -> dict[str, str]:
    found: dict[str, str] = {name: rename(name) for name in names}
    first: dict[str, str] = {}
    for old, new in found.items():
        if first.setdefault(new, old) != old:
            raise ImportRefused(
                f"{first[new]!r} and {old!r} would both be named {new!r} here; rename one of them"
            )
    return found


def _within_fixed_meanings(found: Found) -> tuple[Found, list[str]]:
    """Metrics named like our fractions, with values outside 0 to 1, get another name."""
    outside = {
        name
        for trial in found.trials
        for name in FRACTIONS & (trial.metrics.keys() | trial.curves.keys())
        if not all(0 <= value <= 1 for value in _values(trial, name))
    }
    if not outside:
        return found, []
    names = {name: f"{name}_as_given" for name in outside}
    trials = [
        replace(
            trial,
            metrics={names.get(name, name): value for name, value in trial.metrics.items()},
            curves={names.get(name, name): curve for name, curve in trial.curves.items()},
        )
        for trial in found.trials
    ]
    notes = [
        f"{name} has values outside 0 to 1, and is a fraction here: it is stored as {names[name]}"
        for name in sorted(outside)
    ]
    objective = names.get(found.objective, found.objective)
    directions = {names.get(name, name): end for name, end in found.directions.items()}
    return replace(
        found,
        trials=trials,
        objective=objective,
        objectives=[names.get(name, name) for name in found.objectives],
        directions=directions,
    ), notes


def _values(trial: FoundTrial, name: str) -> list[float]:
    last = [trial.metrics[name]] if name in trial.metrics else []
    return [*last, *(value for _, value in trial.curves.get(name, ()))]


# --- Points and seeds ----------------------------------------------------------------------------


def _shared(found: Found) -> tuple[dict[str, Any], list[str]]:
    """Values that all trials share, for the base, and the names of the fields that vary.

    A field that the source declares as part of its space varies, whatever its values.
    """
    names = dict.fromkeys(name for trial in found.trials for name in trial.params)
    base: dict[str, Any] = {}
    fields = []
    for name in names:
        values = {same(trial.params[name]) for trial in found.trials if name in trial.params}
        everywhere = all(name in trial.params for trial in found.trials)
        if len(values) == 1 and everywhere and name not in found.domains:
            base[name] = found.trials[0].params[name]
        else:
            fields.append(name)
    if not fields and base:
        # A space has at least one field.
        fields = [next(iter(base))]
        del base[fields[0]]
    if not fields:
        raise ImportRefused(
            f"the trials of {found.name} have no fields: nothing tells its points apart"
        )
    return base, fields


def _runs(
    found: Found, base: Mapping[str, Any], fields: Sequence[str]
) -> tuple[list[_Run], list[str], list[str]]:
    """The trials with their points and seeds, in the order of the source, and words on seeds."""
    varying = [
        {name: trial.params[name] for name in fields if name in trial.params}
        for trial in found.trials
    ]
    params_of = {id(t): params for t, params in zip(found.trials, varying, strict=True)}
    keys = [same_point(params) for params in varying]
    seeded, taken, lacks = with_seeds(found.trials, keys)
    runs = []
    for trial, seed in seeded:
        params = params_of[id(trial)]
        try:
            config = FreeConfig.model_validate({**base, **params, "seed": seed})
        except ValidationError as error:
            raise ImportRefused(
                f"trial {trial.label} of {found.name} cannot be stored: {in_words(error)}"
            ) from error
        runs.append(_Run(trial, seed, params, config.stored(), config.key()))
    return runs, taken, lacks


def same_point(params: Mapping[str, Any]) -> str:
    """A text that is equal for equal points."""
    return json.dumps({name: same(value) for name, value in sorted(params.items())})


def _points(runs: Sequence[_Run]) -> dict[str, dict[str, Any]]:
    """Config key -> params of each point, in the order in which they come first."""
    points: dict[str, dict[str, Any]] = {}
    for run in runs:
        points.setdefault(run.key, run.params)
    return points


def _numbers(
    store: Store, known: Sweep | None, points: Mapping[str, dict[str, Any]]
) -> dict[str, int]:
    """Config key -> number of its point: as it was imported before, else the next one."""
    numbers: dict[str, int] = {}
    if known is not None:
        numbers = {trial.config_key: trial.point for trial in store.all_trials(known.id)}
    for key in points:
        numbers.setdefault(key, max(numbers.values(), default=-1) + 1)
    return numbers


def _refuse_other_fields(known: Sweep, spec: SweepSpec) -> None:
    """Points of before would lack a field that varies only now."""
    before, now = set(known.space), set(spec.space)
    if before != now:
        changed = ", ".join(sorted(before ^ now))
        raise ImportRefused(
            f"sweep {known.id} was imported from this source when other fields varied (now "
            f"different: {changed}); delete it and import again"
        )


# --- The spec ------------------------------------------------------------------------------------


def _spec(
    found: Found,
    name: str | None,
    base: Mapping[str, Any],
    fields: Sequence[str],
    points: Mapping[str, dict[str, Any]],
    runs: Sequence[_Run],
) -> tuple[SweepSpec, list[str]]:
    """A spec with the points listed, where they all follow its conditions."""
    space, without_rule = space_of(list(points.values()), fields, _holding(found, points))
    notes = [
        f"{field} is set in some trials only, by no rule that a spec can state"
        for field in without_rule
    ]
    objective = {"metric": found.objective, "direction": found.direction}
    ends = {found.objective: found.direction} | dict(found.directions)
    repeats = Counter(run.key for run in runs)
    values: dict[str, Any] = {
        "name": (name or found.name).strip()[:100] or found.tool,
        "training": EXTERNAL,
        "base": {**base, "seed": min(run.seed for run in runs)},
        "space": space,
        "replicates": max(repeats.values()),
        "objective": objective,
        "objectives": [
            {"metric": one, "direction": ends[one]} for one in found.objectives[:MAX_OBJECTIVES]
        ],
        "metrics": {metric: {"direction": end} for metric, end in ends.items()},
        "tags": ["imported", found.tool.lower().replace(" ", "-")],
        "notes": f"Imported from {found.tool}: {found.name}.",
    }
    listed: dict[str, Any] = {"sampler": "list", "initial_points": list(points.values())}
    drawn: dict[str, Any] = {"sampler": "random", "num_points": len(points)}
    ways = [drawn] if without_rule or len(points) > _MOST_LISTED else [listed, drawn]
    for way in ways:
        try:
            return SweepSpec.model_validate(values | way), notes
        except ValidationError as error:
            reason = in_words(error)
    raise ImportRefused(f"{found.name} of {found.tool} fits no spec: {reason}")


def _holding(found: Found, points: Mapping[str, dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Declared domains that hold every value that was found."""
    kept: dict[str, Mapping[str, Any]] = {}
    for name, domain in found.domains.items():
        try:
            held = _DOMAIN.validate_python(dict(domain))
        except ValidationError:
            continue
        if all(held.holds(params[name]) for params in points.values() if name in params):
            kept[name] = domain
    return kept


def _key(found: Found) -> str:
    """Under which a store knows the sweep of a source."""
    identity = json.dumps(
        [found.tool, found.identity, ", ".join(found.objectives) or found.objective]
    )
    return f"import-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


# --- Trials --------------------------------------------------------------------------------------


def _imported(found: Found, run: _Run, point: int) -> ImportedTrial:
    trial = run.trial
    started = trial.started_at or trial.finished_at or found.at
    finished = max(started, trial.finished_at or started)
    is_complete = trial.state == TrialState.COMPLETE
    return ImportedTrial(
        point=point,
        seed=run.seed,
        params=run.params,
        config=run.config,
        config_key=run.key,
        state=trial.state,
        objective=trial.metrics.get(found.objective) if is_complete else None,
        metrics=dict(trial.metrics),
        curves={name: list(curve) for name, curve in trial.curves.items()},
        step=trial.step,
        num_steps=trial.step if is_complete and trial.step else None,
        diverged_at_step=trial.step if trial.state == TrialState.DIVERGED else None,
        exit_cause=trial.cause or trial.state.value,
        attempts=(ImportedAttempt(trial.state, started, finished, trial.cause or trial.state),),
        provenance={"source": found.tool, "source_trial": trial.label, **trial.provenance},
    )


# --- Words ---------------------------------------------------------------------------------------


def _counts(runs: Sequence[_Run], points: Mapping[str, Any]) -> str:
    states = Counter(run.trial.state.value for run in runs)
    listed = ", ".join(f"{count:,} {state}" for state, count in states.items())
    return f"{counted(len(runs), 'trial')} of {counted(len(points), 'point')}: {listed}"


def _described(
    found: Found, spec: SweepSpec, fields: Sequence[str], base: Mapping[str, Any]
) -> list[str]:
    better = {"minimize": "smaller", "maximize": "larger"}
    lines = [
        *(
            f"objective {one.metric}, {better[one.direction]} is better"
            for one in spec.every_objective
        ),
        f"fields that vary: {_listed(fields)}"
        + (f"; the same in all: {_listed(list(base))}" if base else ""),
    ]
    objectives = {one.metric for one in spec.every_objective}
    others = dict.fromkeys(
        name for t in found.trials for name in t.metrics if name not in objectives
    )
    if others:
        lines.append(f"other metrics: {_listed(list(others))}")
    curves = dict.fromkeys(name for trial in found.trials for name in trial.curves)
    if curves:
        count = sum(bool(trial.curves) for trial in found.trials)
        lines.append(f"curves of {counted(count, 'trial')}: {_listed(list(curves))}")
    return lines


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _lacking(found: Found) -> list[str]:
    notes = []
    if not any(trial.curves for trial in found.trials):
        notes.append("no curves: the source has last values only")
    without = sum(trial.started_at is None for trial in found.trials)
    if without:
        of = "" if without == len(found.trials) else f" of {counted(without, 'trial')}"
        notes.append(f"no times{of}: that of the file stands in for them")
    return notes
