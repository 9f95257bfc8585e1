"""Makes a home, and a store, of a backup: whole, or nothing that a service would start on.

Everything is written below one folder of the new home. While that is there no service starts on
the home; it goes when all has its place.
"""

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from service.backup.archive import PARTS, BackupRefused, Manifest, Note, reading
from service.settings import Settings
from service.supervision.home import RESTORING
from sweeps.errors import SweepsError
from sweeps.store.database.schema import head_revision, knows
from sweeps.store.database.sqlite_file import sqlite_path, sqlite_url
from sweeps.store.store import Store


def check(file: Path, note: Note = lambda size: None) -> Manifest:
    """Read a whole backup and compare every file with its checksum. Raises BackupRefused."""
    with reading(file) as backup:
        backup.verify(note)
        return backup.manifest


def restore(
    file: Path, settings: Settings, *, migrate: bool = False, note: Note = lambda size: None
) -> Manifest:
    """Write a backup to the home and the store of the settings, which must be empty.

    ``migrate``: bring a store of an older version to this one. ``note`` is called for twice the
    bytes of the backup: all of it is verified before anything is written. Raises BackupRefused,
    StoreUnavailable, OSError.
    """
    home = settings.home.absolute()
    with reading(file) as backup:
        _check_migration(backup.manifest, migrate=migrate)
        _require_empty_home(home, settings)
        store = _empty_store(settings)
        try:
            backup.verify(note)
            _require_space(home, backup.manifest)
            with _room(home) as room:
                backup.extract(room, note)
                _fill(store, room, settings, migrate=migrate)
                os.sync()
                _move(room, home)
        finally:
            store.close()
        return backup.manifest


def _check_migration(manifest: Manifest, *, migrate: bool) -> None:
    found, head = manifest.migration, head_revision()
    if found == head:
        return
    about = f"the backup's store has migration {found}, and this version's has {head}"
    if not knows(found):
        raise BackupRefused(f"{about}; restore it with ndsweep {manifest.version} or a newer one")
    if not migrate:
        raise BackupRefused(
            f"{about}; pass --migrate to bring it up to date, or restore it with ndsweep "
            f"{manifest.version}"
        )


def _require_empty_home(home: Path, settings: Settings) -> None:
    if not home.exists():
        return
    # A token that somebody made for the new home, and what a new disk has.
    may_be = {RESTORING, "lost+found"}
    if settings.token_file is not None and settings.token_file.absolute().parent == home:
        may_be.add(settings.token_file.name)
    found = sorted(path.name for path in home.iterdir() if path.name not in may_be)
    if found:
        raise BackupRefused(
            f"{home} is not empty: it has {found[0]!r}; set NDSWEEP_HOME to a new folder, or move "
            "what is in it away"
        )


def _empty_store(settings: Settings) -> Store:
    """The store to fill. Raises BackupRefused for one that holds anything."""
    url = settings.database_url()
    path = sqlite_path(url)
    if path is not None and path.exists():
        raise BackupRefused(
            f"there is a store {path} already; set NDSWEEP_STORE_URL to another file, or move it "
            "away"
        )
    try:
        store = Store(url)
    except ValueError as error:
        raise BackupRefused(f"NDSWEEP_STORE_URL: {error}") from error
    found = 0 if path is not None else store.summary().sweeps
    if found:
        store.close()
        raise BackupRefused(
            f"the database of NDSWEEP_STORE_URL is not empty: it has {found:,} sweeps; name an "
            "empty one"
        )
    return store


def _require_space(home: Path, manifest: Manifest) -> None:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < manifest.bytes():
        raise BackupRefused(
            f"no space below {home}: the backup has {manifest.bytes() / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free; free some, or set NDSWEEP_HOME to another folder"
        )


@contextlib.contextmanager
def _room(home: Path) -> Iterator[Path]:
    """An empty folder of the home, for this process alone.

    It goes if what fills it fails, unless a part of the home is at its place by then.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    room = home / RESTORING
    room.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(room, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupRefused(f"another restore writes to {home}; wait until it ends") from None
        _empty(room)  # What an earlier one left that was killed.
        try:
            yield room
        except BaseException:
            if not any((home / name).exists() for name in PARTS):
                shutil.rmtree(room, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _fill(store: Store, room: Path, settings: Settings, *, migrate: bool) -> None:
    """Check the store of the backup, and put it where the settings say if that is not the home."""
    file = room / "store.db"
    _require_whole(file)
    with closing(Store(sqlite_url(file))) as copy:
        if migrate:
            copy.migrate()
        if not copy.is_up_to_date():
            raise BackupRefused("the backup's store has other tables than its list says")
        if sqlite_path(store.url) is None:
            copy.copy_to(store)
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)
    target = sqlite_path(store.url)
    if target is None:
        file.unlink()
    elif target.absolute() != settings.home.absolute() / "store.db":
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)


def _require_whole(file: Path) -> None:
    try:
        with closing(Store(sqlite_url(file))) as store:
            store.require_whole(60.0)
    except (SweepsError, sqlite3.Error) as error:
        raise BackupRefused(f"the store in the backup cannot be used: {error}") from error


def _move(room: Path, home: Path) -> None:
    """Give everything its place, the store last; then a service may start."""
    for path in sorted(room.iterdir(), key=lambda path: path.name == "store.db"):
        path.rename(home / path.name)
    os.sync()
    room.rmdir()
