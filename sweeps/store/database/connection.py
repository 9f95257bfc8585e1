"""The store's connection to its database: engines, transactions, and the store's errors."""

import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event as engine_event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError

from sweeps.errors import StoreDamaged, StoreUnavailable, SweepsError
from sweeps.store.database import tables
from sweeps.store.database.people import acting
from sweeps.store.database.sqlite_file import sqlite_path

#: Seconds that a writer waits for another before it gives up (SQLite).
BUSY_SECONDS = 30.0
#: Whole seconds that PostgreSQL may take to accept a connection.
CONNECT_SECONDS = 5
#: Seconds. A lease that expires later was taken before the clock was set back.
LONGEST_LEASE = 3600.0
#: PostgreSQL's lock that makes event ids appear in the order of their commits.
_EVENT_LOCK = 0x6E6473


@dataclass
class Write:
    """One write transaction. Its events are written together at its end."""

    conn: sa.Connection
    #: Microseconds since 1970.
    now: int
    _events: list[dict[str, Any]] = field(default_factory=list)
    _audited: list[dict[str, Any]] = field(default_factory=list)

    def event(self, sweep_id: str, kind: str, data: dict[str, Any]) -> None:
        """Add an event of this transaction."""
        self._events.append({"sweep_id": sweep_id, "at": self.now, "kind": kind, "data": data})

    def audit(self, action: str, target: str, **data: Any) -> None:
        """Record that who acts did this, with this transaction; nothing where nobody is known."""
        actor = acting()
        if actor is not None:
            entry = {"who": actor.name, "token": actor.token, "address": actor.address}
            what = {"at": self.now, "action": action, "target": target, "data": json_safe(data)}
            self._audited.append(entry | what)

    def flush(self) -> None:
        """Write the audit log and the events. Must be the transaction's last, see _EVENT_LOCK.

        A reader that follows the ids would miss an event whose id is lower than one it has
        already seen, so on PostgreSQL only one transaction at a time may hold ids it has not
        committed. Nothing else is locked after this lock, so it cannot be part of a deadlock.
        """
        if self._audited:
            self.conn.execute(sa.insert(tables.audit), self._audited)
        if not self._events:
            return
        if self.conn.dialect.name == "postgresql":
            self.conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_EVENT_LOCK)))
        self.conn.execute(sa.insert(tables.events), self._events)


#: Told of a transaction: "read" or "write", and its seconds.
Observer = Callable[[str, float], None]


class Database:
    """Connection pool over SQLite or PostgreSQL. Safe for threads; open one per process.

    Args:
        url: ``sqlite:///path/to/store.db`` or ``postgresql+psycopg://…``.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except ArgumentError:
            raise ValueError(_bad_url(url)) from None
        if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
            raise ValueError(_bad_url(url))
        if parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise ValueError("store url must name a file: several processes share the store")
        self.url = url
        self._is_sqlite = parsed.drivername == "sqlite"
        self._path = sqlite_path(url)
        self._outer = threading.local()
        self._observers: list[Observer] = []
        # SQLite has one writer at a time and lets others poll at growing intervals; threads of this
        # process wait here instead.
        self._turn = threading.Lock() if self._is_sqlite else None
        self._engine = _sqlite(parsed) if self._is_sqlite else _postgres(parsed)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def health(self) -> None:
        """Return if the database answers. Raises StoreUnavailable."""
        with self._reading() as conn:
            conn.execute(sa.select(tables.sweeps.c.id).limit(1))

    def has_tables(self) -> bool:
        """Whether ``migrate`` has created the tables. Raises StoreUnavailable."""
        with self._reading() as conn:
            return sa.inspect(conn).has_table(tables.sweeps.name)

    def require_whole(self, seconds: float = 2.0) -> None:
        """Raise StoreDamaged for a SQLite file that is broken, as far as ``seconds`` let one look.

        The beginning of every table is looked at whatever the time.
        """
        if not self._is_sqlite:
            return
        with self._reading() as conn:
            names = sa.text("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
            for (name,) in conn.execute(names).all():
                table = name.replace('"', '""')
                conn.exec_driver_sql(f'SELECT * FROM "{table}" LIMIT 1').close()
            found = _quick_check(conn, seconds)
        if found not in ("ok", None):
            raise StoreDamaged(self._path, found)

    def observe(self, observer: Observer) -> None:
        """Call ``observer("read" or "write", seconds)`` after each transaction of this Store.

        From the transaction's thread; time in which a writer waits for its turn counts.
        """
        self._observers.append(observer)

    @contextmanager
    def _observed(self, kind: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            for observer in self._observers:
                observer(kind, seconds)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._observed("read"), _own_errors(self._path), self._engine.connect() as conn:
            with conn.begin():
                yield conn

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine all writes of this thread within the block into one transaction."""
        with self._writing() as write:
            self._outer.write = write
            try:
                yield
            finally:
                self._outer.write = None

    @contextmanager
    def _writing(self) -> Iterator[Write]:
        outer: Write | None = getattr(self._outer, "write", None)
        if outer is not None:
            yield outer
            return
        with (
            self._observed("write"),
            _own_errors(self._path),
            self._alone(),
            self._engine.connect() as conn,
        ):
            conn = conn.execution_options(ndsweep_write=True)
            with conn.begin():
                write = Write(conn, microseconds())
                yield write
                write.flush()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be this process's only writer if the database allows only one."""
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise StoreUnavailable(f"the store was busy for {BUSY_SECONDS:g} s; try again")
        try:
            yield
        finally:
            self._turn.release()

    def _clock(self) -> Any:
        """Return the time to compare leases with: the database's if machines share it."""
        if self._is_sqlite:
            return microseconds()
        seconds = sa.extract("epoch", sa.func.clock_timestamp())
        return sa.cast(seconds * 1_000_000, sa.BigInteger)

    def _is_lapsed(self, lease_until: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Whether a lease has expired, or the clock was set back since it was taken."""
        now = self._clock()
        return sa.or_(lease_until < now, lease_until > now + int(LONGEST_LEASE * 1e6))


def microseconds() -> int:
    """Return the current time in microseconds since 1970."""
    return time.time_ns() // 1000


def json_safe(value: Any) -> Any:
    """Return a JSON value without NaN, infinities and NUL characters, which databases refuse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, dict):
        return {plain_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value


def plain_text(value: str) -> str:
    """Return text that every database stores: no NUL, no lone surrogates."""
    if value.isascii() and "\x00" not in value:
        return value
    return value.replace("\x00", "�").encode("utf-8", "replace").decode()


def _bad_url(url: str) -> str:
    scheme = url.partition(":")[0][:40]
    return f"store url must start with sqlite:/// or postgresql+psycopg://, got {scheme!r}"


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        json_serializer=_to_json,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        pool_size=8,
        max_overflow=32,
    )

    @engine_event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        # This class sends BEGIN: the driver would start transactions too late to be snapshots.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={int(BUSY_SECONDS * 1000)}",
            "journal_mode=WAL",
            # An fsync per commit, so that commits survive a power cut, not only a killed process.
            "synchronous=FULL",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @engine_event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A writer that starts as a reader cannot wait for another writer, it fails.
        write = connection.get_execution_options().get("ndsweep_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgres(url: sa.URL) -> sa.Engine:
    return sa.create_engine(
        url,
        json_serializer=_to_json,
        pool_size=8,
        max_overflow=32,
        pool_pre_ping=True,
        connect_args={"connect_timeout": CONNECT_SECONDS},
    )


_to_json = partial(json.dumps, separators=(",", ":"), allow_nan=False)

#: SQLSTATE classes whose cause is not the statement: connection, resources, operator, system.
_ENVIRONMENT = ("08", "53", "57", "58", "40", "25006")


#: SQLite's codes for a file that is none of its own, and for one that contradicts itself.
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _quick_check(conn: sa.Connection, seconds: float) -> str | None:
    """What SQLite says of its whole file, "ok" for nothing; None where that takes longer."""
    driver: Any = conn.connection.driver_connection
    end = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > end, 100_000)
    try:
        first: str = conn.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except DBAPIError as error:
        if _code(error) == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        driver.set_progress_handler(None, 0)
    return " ".join(first.split())


def _code(error: DBAPIError) -> int:
    """SQLite's primary code of an error; 0 for another database's."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def _own_errors(path: Path | None) -> Iterator[None]:
    """Turn errors of a database that cannot be reached or written into StoreUnavailable."""
    try:
        yield
    except SweepsError:
        raise
    except NoSuchModuleError as error:
        raise StoreUnavailable(f"the store's driver is missing: {error}") from error
    except TimeoutError as error:
        raise StoreUnavailable("the store has no free connection; try again") from error
    except DBAPIError as error:
        if path is not None and _code(error) in _DAMAGE:
            raise StoreDamaged(path, _first_line(error)) from error
        if not _is_environment(error):
            raise
        raise StoreUnavailable(f"the store cannot be used: {_first_line(error)}") from error


def _is_environment(error: DBAPIError) -> bool:
    """Whether the database is the cause, not the statement or its values."""
    if error.connection_invalidated:
        return True
    if isinstance(error.orig, sqlite3.Error):
        # A damaged or foreign file raises DatabaseError itself; its subclasses mean the statement.
        return type(error.orig) in (sqlite3.OperationalError, sqlite3.DatabaseError)
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    # 42P01: the table is missing, so the store was never migrated.
    return state == "42P01" or state.startswith(_ENVIRONMENT)


def _first_line(error: DBAPIError) -> str:
    text = str(error.orig).strip().splitlines()
    return text[0] if text else type(error.orig).__name__
