"""The URL of a store that is a file, and copies of such a file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, unquote

_SQLITE = "sqlite:///"
#: Seconds to wait for another process to let go of a file.
_BUSY_SECONDS = 30.0


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, for a path with any characters that a file system takes."""
    # SQLAlchemy reads %xx as one character, and ? as the beginning of options.
    return _SQLITE + str(path).replace("%", "%25").replace("?", "%3F")


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; None for the URL of another database."""
    if not url.startswith(_SQLITE):
        return None
    return Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))


def copy_sqlite(source: Path, target: Path) -> str:
    """Copy a database as it is at one moment, while others read and write it.

    Returns what SQLite finds wrong with the copy, "ok" for nothing. The copy is one file, without
    a log beside it. Raises sqlite3.Error.
    """
    with (
        closing(sqlite3.connect(_opened(source), uri=True, timeout=_BUSY_SECONDS)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        # In one step: between two, a writer would make it begin again.
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE").close()
        found: str = new.execute("PRAGMA quick_check(1)").fetchone()[0]
    return " ".join(found.split())


def is_open_elsewhere(path: Path) -> bool:
    """Whether another connection has a file with a write-ahead log open, at work or not."""
    with closing(sqlite3.connect(_opened(path), uri=True, timeout=1.0, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode=EXCLUSIVE").close()
        try:
            db.execute("BEGIN IMMEDIATE").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return True
            raise
        db.execute("ROLLBACK").close()
    return False


def _opened(path: Path) -> str:
    # Not made where it is missing.
    return f"file:{quote(str(path.absolute()))}?mode=rw"
