"""To which specs the runs of a results folder belong, and as which of their points.

A folder that lacks a spec may have runs of a preset, as results beside a report have: the name then
gives the spec, if the runs trained what it says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.batch.plan import BatchRefused, Membership, spec_points
from sweeps.batch.results import RunResult
from sweeps.batch.specs import kept_spec, spec_path, spec_paths
from sweeps.spec.presets import preset_names, read_preset
from sweeps.spec.sweep_spec import SweepSpec


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
