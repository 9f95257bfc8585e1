"""The store among processes, without its database, and across versions."""

import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from sweeps.errors import StoreUnavailable, SweepNotFound
from sweeps.records import TrialState
from sweeps.store.database import connection as store_connection
from sweeps.store.database.tables import metadata
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, claimed, new_sweep, report, run, trial


def be_patient() -> None:
    """Wait for the disk, however long the others' writes take."""
    store_connection.BUSY_SECONDS = 600.0
    store_connection.CONNECT_SECONDS = 600


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose threads write at once: the last of them may wait for all the others."""
    monkeypatch.setattr(store_connection, "BUSY_SECONDS", 600.0)


def drive_everything(url: str, owner: str) -> list[str]:
    """Claim sweeps until there are none; run one trial of each."""
    store = Store(url)
    driven = []
    while claim := store.claim(owner, LEASE):
        store.add_trials(claim, [trial(0), trial(1)])
        for number in (0, 1):
            run(store, claim, number, 0.5)
        driven.append(claim.sweep_id)
    store.close()
    return driven


def test_several_processes_drive_each_sweep_once(store: Store) -> None:
    ids = [new_sweep(store).id for _ in range(8)]

    with multiprocessing.get_context("spawn").Pool(2, be_patient) as pool:
        driven = pool.starmap(drive_everything, [(store.url, f"runner-{i}") for i in range(2)])
    rest = drive_everything(store.url, "last")

    assert sorted(sum(driven, rest)) == sorted(ids)
    for sweep_id in ids:
        sweep = store.get_sweep(sweep_id)
        assert sweep.trials["complete"] == 2
        assert [len(store.trial(sweep_id, n).attempts) for n in (0, 1)] == [1, 1]


@pytest.mark.usefixtures("patience")
def test_threads_record_at_once_without_losing_a_point(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(p) for p in range(4)])
    attempts = [store.start_attempt(claim, n) for n in range(4)]

    def record(number: int) -> None:
        for step in range(1, 26):
            store.record(claim, number, attempts[number].id, [report(step, step / 100)])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(record, range(4)))

    for number in range(4):
        curve = store.metrics(claim.sweep_id, number)["validation_error"]
        assert curve == [(step, step / 100) for step in range(1, 26)]
    ids = [event.id for event in store.events(claim.sweep_id, limit=1000)]
    assert ids == sorted(set(ids))


@pytest.mark.usefixtures("patience")
def test_an_event_reader_that_follows_the_ids_misses_none(store: Store) -> None:
    ids = [new_sweep(store).id for _ in range(4)]
    seen: list[int] = []

    def label(sweep_id: str) -> None:
        for _ in range(10):
            store.request(sweep_id, "pause")
            store.resume(sweep_id)

    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(label, sweep_id) for sweep_id in ids]
        while not all(future.done() for future in done):
            seen += [e.id for e in store.events(None, after=seen[-1] if seen else 0)]
    for future in done:
        future.result()
    while more := [e.id for e in store.events(None, after=seen[-1] if seen else 0)]:
        seen += more

    assert len(seen) == len(set(seen)) == 4 + 4 * 10 * 2


def test_a_write_that_fails_half_way_leaves_nothing(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    before = store.events(claim.sweep_id)

    def start_and_die() -> None:
        with store.together():
            store.start_attempt(claim, 0)
            raise RuntimeError("killed here")

    with pytest.raises(RuntimeError, match="killed"):
        start_and_die()

    assert store.trial(claim.sweep_id, 0).state == TrialState.WAITING
    assert store.trial(claim.sweep_id, 0).attempts == ()
    assert store.events(claim.sweep_id) == before


# --- Without a database ---


def test_a_store_that_was_never_migrated_is_unavailable(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    for url in (f"sqlite:///{tmp_path / 'new.db'}", new_postgres()):
        store = Store(url)
        with pytest.raises(StoreUnavailable, match="sweeps"):
            store.health()
        store.close()


def test_a_folder_that_cannot_be_written_is_unavailable_in_words(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'missing' / 'store.db'}")

    with pytest.raises(StoreUnavailable, match="unable to open database file"):
        store.migrate()


def test_a_file_that_is_no_database_is_unavailable_in_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"something else entirely, of some length" * 100)
    store = Store(f"sqlite:///{path}")

    with pytest.raises(StoreUnavailable, match="not a database"):
        store.migrate()


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    store = Store("postgresql+psycopg://nobody@127.0.0.1:1/none")

    with pytest.raises(StoreUnavailable):
        store.health()


def test_a_writer_whose_turn_does_not_come_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.migrate()
    monkeypatch.setattr(store_connection, "BUSY_SECONDS", 0.05)

    with store.together(), ThreadPoolExecutor(1) as other:
        new_sweep(store)
        with pytest.raises(StoreUnavailable, match=r"busy for 0\.05 s; try again"):
            other.submit(new_sweep, store).result()

    assert len(store.list_sweeps().items) == 1
    assert new_sweep(store).name == "tiny"  # the turn was given back
    store.close()


@pytest.mark.parametrize("url", ["mysql://x/y", "store.db", "sqlite://", "sqlite:///:memory:"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="store url"):
        Store(url)


def break_connections(url: str) -> None:
    """Let the server end every other connection, as it does when it restarts."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_postgresql_restart_costs_at_most_a_retry(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    store = Store(url)
    store.migrate()
    sweep = new_sweep(store)

    break_connections(url)

    # The pool tests its connections, so that even the first verb afterwards succeeds.
    assert store.get_sweep(sweep.id) == sweep
    store.close()


def test_a_connection_that_breaks_within_a_verb_is_unavailable_and_nothing_stays(
    new_postgres: Callable[[], str],
) -> None:
    url = new_postgres()
    store = Store(url)
    store.migrate()
    claim = claimed(store)
    store.add_trials(claim, [trial()])

    def start_and_record() -> None:
        with store.together():
            store.start_attempt(claim, 0)
            break_connections(url)
            store.record(claim, 0, 1, [report(1)])

    with pytest.raises(StoreUnavailable):
        start_and_record()

    assert store.trial(claim.sweep_id, 0).attempts == ()
    # The driver simply tries again.
    assert store.start_attempt(claim, 0).number == 1
    store.close()


# --- Versions ---


def test_migrations_make_exactly_the_tables_of_this_version(store: Store) -> None:
    engine = sa.create_engine(store.url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, metadata)
    engine.dispose()

    assert differences == []


@pytest.mark.usefixtures("patience")
def test_processes_that_migrate_at_once_do_it_once(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    for url in (f"sqlite:///{tmp_path / 'store.db'}", new_postgres()):
        stores = [Store(url) for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda store: store.migrate(), stores))
        stores[0].health()
        for store in stores:
            store.close()


def test_migrating_again_keeps_everything(store: Store) -> None:
    sweep = new_sweep(store)

    store.migrate()

    assert store.get_sweep(sweep.id) == sweep


def test_a_copied_sqlite_store_is_whole_after_a_hard_stop(tmp_path: Path) -> None:
    """What a killed process leaves (database and write-ahead log) holds every committed write."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.migrate()
    sweep = new_sweep(store)
    other = tmp_path / "copy"
    other.mkdir()
    for file in tmp_path.glob("store.db*"):
        shutil.copy(file, other / file.name)
    store.close()

    copy = Store(f"sqlite:///{other / 'store.db'}")

    assert copy.get_sweep(sweep.id) == sweep
    with pytest.raises(SweepNotFound):
        copy.get_sweep("0" * 12)
    copy.close()


def test_sqlite_keeps_its_promises(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.migrate()
    with store._reading() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    store.close()

    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }
    assert sqlite3.sqlite_version_info >= (3, 35)


def test_nothing_of_the_record_loads_an_engine() -> None:
    modules = (
        "store.store, spec.sweep_spec, analysis.arms, analysis.result_tables, spec.presets, "
        "spec.validation_messages, spec.text, errors, records"
    )
    code = (
        f"import sys; import sweeps.{modules.replace(', ', ', sweeps.')}; "
        "heavy = {'torch', 'ray', 'optuna', 'mlflow', 'scipy', 'numpy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)

    assert (done.returncode, done.stderr) == (0, "")
