"""The specs of a batch, kept beside its results: what an import makes sweeps of."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeps.batch.plan import BatchRefused
from sweeps.batch.results import write_whole
from sweeps.spec.sweep_spec import SweepSpec

#: What must be the same for two specs of one name: else their points are not comparable.
_IDENTITY = (
    "training",
    "base",
    "space",
    "sampler",
    "sampler_seed",
    "initial_points",
    "objective",
    "objectives",
)


def keep_specs(out: Path, specs: Sequence[SweepSpec]) -> None:
    """Write each spec into ``out``/specs; one that is there already grows to hold both.

    Raises BatchRefused, before anything is written, where another spec has the same name.
    """
    kept = [_joined(out, spec) for spec in specs]
    for spec in kept:
        text = json.dumps(stored_spec(spec), indent=1, ensure_ascii=False) + "\n"
        write_whole(spec_path(out, spec.name), text)


def spec_paths(out: Path) -> list[Path]:
    """The spec files of a results folder, by name."""
    return sorted((out / "specs").glob("*.json"))


def kept_spec(path: Path) -> SweepSpec:
    """A spec of a results folder. Raises BatchRefused for a damaged one."""
    try:
        return SweepSpec.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BatchRefused(
            f"{path} is not a spec any more; restore it, or move it away and start the batch again"
        ) from error


def stored_spec(spec: SweepSpec) -> dict[str, Any]:
    """A spec as JSON values, only with what was set."""
    values: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    return values


def spec_path(out: Path, name: str) -> Path:
    """Where a spec of this name lies; a name may hold what a file name may not."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
    return out / "specs" / f"{safe.lstrip('.') or '_'}.json"


def _joined(out: Path, spec: SweepSpec) -> SweepSpec:
    path = spec_path(out, spec.name)
    if not path.exists():
        return spec
    old = kept_spec(path)
    if spec_identity(old) != spec_identity(spec):
        raise BatchRefused(
            f"{path} holds another spec of the name {spec.name!r}; rename this one, or give it a "
            "folder of its own"
        )
    return join_specs(old, spec)


def join_specs(old: SweepSpec, new: SweepSpec) -> SweepSpec:
    """The newer of two specs of one identity, grown to the seeds and points of both."""
    first = min(old.base.seed, new.base.seed)
    last = max(spec.base.seed + spec.replicates for spec in (old, new))
    points = [spec.num_points for spec in (old, new)]
    values = stored_spec(new)
    values |= {
        "base": values["base"] | {"seed": first},
        "replicates": last - first,
        "num_points": None if None in points else max(p for p in points if p is not None),
    }
    return SweepSpec.model_validate(values)


def spec_identity(spec: SweepSpec) -> str:
    """Equal for specs whose points are the same, whichever seeds they have."""
    values = spec.model_dump(mode="json", include=set(_IDENTITY))
    del values["base"]["seed"]
    return json.dumps(values, sort_keys=True)
