"""Makes a backup of a home while a service runs on it.

The order makes what belongs together fit: checkpoints before the store, so that a trial that ends
meanwhile is complete in it; models, images, logs and MLflow after it, so that they have whatever
it names. MLflow may be ahead of the store, as after a crash; what it has is not sent twice.
"""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from service.backup.archive import BackupRefused, Manifest, Note, Writer, writing
from sweeps.records import TrialState
from sweeps.store.database.copying import StoreSummary
from sweeps.store.database.sqlite_file import copy_sqlite, sqlite_path
from sweeps.store.store import Store

_OPEN = (TrialState.WAITING, TrialState.RUNNING)
#: Of a trial's folder, what another attempt goes on from. A request to stop is not.
_BESIDE_CHECKPOINTS = ("weights.pt", "reports.jsonl")


def back_up(store: Store, home: Path, file: Path, note: Note = lambda size: None) -> Manifest:
    """Write the store, and what belongs to it below ``home``, to ``file``.

    Raises BackupRefused, StoreUnavailable, OSError; a file that was there is then untouched.
    """
    file = file.absolute()
    if file.is_dir():
        raise BackupRefused(f"{file} is a folder; name a file in it")
    if file.resolve().is_relative_to(home.resolve()):
        raise BackupRefused(
            f"{file} is in the home that it would be a backup of; name a file elsewhere, on "
            "another disk"
        )
    store.require_known_tables()
    if not store.has_tables():
        raise BackupRefused(
            "the store has no tables yet, so there is nothing to back up; `ndsweep serve` makes "
            "them"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as beside,
        writing(file, note) as writer,
    ):
        backup = _Backup(store, home, writer, Path(beside))
        backup.add_checkpoints()
        summary = backup.add_store()
        for name in ("models", "images"):
            backup.add_below(name)
        backup.add_logs()
        backup.add_mlflow()
        manifest = backup.manifest(summary)
        writer.finish(manifest)
    return manifest


class _Backup:
    def __init__(self, store: Store, home: Path, writer: Writer, beside: Path) -> None:
        self._store = store
        self._home = home
        self._writer = writer
        self._beside = beside
        self._left_out: list[str] = []

    def manifest(self, summary: StoreSummary) -> Manifest:
        assert summary.migration is not None  # it had tables before
        return Manifest(
            created_at=datetime.now(UTC),
            migration=summary.migration,
            database="sqlite" if sqlite_path(self._store.url) else "postgresql",
            sweeps=summary.sweeps,
            trials=summary.trials,
            left_out=tuple(self._left_out),
            files=tuple(self._writer.entries),
        )

    def add_checkpoints(self) -> None:
        """Those of trials that wait or run: others have ended, and need none."""
        for sweep in self._store.sweep_states():
            folder = self._home / "checkpoints" / sweep.id
            if sweep.state.is_finished() or not folder.is_dir():
                continue
            states = self._store.trial_states(sweep.id)
            for trial in _folders(folder):
                if trial.name.isdigit() and states.get(int(trial.name)) in _OPEN:
                    self._add_trial(trial)

    def _add_trial(self, folder: Path) -> None:
        """The newest checkpoint, whole although its trial may replace it meanwhile."""
        with ExitStack() as held:
            for _ in range(5):
                try:
                    files = [(path, held.enter_context(_opened(path))) for path in _newest(folder)]
                except FileNotFoundError:
                    continue  # Replaced by another since it was listed.
                break
            else:
                where = folder.relative_to(self._home)
                self._left_out.append(f"{where}: it was replaced each time that it was looked at")
                return
            for path, file in files:
                self._add(path, file)
        for name in _BESIDE_CHECKPOINTS:
            self._add_file(folder / name)

    def add_store(self) -> StoreSummary:
        copy = self._beside / "store.db"
        summary = self._store.copy_to_file(copy)
        with copy.open("rb") as file:
            self._writer.add("store.db", file, compress=True)
        copy.unlink()
        return summary

    def add_below(self, name: str) -> None:
        for path in _files(self._home / name):
            self._add_file(path)

    def add_logs(self) -> None:
        """Of trials; those of processes are about the machine."""
        for folder in _folders(self._home / "logs"):
            for path in _files(folder):
                self._add_file(path, compress=True)

    def add_mlflow(self) -> None:
        """The local server's database as it is at one moment, then its artifacts."""
        database = self._home / "mlflow" / "mlflow.db"
        if not database.exists():
            self._left_out.append("MLflow: no server keeps its files in this home")
            return
        copy = self._beside / "mlflow.db"
        try:
            found = copy_sqlite(database, copy)
        except sqlite3.Error as error:
            found = str(error)
        if found != "ok":
            # A mirror: the store is what must not be missing from a backup.
            self._left_out.append(f"MLflow: {database} cannot be copied ({found})")
            return
        with copy.open("rb") as file:
            self._writer.add("mlflow/mlflow.db", file, compress=True)
        copy.unlink()
        self.add_below("mlflow/artifacts")

    def _add_file(self, path: Path, *, compress: bool = False) -> None:
        with contextlib.suppress(FileNotFoundError), _opened(path) as file:
            self._add(path, file, compress=compress)

    def _add(self, path: Path, file: BinaryIO, *, compress: bool = False) -> None:
        name = path.relative_to(self._home).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = name.encode("utf-8", "backslashreplace").decode()
            self._left_out.append(f"{shown}: its name is no UTF-8")
            return
        self._writer.add(name, file, compress=compress)


def _newest(folder: Path) -> list[Path]:
    """Files of the newest checkpoints of both kinds: one file, or a folder of them."""
    files = sorted(folder.glob("step-*.ckpt"))[-1:]
    saved = [path for path in _folders(folder) if path.name.removeprefix("saved-").isdigit()]
    for path in sorted(saved)[-1:]:
        files += _files(path)
    return files


def _opened(path: Path) -> BinaryIO:
    # What is open stays readable when it is deleted.
    return open(path, "rb", opener=_no_link)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _folders(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _files(folder: Path) -> Iterator[Path]:
    """Every plain file below a folder, but for temporary ones, which begin with a dot."""
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(above, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path
