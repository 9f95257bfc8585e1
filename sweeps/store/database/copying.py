"""Copies a whole store: into another one, SQLite or PostgreSQL, or into one SQLite file.

What is read is one snapshot, what is written one transaction: a copy is whole or absent. Rows pass
in batches, so that memory does not grow with the store.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sweeps.errors import CopyRefused, StoreDamaged, StoreUnavailable
from sweeps.store.database import tables
from sweeps.store.database.connection import Database, _own_errors
from sweeps.store.database.schema import head_revision, migrate, revision
from sweeps.store.database.sqlite_file import copy_sqlite, is_open_elsewhere, sqlite_url

#: Rows of one statement, and about how many bytes of them; a single row may be larger.
_BATCH_ROWS, _BATCH_BYTES = 500, 2_000_000
#: Rows that are fetched at once.
_FETCHED = 100
#: Milliseconds that a copy waits for writers to end (PostgreSQL).
_LOCK_MS = 5000

_IN_USE = (
    "FROM is in use: what is written during the copy would be missing from it. Stop the service "
    "and whatever else has the store open, or pass --while-in-use"
)

#: Called with a table's name, its rows copied so far, and its rows in all.
Note = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CopiedTable:
    """What was copied of a table, found alike in both stores."""

    name: str
    rows: int
    #: Sum of the SHA-256 of its rows, in hexadecimal: the same in any order.
    checksum: str


@dataclass(frozen=True)
class StoreSummary:
    """What a copy of a store holds."""

    #: Its migration, such as 0007; None for a store that was never migrated.
    migration: str | None
    sweeps: int
    trials: int


class CopyVerbs(Database):
    """Copies of everything that a store holds."""

    def copy_to(
        self,
        other: Database,
        *,
        while_in_use: bool = False,
        note: Note = lambda table, done, rows: None,
    ) -> list[CopiedTable]:
        """Copy every row to an empty store, whose tables are brought to this version first.

        Counts and checksums of every table are compared before anything is kept. Unless
        ``while_in_use``, a store that others have open is refused, and nobody can write to it
        during the copy; else the copy holds what was there when it began.

        Raises CopyRefused, StoreIsNewer, StoreUnavailable; the other store is then as before.
        """
        if _same(self, other):
            raise CopyRefused("FROM and TO must be two stores, got the same one twice")
        is_new = other._path is not None and not other._path.exists()
        try:
            with self._snapshot(still=not while_in_use) as source:
                _require_head(source)
                with other._writing() as write:
                    return _copy(source, write.conn, note)
        except BaseException:
            if is_new:
                other.close()
                _remove(other._path)
            raise

    def copy_to_file(self, path: Path, note: Note = lambda table, done, rows: None) -> StoreSummary:
        """Copy the store as it is now to a new SQLite file, while others write to the store.

        Of SQLite the file itself is copied; of PostgreSQL, each row. Raises StoreDamaged,
        StoreUnavailable, CopyRefused.
        """
        if self._path is not None:
            found = _copied_file(self._path, path)
            if found != "ok":
                raise StoreDamaged(self._path, found)
        copy = CopyVerbs(sqlite_url(path))
        try:
            if self._path is None:
                self.copy_to(copy, while_in_use=True, note=note)
            summary = copy.summary()
        finally:
            copy.close()
        with closing(sqlite3.connect(path)) as connection:
            # One file, with nothing beside it.
            connection.execute("PRAGMA journal_mode=DELETE").close()
        return summary

    def summary(self) -> StoreSummary:
        """What the store holds, in numbers."""
        with self._reading() as conn:
            found = revision(conn)
            if found is None:
                return StoreSummary(None, 0, 0)
            counts = [_count(conn, table) for table in (tables.sweeps, tables.trials)]
            return StoreSummary(found, *counts)

    def is_in_use(self) -> bool:
        """Whether others have the store open: a service, or somebody who looks at it."""
        self._engine.dispose()
        if self._path is not None:
            with _sqlite_errors(self._path):
                return is_open_elsewhere(self._path)
        with self._reading() as conn:
            others = sa.text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return bool(conn.execute(others).scalar())

    @contextmanager
    def _snapshot(self, *, still: bool) -> Iterator[sa.Connection]:
        """A connection that sees the store as it is at one moment.

        With ``still`` nobody can write meanwhile. Raises CopyRefused for a store in use.
        """
        if self._path is not None and not self._path.exists():
            raise CopyRefused(f"FROM must be a store that is there, but there is no {self._path}")
        if still and self.is_in_use():
            raise CopyRefused(_IN_USE)
        with _own_errors(self._path), self._engine.connect() as conn:
            if self._is_sqlite:
                conn = conn.execution_options(ndsweep_write=still)
            else:
                conn = conn.execution_options(isolation_level="REPEATABLE READ")
            with conn.begin():
                if still and not self._is_sqlite:
                    _lock(conn)
                yield conn


def _same(one: Database, other: Database) -> bool:
    if one._path is not None and other._path is not None:
        return one._path.resolve() == other._path.resolve()
    return one.url == other.url


def _lock(conn: sa.Connection) -> None:
    """Keep writers out. Before the snapshot is taken, so that nothing is missing from it."""
    conn.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MS}")
    names = [table.name for table in tables.metadata.sorted_tables]
    found = [name for name in names if sa.inspect(conn).has_table(name)]
    if not found:
        return
    try:
        conn.exec_driver_sql(f"LOCK TABLE {', '.join(found)} IN SHARE MODE")
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "55P03":
            raise
        raise CopyRefused(_IN_USE) from error


def _require_head(conn: sa.Connection) -> None:
    found, head = revision(conn), head_revision()
    if found is None:
        raise CopyRefused("the store to copy has no tables; name one that a service has run on")
    if found != head:
        raise CopyRefused(
            f"the store to copy must have the tables of this version ({head}), got those of "
            f"{found}; start the service of this version on it once, which brings them up to date"
        )


def _copy(source: sa.Connection, target: sa.Connection, note: Note) -> list[CopiedTable]:
    migrate(target)
    _require_empty(target)
    copied = [_copy_table(source, target, table, note) for table in tables.metadata.sorted_tables]
    _copy_counters(source, target)
    for table, sent in zip(tables.metadata.sorted_tables, copied, strict=True):
        found = _read_back(target, table)
        if found != sent:
            raise CopyRefused(
                f"the copy of table {table.name} differs: {sent.rows:,} rows with checksum "
                f"{sent.checksum[:12]} were read, {found.rows:,} with {found.checksum[:12]} "
                "written; nothing was kept"
            )
    return copied


def _require_empty(conn: sa.Connection) -> None:
    for table in tables.metadata.sorted_tables:
        if rows := _count(conn, table):
            raise CopyRefused(
                f"TO must be an empty store, but its table {table.name} has {rows:,} rows; name "
                "a new file or an empty database"
            )


def _count(conn: sa.Connection, table: sa.Table) -> int:
    return int(conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def _copy_table(
    source: sa.Connection, target: sa.Connection, table: sa.Table, note: Note
) -> CopiedTable:
    rows, checksum = _count(source, table), _Checksum()
    names = [column.name for column in table.columns]
    batch: list[dict[str, Any]] = []
    size = 0
    for row in _rows(source, table):
        size += checksum.add(row)
        batch.append(dict(zip(names, row, strict=True)))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            target.execute(sa.insert(table), batch)
            batch, size = [], 0
            note(table.name, checksum.rows, rows)
    if batch:
        target.execute(sa.insert(table), batch)
    note(table.name, checksum.rows, rows)
    return CopiedTable(table.name, checksum.rows, checksum.value)


def _read_back(conn: sa.Connection, table: sa.Table) -> CopiedTable:
    checksum = _Checksum()
    for row in _rows(conn, table):
        checksum.add(row)
    return CopiedTable(table.name, checksum.rows, checksum.value)


def _rows(conn: sa.Connection, table: sa.Table) -> Iterator[sa.Row[Any]]:
    # In the order of its key, which is the order in which pages of a new file fill up.
    query = sa.select(table).order_by(*table.primary_key.columns)
    streamed = conn.execute(query, execution_options={"yield_per": _FETCHED})
    with streamed as rows:
        yield from rows


class _Checksum:
    """Sum of the SHA-256 of rows: databases sort texts each in its own way."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, row: sa.Row[Any]) -> int:
        """Count a row in; return its length as text."""
        # SQLite keeps no negative zero.
        values = [value + 0.0 if isinstance(value, float) else value for value in row]
        text = repr(values).encode("utf-8", "surrogatepass")
        self._sum += int.from_bytes(hashlib.sha256(text).digest(), "big")
        self.rows += 1
        return len(text)

    @property
    def value(self) -> str:
        return f"{self._sum % 2**256:064x}"


# --- Ids that were given out ----------------------------------------------------------------------


def _copy_counters(source: sa.Connection, target: sa.Connection) -> None:
    """Have the other store go on counting: ids of deleted rows are not given out again."""
    for table in tables.metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None and isinstance(column.type, sa.BigInteger):
            last = max(_given_out(source, table), _largest(target, column))
            if last:
                _give_out_after(target, table, last)


def _largest(conn: sa.Connection, column: sa.Column[Any]) -> int:
    return int(conn.execute(sa.select(sa.func.max(column))).scalar() or 0)


def _given_out(conn: sa.Connection, table: sa.Table) -> int:
    if conn.dialect.name == "sqlite":
        last = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return int(conn.execute(last, {"name": table.name}).scalar() or 0)
    last_value = f"SELECT last_value FROM {_sequence(conn, table)} WHERE is_called"
    return int(conn.exec_driver_sql(last_value).scalar() or 0)


def _give_out_after(conn: sa.Connection, table: sa.Table, last: int) -> None:
    if conn.dialect.name == "postgresql":
        name = _sequence(conn, table)
        conn.execute(sa.text("SELECT setval(:name, :last)"), {"name": name, "last": last})
    elif table.dialect_options["sqlite"]["autoincrement"]:
        values = {"name": table.name, "last": last}
        conn.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        conn.execute(sa.text("INSERT INTO sqlite_sequence VALUES (:name, :last)"), values)


def _sequence(conn: sa.Connection, table: sa.Table) -> str:
    found = sa.text("SELECT pg_get_serial_sequence(:name, 'id')")
    return str(conn.execute(found, {"name": table.name}).scalar_one())


# --- Files ----------------------------------------------------------------------------------------


def _copied_file(source: Path, target: Path) -> str:
    with _sqlite_errors(source):
        return copy_sqlite(source, target)


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite's own driver into those of the store."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StoreDamaged(path, str(error)) from error
        raise StoreUnavailable(f"the store {path} cannot be read: {error}") from error


def _remove(path: Path | None) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{end}").unlink(missing_ok=True)
