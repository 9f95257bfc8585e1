"""Imports a folder of results that ``ndsweep batch`` wrote, as finished sweeps, one for each spec.

Importing again, or a folder that has grown, adds only what is new. If a folder lacks a spec, its
runs may belong to a preset, as the results beside a report do: the name then gives the spec, if the
runs trained what it says.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sweeps.analysis.whole import driver_analysis
from sweeps.batch.plan import BatchRefused, Membership, spec_points
from sweeps.batch.results import (
    AttemptNote,
    ResultRefused,
    RunResult,
    read_result,
    result_paths,
)
from sweeps.batch.specs import (
    join_specs,
    kept_spec,
    spec_identity,
    spec_path,
    spec_paths,
    stored_spec,
)
from sweeps.errors import SweepStateConflict
from sweeps.records import TrialState
from sweeps.spec.presets import preset_names, read_preset
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.commands.imports import (
    ImportedAttempt,
    ImportedSweep,
    ImportedTrial,
    ImportRefused,
)
from sweeps.store.store import Store
from worker.config.train_config import config_key


@dataclass(frozen=True)
class SpecRuns:
    """A spec and its runs, each with its place in it."""

    spec: SweepSpec
    members: list[tuple[RunResult, Membership]] = field(default_factory=list)


def runs_by_spec(folder: Path, results: Sequence[RunResult], skipped: list[str]) -> list[SpecRuns]:
    """The specs of a folder, and the presets that its runs name, with their runs.

    Appends to ``skipped`` a sentence for each damaged spec and each run without one.
    """
    found = {spec.name: SpecRuns(spec) for spec in _kept(folder, skipped)}
    own = set(found)
    found |= {spec.name: SpecRuns(spec) for spec in _presets(folder, results, own)}
    places = {name: _places(one.spec) for name, one in found.items()}
    for run in results:
        fits = False
        for member in run.specs:
            if member.spec not in found:
                continue
            point = places[member.spec].get(run.config_key)
            if point is None and member.spec not in own:
                continue
            # A spec that grew by points in another order would have two points of one number.
            placed = member if point is None else member.model_copy(update={"point": point})
            found[member.spec].members.append((run, placed))
            fits = True
        if not fits:
            skipped.append(_without_spec(folder, run))
    return list(found.values())


def _kept(folder: Path, skipped: list[str]) -> Iterator[SweepSpec]:
    for path in spec_paths(folder):
        try:
            yield kept_spec(path)
        except BatchRefused as error:
            skipped.append(str(error))


def _presets(folder: Path, results: Sequence[RunResult], known: set[str]) -> Iterator[SweepSpec]:
    named = {member.spec for run in results for member in run.specs} - known
    for name in sorted(named & set(preset_names())):
        # A damaged spec of this name is not replaced by what may be another.
        if not spec_path(folder, name).exists():
            yield SweepSpec.model_validate(read_preset(name).spec)


def _places(spec: SweepSpec) -> dict[str, int]:
    """Config key -> number of each point of a grid; empty for points that were drawn."""
    if spec.sampler != "grid":
        return {}
    numbered = enumerate(spec_points(spec))
    return {spec.config(params, spec.base.seed).key(): number for number, params in numbered}


def _without_spec(folder: Path, run: RunResult) -> str:
    wanted = ", ".join(member.spec for member in run.specs)
    others = " (it trained something else than the preset of that name)"
    is_preset = any(member.spec in preset_names() for member in run.specs)
    return (
        f"{run.config_key}-{run.seed}.json belongs to {wanted}, whose spec is not in "
        f"{folder / 'specs'}{others if is_preset else ''}; copy it there from where the batch ran"
    )


#: Files of a results folder that hold no result.
_OTHERS = {"batch.lock", "checkpoints", "logs", "specs"}


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    sweeps: list[ImportedSweep]
    #: A sentence for each file or sweep that was passed over, with what to do about it.
    skipped: list[str]


def import_results(store: Store, folder: Path) -> ImportReport:
    """Import every whole result of a folder. Raises ImportRefused where there is nothing.

    A sweep is imported in whole or not at all; a damaged file costs its own run alone.
    """
    skipped: list[str] = []
    results = _read_results(folder, skipped)
    specs = runs_by_spec(folder, results, skipped)
    if not results or not specs:
        raise ImportRefused(
            f"{folder} holds no results of `ndsweep batch`: {len(results)} runs and {len(specs)} "
            "specs were found; name the folder that was its --out"
        )
    done: list[ImportedSweep] = []
    for one in specs:
        if not one.members:
            continue
        try:
            done.append(_import_spec(store, one.spec, one.members))
        except SweepStateConflict as error:
            skipped.append(str(error))
    return ImportReport(done, skipped)


def _read_results(folder: Path, skipped: list[str]) -> list[RunResult]:
    found = []
    for path in result_paths(folder):
        try:
            found.append(_checked(path))
        except (ResultRefused, OSError) as error:
            skipped.append(str(error))
    known = {path.name for path in result_paths(folder)} | _OTHERS
    if folder.is_dir():
        skipped += [
            f"{path.name} is not a file of a batch; it is left alone"
            for path in sorted(folder.iterdir())
            if path.name not in known and not path.name.startswith(".")
        ]
    return found


def _checked(path: Path) -> RunResult:
    """Read a result whose key is that of its config: an edited file is no record."""
    result = read_result(path)
    if config_key(result.config) != result.config_key:
        raise ResultRefused(
            f"{path.name} was changed: its config does not have the key {result.config_key}; take "
            "it again from where the batch ran"
        )
    if not result.attempts:
        raise ResultRefused(f"{path.name} names no attempt; take it again from where the batch ran")
    return result


def _import_spec(
    store: Store, spec: SweepSpec, members: Sequence[tuple[RunResult, Membership]]
) -> ImportedSweep:
    # In the order of points and seeds, which is how the sweep engine would have numbered them.
    ordered = sorted(members, key=lambda pair: (pair[1].point, pair[0].seed))
    metric, key = spec.objective.metric, import_key(spec)
    known = store.imported_sweep(key)
    if known is not None:
        spec = join_specs(SweepSpec.model_validate(known.spec), spec)
    done = store.import_sweep(
        stored_spec(spec),
        [_trial(run, member, metric) for run, member in ordered],
        key=key,
        name=spec.name,
        tags=[*spec.tags, "imported"],
        notes=spec.notes,
        num_trials=spec.num_trials(),
    )
    if done.added or done.replaced:
        store.set_imported_result(done.sweep.id, driver_analysis(store, done.sweep.id))
    return replace(done, sweep=store.get_sweep(done.sweep.id))


def import_key(spec: SweepSpec) -> str:
    """Under which a store knows the imported sweep of a spec, whichever seeds it has."""
    identity = json.dumps([spec.name, spec_identity(spec)])
    return f"import-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def _trial(run: RunResult, member: Membership, metric: str) -> ImportedTrial:
    state = TrialState(run.state)
    is_complete = state == TrialState.COMPLETE
    attempts = [_attempt(note, note.state) for note in run.attempts[:-1]]
    return ImportedTrial(
        point=member.point,
        seed=run.seed,
        params=member.params,
        config=run.config,
        config_key=run.config_key,
        state=state,
        objective=run.metrics.get(metric) if is_complete else None,
        metrics=run.metrics,
        curves=_curves(run),
        step=run.step,
        num_steps=run.num_steps,
        diverged_at_step=run.diverged_at_step,
        exit_cause=run.exit_cause,
        attempts=(*attempts, _attempt(run.attempts[-1], state)),
        provenance=run.provenance,
    )


def _attempt(note: AttemptNote, state: TrialState) -> ImportedAttempt:
    return ImportedAttempt(
        state=state,
        started_at=datetime.fromisoformat(note.started_at),
        finished_at=datetime.fromisoformat(note.finished_at),
        exit_cause=note.exit_cause,
    )


def _curves(run: RunResult) -> dict[str, list[tuple[int, float]]]:
    names: dict[str, Any] = {name: None for group in run.curves for name in group.values}
    return {name: run.curve(name) for name in names}
