"""``ndsweep doctor``: checks what this machine needs for the service to run.

It also asks whether the services that it does not start itself (database, Ray, MLflow) answer.
"""

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape

from service.settings import DEFAULT_PORT, Settings, SettingsError, require_token_off_loopback
from service.supervision import home as homes
from service.supervision.permissions import find_open
from service.supervision.ports import listen
from service.supervision.shell import require_bash
from service.version import VERSION
from sweeps.errors import StoreDamaged, StoreIsNewer, StoreUnavailable
from sweeps.store.database.sqlite_file import sqlite_path
from sweeps.store.store import Store
from worker.data.prepared import list_datasets
from worker.errors import DatasetRefused

#: For reading a whole store; it takes one for some 500 MB.
CHECK_SECONDS = 20.0

NEEDED = ("torch", "ray", "optuna", "mlflow", "fastapi", "sqlalchemy")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    level: Literal["ok", "warning", "error"]
    detail: str


def diagnose(settings: Settings, *, fix: bool = False) -> list[Finding]:
    """Look at everything; each check finds something or says that it is well.

    What is not well says what to do. ``fix`` does it where only permissions are to blame.
    """
    before = (_python, _packages, _bash)
    after = (_home, _disk, _address, _store, _data, _gpu)
    # Closed first, so that what comes after finds it so.
    permissions = _permissions(settings, fix=fix)
    found = [check(settings) for check in (*before, *after)]
    return [*found[: len(before) + 1], *permissions, *found[len(before) + 1 :]]


def print_findings(console: Console, findings: list[Finding]) -> None:
    marks = {"ok": "[green]ok[/]", "warning": "[yellow]note[/]", "error": "[red]error[/]"}
    for finding in findings:
        console.print(
            f"{marks[finding.level]:>5}  {finding.what}: {escape(finding.detail)}", soft_wrap=True
        )


def _python(settings: Settings) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    level: Literal["ok", "error"] = "ok" if sys.version_info >= (3, 11) else "error"
    return Finding("python", level, f"{version}, ndsweep {VERSION}; 3.11 or newer is needed")


def _packages(settings: Settings) -> Finding:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("packages", "error", f"missing: {', '.join(missing)}; install the project")
    return Finding("packages", "ok", "all there")


def _bash(settings: Settings) -> Finding:
    try:
        require_bash()
    except SettingsError as error:
        return Finding("bash", "error", str(error))
    return Finding("bash", "ok", "there, for Ray's workers")


def _home(settings: Settings) -> Finding:
    home = settings.home.absolute()
    if not home.exists():
        # Looking makes nothing: a name that was mistyped would get a folder.
        return _home_to_be(home)
    try:
        homes.prepare(home)
    except SettingsError as error:
        return Finding("home", "error", str(error))
    running = homes.read_endpoints(settings.home) if homes.is_locked(settings.home) else None
    state = f"a service runs on it at {running.url}" if running else "no service runs on it"
    if homes.is_open(home):
        advice = f"other things are in it too: name a folder of its own, or `chmod 700 {home}`"
        if homes.is_only_a_home(home):
            advice = "`ndsweep doctor --fix` closes it"
        detail = f"everybody on this machine can look into {home}; {advice}"
        return Finding("home", "warning", f"{detail}; {state}")
    return Finding("home", "ok", f"{home} is writable; {state}")


def _permissions(settings: Settings, *, fix: bool) -> list[Finding]:
    """What others can read of a home that is there."""
    home = settings.home.absolute()
    if not home.is_dir():
        return []
    try:
        found = find_open(home, close=fix)
    except OSError as error:
        detail = f"cannot look at {error.filename or home}: {error.strerror}; ask its owner"
        return [Finding("permissions", "warning", detail)]
    if found.of_others:
        detail = (
            f"{_things(found.of_others)} of other owners not closed to other users, first "
            f"{found.of_others[0]}; have their owner, or root, run `ndsweep doctor --fix`"
        )
        return [Finding("permissions", "warning", detail)]
    if found.own and not fix:
        detail = (
            f"{_things(found.own)} not closed to other users, first {found.own[0]}; "
            "`ndsweep doctor --fix` closes them"
        )
        return [Finding("permissions", "warning", detail)]
    done = f"; {_things(found.own)} closed just now" if found.own else ""
    return [Finding("permissions", "ok", f"{home} is closed to other users{done}")]


def _things(paths: list[Path]) -> str:
    return f"{len(paths):,} files and folders" if len(paths) > 1 else "1 file or folder"


def _home_to_be(home: Path) -> Finding:
    above = _existing(home)
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        detail = f"cannot make {home} in {above}; set NDSWEEP_HOME to another folder"
        return Finding("home", "error", detail)
    detail = f"{home} is not there; `ndsweep serve` makes it, or NDSWEEP_HOME names another"
    return Finding("home", "warning", detail)


def _existing(place: Path) -> Path:
    """The nearest folder above that is there, or the place itself."""
    while not place.exists():
        place = place.parent
    return place


def _disk(settings: Settings) -> Finding:
    place = _existing(settings.home.absolute())
    free = shutil.disk_usage(place).free
    detail = f"{free / 1e9:.1f} GB free below {place}"
    if free >= homes.LITTLE_FREE_BYTES:
        return Finding("disk", "ok", detail)
    least = f"{homes.LITTLE_FREE_BYTES / 1e9:.0f} GB"
    advice = f"sweeps want {least}; free some (`ndsweep gc`), or set NDSWEEP_HOME to another disk"
    return Finding("disk", "warning", f"{detail}; {advice}")


def _address(settings: Settings) -> Finding:
    try:
        require_token_off_loopback(settings)
        if homes.is_locked(settings.home):
            return Finding("address", "ok", "in use by the service that runs on this home")
        with listen(settings.host, settings.port, DEFAULT_PORT) as server:
            return Finding("address", "ok", f"{settings.host}:{_number(server)} is free")
    except SettingsError as error:
        return Finding("address", "error", str(error))


def _number(server: socket.socket) -> int:
    number: int = server.getsockname()[1]
    return number


def _store(settings: Settings) -> Finding:
    path = sqlite_path(settings.database_url())
    if path is not None and not path.exists():
        return Finding("store", "ok", f"{path} will be created by the first `ndsweep serve`")
    try:
        with closing(Store(settings.database_url())) as store:
            has_tables = store.has_tables()
            store.require_known_tables()
            store.require_whole(CHECK_SECONDS)
    except (StoreDamaged, StoreIsNewer, ValueError) as error:
        return Finding("store", "error", str(error))
    except StoreUnavailable as error:
        advice = "start the database, or correct NDSWEEP_STORE_URL"
        return Finding("store", "error", f"{error}; {advice}")
    if not has_tables:
        return Finding("store", "ok", "answers; the first `ndsweep serve` will create its tables")
    return Finding("store", "ok", "answers")


def _data(settings: Settings) -> Finding:
    try:
        home = settings.data_home()
    except DatasetRefused as error:
        return Finding("data sets", "error", str(error))
    names = [info.name for info in list_datasets(home)]
    if not names:
        above = _existing(home)
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            detail = f"none, and none can be written to {home}; set NDSWEEP_DATA to another folder"
            return Finding("data sets", "error", detail)
        advice = "none prepared; `ndsweep quickstart` prepares digits, `ndsweep data fetch` CIFAR"
        return Finding("data sets", "warning", f"{advice} (in {home})")
    return Finding("data sets", "ok", f"{', '.join(names)} (in {home})")


def _gpu(settings: Settings) -> Finding:
    # Asking torch would take seconds; the driver's own file tells whether there is a card.
    cards = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if cards and not hidden:
        return Finding("gpu", "ok", f"{cards} NVIDIA card{'s' if cards > 1 else ''}")
    advice = "unset CUDA_VISIBLE_DEVICES" if hidden and cards else "a card needs NVIDIA's driver"
    return Finding("gpu", "warning", f"none visible: trials train on the CPU; {advice}")


#: Seconds to wait for an address; somebody looks at the terminal meanwhile.
PATIENCE = 3.0


def silent_parts(settings: Settings) -> Iterator[str]:
    """A sentence for each part elsewhere that does not answer; the service waits for it."""
    if settings.store_url:
        store = Store(settings.store_url)
        try:
            store.health()
        except StoreUnavailable as error:
            # A database that was never migrated answers well enough.
            if "does not exist" not in str(error) and "no such table" not in str(error):
                yield f"the database of NDSWEEP_STORE_URL does not answer ({error})"
        finally:
            store.close()
    ray = os.environ.get("RAY_ADDRESS")
    if ray and ray != "auto" and (why := _refused(ray)):
        yield f"no Ray answers at RAY_ADDRESS={ray} ({why}); sweeps stay queued"
    if settings.mlflow_url and (why := _refused(settings.mlflow_url)):
        yield f"no MLflow answers at {settings.mlflow_url} ({why}); curves are sent later"


def _refused(address: str) -> str | None:
    """Why nothing listens at ``host:port`` or a URL; None where something does."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    port = parts.port or {"http": 80, "https": 443, "ray": 10001}.get(parts.scheme)
    if not parts.hostname or port is None:
        return "it names no host and port"
    try:
        socket.create_connection((parts.hostname, port), PATIENCE).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return None
