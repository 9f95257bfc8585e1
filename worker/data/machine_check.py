"""Whether a machine may train the trials of a driver: same code, same versions, home and data.

The driver says what it has (``found_here``, ``sets_here``); ``differences`` says what is otherwise
where it runs. It is sent to machines whose installation is in doubt, as text: what it needs beyond
the standard library is imported only once the code there is known to be the same.
"""

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Packages of this project that compute a trial's numbers.
_CODE = ("ndadam", "worker")
#: Libraries whose versions must be the same, beside Python's.
_LIBRARIES = ("torch", "ray")

#: What is otherwise on a machine: kind ("code", "home", "packages" or "data") and a sentence.
Difference = tuple[str, str]
#: Kinds that concern every sweep; the others only sweeps that use the package or the data set.
GENERAL = frozenset({"code", "home"})


def found_here(home: Path, proof: Path | None) -> dict[str, Any]:
    """Return what every machine must have that trains for a driver on this one, as JSON values.

    Args:
        home: ``NDSWEEP_HOME``.
        proof: File below it that nobody else could have written; None = the home is not compared.
    """
    word = None if proof is None else proof.read_text()
    return {
        "code": code_hash(),
        "versions": library_versions(),
        "home": str(home),
        "proof": None if proof is None else [str(proof), word],
    }


def sets_here(names: Iterable[str], data_home: str | None) -> dict[str, str]:
    """Return the checksums of prepared data sets, of those that this machine has."""
    from worker.data.prepared import dataset_info, default_home
    from worker.errors import DatasetNotFound, DatasetRefused

    found = {}
    for name in names:
        try:
            found[name] = dataset_info(name, data_home or default_home()).checksum
        except (DatasetNotFound, DatasetRefused):
            continue  # submission has said so, and so will its trials
    return found


def packages_here(wanted: Mapping[str, str]) -> dict[str, str]:
    """Return those of the wanted packages that this machine has in the wanted versions."""
    return {name: one for name, one in wanted.items() if installed(name) == one}


def differences(expected: Mapping[str, Any]) -> list[Difference]:
    """Return what is otherwise on this machine; nothing = it may train.

    ``expected`` is ``found_here`` of the driver, with ``packages`` (name -> version), ``datasets``
    (name -> checksum) and ``data_home`` where its sweep is known.
    """
    code = _other_code(expected)
    found = code + _other_home(expected) + _other_packages(expected.get("packages") or {})
    if not code:
        found += _other_data(expected.get("datasets") or {}, expected.get("data_home"))
    return found


def code_hash() -> str | None:
    """Return the SHA-256 of the installed code that trains; None where it is not installed.

    Read from the disk each time, 10 ms: code may be replaced while a process runs.
    """
    digest = hashlib.sha256()
    for package in _CODE:
        folder = _folder(package)
        if folder is None:
            return None
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute a trial's numbers.

    Builds are the same version: those of torch for cards and for processors alone.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    libraries = {name: installed(name).partition("+")[0] for name in _LIBRARIES}
    return {"Python": python} | libraries


def installed(package: str) -> str:
    """Return the installed version of a package, "none" without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _folder(package: str) -> Path | None:
    """Return where a package was imported from, or would be."""
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    if file is None:
        spec = find_spec(package)
        file = None if spec is None else spec.origin
    return None if file is None else Path(file).parent


def _other_code(expected: Mapping[str, Any]) -> list[Difference]:
    found, code = [], code_hash()
    if code is None:
        found.append("it has no ndadam-sweeps: install the version of the runner's machine there")
    elif code != expected["code"]:
        found.append(
            f"its code is not the runner's (SHA-256 {code[:12]} there, "
            f"{str(expected['code'])[:12]} here): install the same version of ndadam-sweeps there"
        )
    here = library_versions()
    found += [
        f"it has {name} {here.get(name, 'none')}, and the runner's machine {one}"
        for name, one in expected["versions"].items()
        if here.get(name, "none") != one
    ]
    return [("code", text) for text in found]


def _other_home(expected: Mapping[str, Any]) -> list[Difference]:
    if expected.get("proof") is None:
        return []
    (path, word), home = expected["proof"], expected["home"]
    try:
        is_same = Path(path).read_text() == word
    except OSError:
        is_same = False
    if not is_same:
        return [("home", f"{home} is not the runner's NDSWEEP_HOME there: mount that one")]
    if not os.access(Path(path).parent, os.W_OK):
        return [("home", f"{home} cannot be written there: mount it writable for this user")]
    return []


def _other_packages(wanted: Mapping[str, str]) -> list[Difference]:
    return [
        (
            "packages",
            f"it has {name} {installed(name)}, and the sweep {one}: run pip install "
            f"{name}=={one} there",
        )
        for name, one in wanted.items()
        if installed(name) != one
    ]


def _other_data(checksums: Mapping[str, str], data_home: str | None) -> list[Difference]:
    from worker.data.prepared import dataset_info, default_home
    from worker.errors import DatasetNotFound, DatasetRefused

    found = []
    for name, checksum in checksums.items():
        home = data_home or default_home()
        try:
            there = dataset_info(name, home).checksum
        except (DatasetNotFound, DatasetRefused) as error:
            found.append(str(error))
            continue
        if there != checksum:
            found.append(
                f"data set {name!r} in {home} has other images there (checksum {there[:12]}, and "
                f"{checksum[:12]} here): copy {name}.ndset of the runner's machine"
            )
    return [("data", text) for text in found]


_checked: set[str] = set()


def check_once(expected: Mapping[str, Any], machine: str) -> None:
    """Raise WrongMachine if something is otherwise here. A process asks once for each driver.

    ``machine`` is Ray's id of this machine.
    """
    from worker.errors import WrongMachine

    key = repr(expected)
    if key in _checked:
        return
    found = differences(expected)
    if found:
        raise WrongMachine(machine, found)
    _checked.add(key)
