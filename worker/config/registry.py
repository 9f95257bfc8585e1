"""Trainings and their parts by name, from entry points. Imports each of them only on request.

A package adds one by declaring an entry point in a group such as ``ndsweep.training`` or
``ndsweep.networks``; the built-in ones register the same way, in this project's
``pyproject.toml``, which is read if a checkout runs without being installed.
"""

import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from time import monotonic
from typing import Any

from worker.config.trial_config import FieldError

_CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"
#: The distribution of this project.
OWN = "ndadam-sweeps"
#: Seconds between two readings; one takes tens of milliseconds.
_AGE = 2.0
_read_at: dict[str, float] = {}


@dataclass(frozen=True)
class Registered:
    """One entry point and the distribution that declares it."""

    entry: EntryPoint
    package: str
    version: str

    @property
    def where(self) -> str:
        """What it names, for a sentence: ``module:function of my-package 1.2``."""
        return f"{self.entry.value} of {self.package} {self.version}"


@cache
def registrations(kind: str) -> dict[str, list[Registered]]:
    """Return who registers each name under ``kind``: ours first, others by package."""
    found: dict[str, dict[str, Registered]] = {}
    for one in [*_installed(kind), *_of_checkout(kind)]:
        found.setdefault(one.entry.name, {})[one.package] = one
    return {
        name: sorted(ones.values(), key=lambda one: (one.package != OWN, one.package))
        for name, ones in found.items()
    }


def _installed(kind: str) -> Iterator[Registered]:
    for entry in entry_points(group=f"ndsweep.{kind}"):
        dist = entry.dist
        yield Registered(entry, dist.name if dist else "?", dist.version if dist else "?")


def _of_checkout(kind: str) -> Iterator[Registered]:
    """Yield what this checkout declares; nothing for an installed package."""
    if not _CHECKOUT.is_file():
        return
    group = f"ndsweep.{kind}"
    project = tomllib.loads(_CHECKOUT.read_text(encoding="utf-8")).get("project", {})
    declared: dict[str, str] = project.get("entry-points", {}).get(group, {})
    try:
        mine = version(OWN)
    except PackageNotFoundError:
        mine = str(project.get("version", "?"))
    for name, value in declared.items():
        yield Registered(EntryPoint(name, value, group), OWN, mine)


def look_again(kind: str) -> None:
    """Forget what was registered, if it was read a while ago: packages may have been installed."""
    now = monotonic()
    if now - _read_at.get(kind, 0.0) > _AGE:
        _read_at[kind] = now
        invalidate_caches()
        registrations.cache_clear()


def registered_names(kind: str) -> list[str]:
    """Return the names registered under ``kind`` ("networks", "training", …), sorted."""
    return sorted(registrations(kind))


def load(kind: str, name: str) -> Any:
    """Import the object registered as ``name``. Raises KeyError for an unknown name."""
    return registrations(kind)[name][0].entry.load()


def find(kind: str, name: str) -> list[Registered]:
    """Return who registers a name; looks again where nobody does, if it is a while ago."""
    if name not in registrations(kind):
        look_again(kind)
    return registrations(kind).get(name, [])


def only_one(found: list[Registered], field: str, what: str) -> Registered:
    """Return the one registration of a name. Raises FieldError where packages share the name."""
    if len(found) > 1:
        packages = " and ".join(f"{one.package} {one.version}" for one in found)
        raise FieldError(
            field,
            f"{what} {found[0].entry.name!r} is registered by {packages}: uninstall all but one "
            "of them",
        )
    return found[0]


def imported(found: Registered, field: str, what: str) -> Any:
    """Import what an entry point names. Raises FieldError with the last line of the traceback."""
    try:
        return found.entry.load()
    except (Exception, SystemExit) as error:  # the package is not ours
        last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        raise FieldError(
            field,
            f"{what} {found.entry.name!r} cannot be imported from {found.where}: {last[:300]}",
        ) from error
