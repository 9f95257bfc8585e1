"""The service's folder: created, locked by the one ``serve`` that runs on it, and its addresses."""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from service.settings import Settings, SettingsError
from sweeps.store.database.sqlite_file import sqlite_path
from worker.atomic_file import whole_file

log = logging.getLogger(__name__)

#: A new service's databases and first logs take some 10 MB; with less than this it cannot begin.
LEAST_FREE_BYTES = 50_000_000
#: Folder in which a restore writes; while it is there, the home is not whole.
RESTORING = ".restoring"
#: With less a service does not run for long: a checkpoint of WRN-22-7.5 takes about 0.2 GB, and a
#: sweep keeps a few.
LITTLE_FREE_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Endpoints:
    """Where a running service answers; ``endpoints.json`` of its home."""

    #: Process id of ``ndsweep serve``.
    pid: int
    url: str
    mlflow_url: str


def prepare(home: Path) -> None:
    """Create the folder with all that belongs in it. Raises SettingsError where that fails."""
    require_restored(home)
    try:
        if not home.exists():
            home.mkdir(mode=_PRIVATE, parents=True)
        mode = home.stat().st_mode & (_PRIVATE | _GROUP) | _PRIVATE
        for name in ("logs", "mlflow", "checkpoints"):
            (home / name).mkdir(mode=mode, exist_ok=True)
        probe = home / ".writable"
        probe.write_bytes(b"ndsweep")
        probe.unlink()
    except OSError as error:
        raise SettingsError(
            f"cannot write to {home}: {error.strerror}; set NDSWEEP_HOME to another folder"
        ) from error
    free = shutil.disk_usage(home).free
    if free < LEAST_FREE_BYTES:
        raise SettingsError(
            f"no space below {home}: {free / 1e6:.1f} MB are free and {LEAST_FREE_BYTES / 1e6:.0f} "
            "MB are needed to start; free some, or set NDSWEEP_HOME to another folder"
        )


def require_restored(home: Path) -> None:
    """Refuse a folder that a restore writes to, or that one left half written."""
    if (home / RESTORING).exists():
        raise SettingsError(
            f"a restore to {home} is under way or was ended before it was through; wait for it, or "
            "empty the folder and run `ndsweep restore FILE` again"
        )


_PRIVATE, _OTHERS, _GROUP = 0o700, stat.S_IRWXO, stat.S_IRWXG


def keep_private(home: Path) -> None:
    """Have this process and those below it make files that only their owner can read.

    A home that everybody could look into, as older versions made it, is closed; one that lets a
    group in and nobody else was made so by somebody, and its files let the group read.
    """
    about = home.stat()
    is_shared = bool(about.st_mode & _GROUP) and not about.st_mode & _OTHERS
    if about.st_mode & _OTHERS and is_only_a_home(home):
        with contextlib.suppress(PermissionError):  # of another owner, who decides
            home.chmod(_PRIVATE)
            log.warning("%s could be read by everybody; it is its owner's alone now", home)
    os.umask(0o027 if is_shared else 0o077)


def is_open(home: Path) -> bool:
    """Whether others than the owner and a group may look into the folder."""
    return bool(home.stat().st_mode & _OTHERS)


def is_only_a_home(home: Path) -> bool:
    """Whether nothing else is there: NDSWEEP_HOME may name a folder that others use too."""
    is_shared = home.stat().st_mode & stat.S_ISVTX
    return not is_shared and {path.name for path in home.iterdir()} <= OURS


#: What a service makes in its home.
OURS = frozenset(
    {
        *("store.db", "store.db-wal", "store.db-shm", "serve.lock", "endpoints.json", ".writable"),
        *("ray.json", "ray.token", "token", "tune", "models", "images", "data", "imports"),
        *("logs", "mlflow", "checkpoints"),
    }
)


def require(settings: Settings) -> None:
    """Refuse a folder or a file of a store that is not there; make nothing.

    For commands that read: what they would make where a name is mistyped is empty. Raises
    SettingsError.
    """
    home = settings.home.absolute()
    require_restored(home)
    if settings.store_url is None:
        if not (home / "store.db").exists():
            there = "holds no store" if home.is_dir() else "is not there"
            raise SettingsError(
                f"{home} {there}, so no service has run on it; set NDSWEEP_HOME to the folder of "
                "one that has, or start one there with `ndsweep serve`"
            )
        return
    path = sqlite_path(settings.store_url)
    if path is not None and not path.exists():
        raise SettingsError(
            f"NDSWEEP_STORE_URL must name a store that is there, but there is no file {path}; set "
            "it to another, or start a service on it with `ndsweep serve`"
        )


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the folder for this process. Raises SettingsError when another one holds it."""
    with (home / "serve.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = read_endpoints(home)
            where = f" at {found.url} (process {found.pid})" if found else ""
            raise SettingsError(
                f"a service already runs on {home}{where}; stop it, or set NDSWEEP_HOME"
            ) from None
        yield


def is_locked(home: Path) -> bool:
    """Whether some ``serve`` runs on the folder now."""
    try:
        with (home / "serve.lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_endpoints(home: Path, endpoints: Endpoints) -> None:
    """Replace ``endpoints.json`` in one go: a reader sees the old one or the new one."""
    with whole_file(home / "endpoints.json") as file:
        file.write(json.dumps(asdict(endpoints), indent=2).encode() + b"\n")


def read_endpoints(home: Path) -> Endpoints | None:
    """Addresses of the service on this folder, None where none was written."""
    try:
        return Endpoints(**json.loads((home / "endpoints.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remove_endpoints(home: Path) -> None:
    (home / "endpoints.json").unlink(missing_ok=True)
