"""A store is copied whole or not at all, from either database to either."""

import math
import shutil
import struct
import threading

import pytest
import sqlalchemy as sa

from sweeps.errors import CopyRefused, StoreDamaged, StoreIsNewer
from sweeps.store.database import copying, tables
from sweeps.store.database.sqlite_file import sqlite_path
from sweeps.store.store import Store

SERIES = struct.pack("<4d", math.nan, math.inf, -0.0, 5e-324)
TEXT = "α^v, 'quoted' \"twice\"\nand a line, é 🙂 \x7f ; -- %s :name"
JSON = {"b": [1, 1.0, -0.0, 1e-308, 2**62, None, True], "a": {"": TEXT, "π": []}}
BIG, SMALL = 2**62 + 1, 1_764_460_800_123_456


def value_of(column, row):
    """A value that is hard to keep, other in each row; keys refer to each other."""
    if column.foreign_keys:
        return {"sweep_id": "0123456789ab", "trial": row, "attempt_id": row}[column.name]
    if column.nullable and row == 1:
        return None
    kind = column.type
    if isinstance(kind, sa.JSON):
        return JSON | {"row": row}
    if isinstance(kind, sa.Boolean):
        return row % 2 == 0
    if isinstance(kind, sa.Double):
        return [0.1 + 0.2, -0.0, math.inf, 5e-324][row % 4]
    if isinstance(kind, sa.Integer):
        is_wide = isinstance(kind, sa.BigInteger) and not column.primary_key
        return (BIG if row % 2 else SMALL) + row if is_wide else row
    if isinstance(kind, sa.LargeBinary):
        return SERIES * row
    if isinstance(kind, sa.Text):
        return f"{TEXT} {row}"
    return f"{row}"[: kind.length]


def fill(store, rows=3):
    """Rows in every table; ids of deleted ones were given out before and after them."""
    with store._writing() as write:
        for table in tables.metadata.sorted_tables:
            numbers = [1] if table is tables.sweeps else range(1, rows + 1)
            values = [{c.name: value_of(c, n) for c in table.columns} for n in numbers]
            if table is tables.sweeps:
                values[0]["id"] = "0123456789ab"
            if table is tables.trials:
                values = [row | {"seed": n} for n, row in zip(numbers, values, strict=True)]
            write.conn.execute(sa.insert(table), values)
        gone = {c.name: value_of(c, 40) for c in tables.events.columns}
        write.conn.execute(sa.insert(tables.events), gone)
        write.conn.execute(sa.delete(tables.events).where(tables.events.c.id == 40))
        if write.conn.dialect.name == "postgresql":
            write.conn.exec_driver_sql("SELECT setval('events_id_seq', 40)")


def content(store):
    """Rows of every table as text; -0.0 as 0.0, because SQLite keeps none in a column."""

    def text(row):
        return repr([value + 0.0 if isinstance(value, float) else value for value in row])

    with store._reading() as conn:
        return {
            table.name: sorted(map(text, conn.execute(sa.select(table))))
            for table in tables.metadata.sorted_tables
        }


@pytest.fixture
def new_url(tmp_path, new_postgres):
    count = iter(range(9))

    def make(kind):
        return new_postgres() if kind == "postgresql" else f"sqlite:///{tmp_path}/{next(count)}.db"

    return make


@pytest.fixture
def opened(empty_database):
    stores = []

    def make(url, *, migrate=False):
        path = sqlite_path(url)
        if migrate and path is not None:
            shutil.copy(empty_database, path)
        store = Store(url)
        stores.append(store)
        if migrate and path is None:
            store.migrate()
        return store

    yield make
    for store in stores:
        store.close()


@pytest.mark.parametrize("kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite")])
def test_every_value_of_every_table_arrives_and_comes_back(kinds, new_url, opened):
    first, second, third = (opened(new_url(kind)) for kind in (*kinds, kinds[0]))
    first.migrate()
    fill(first)

    there = first.copy_to(second)
    back = second.copy_to(third)

    assert there == back
    assert {table.name: table.rows for table in there if table.rows != 3} == {"sweeps": 1}
    for copy in (second, third):
        assert content(copy) == content(first)
        assert copy.is_up_to_date()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_copy_gives_out_new_ids(kind, new_url, opened):
    source = opened(new_url("sqlite"), migrate=True)
    fill(source)
    copy = opened(new_url(kind))
    source.copy_to(copy)

    with copy._writing() as write:
        write.event("0123456789ab", "state", {})
    assert copy.last_event_id("0123456789ab") == 41


def test_rows_pass_in_batches_and_are_counted(new_url, opened, monkeypatch):
    monkeypatch.setattr(copying, "_BATCH_ROWS", 2)
    source = opened(new_url("sqlite"), migrate=True)
    fill(source, rows=5)
    seen = []

    source.copy_to(opened(new_url("sqlite")), note=lambda *told: seen.append(told))

    assert [told for told in seen if told[0] == "trials"] == [
        ("trials", 2, 5),
        ("trials", 4, 5),
        ("trials", 5, 5),
    ]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_in_use_is_refused_unless_that_is_said(kind, new_url, opened):
    url = new_url(kind)
    service, source = opened(url, migrate=True), opened(url)
    service.health()

    with pytest.raises(CopyRefused, match=r"^FROM is in use: .* or pass --while-in-use$"):
        source.copy_to(opened(new_url("sqlite")))
    copy = opened(new_url("sqlite"))
    source.copy_to(copy, while_in_use=True)
    assert copy.summary().migration == service.summary().migration


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_is_written_during_a_copy_is_not_in_it(kind, new_url, opened):
    url = new_url(kind)
    service, source, copy = opened(url, migrate=True), opened(url), opened(new_url("sqlite"))
    fill(service)
    late = []

    def write_too(table, done, rows):
        if not late:
            late.append(table)
            with service._writing() as write:
                write.event("0123456789ab", "state", {})

    source.copy_to(copy, while_in_use=True, note=write_too)

    assert (service.last_event_id("0123456789ab"), copy.last_event_id("0123456789ab")) == (41, 3)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nobody_writes_during_a_copy_of_a_store_at_rest(kind, new_url, opened):
    """Who starts meanwhile waits until it is over."""
    url = new_url(kind)
    source, late = opened(url, migrate=True), opened(url)
    fill(source)
    writer = threading.Thread(target=lambda: _add_event(late))
    still = []

    def begin_writer(table, done, rows):
        if not writer.ident:
            writer.start()
            writer.join(0.2)
            still.append(writer.is_alive())

    source.copy_to(opened(new_url("sqlite")), note=begin_writer)
    writer.join()

    assert still == [True]
    assert late.last_event_id("0123456789ab") == 41


def _add_event(store):
    with store._writing() as write:
        write.event("0123456789ab", "state", {})


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_copy_needs_an_empty_store(kind, new_url, opened):
    source, full = opened(new_url("sqlite"), migrate=True), opened(new_url(kind), migrate=True)
    fill(full, rows=2)
    before = content(full)

    with pytest.raises(
        CopyRefused, match=r"TO must be an empty store, but its table \w+ has \d rows"
    ):
        source.copy_to(full)
    assert content(full) == before


def test_what_cannot_be_copied_from_is_named(tmp_path, new_url, opened):
    def refused(source):
        target = tmp_path / "target.db"
        with pytest.raises((CopyRefused, StoreIsNewer, StoreDamaged)) as found:
            source.copy_to(opened(f"sqlite:///{target}"))
        assert not list(tmp_path.glob("target.db*"))
        return str(found.value)

    assert "there is no" in refused(opened(new_url("sqlite")))
    assert not (tmp_path / "0.db").exists()
    empty = opened(new_url("sqlite"))
    with empty._writing():
        pass
    assert "has no tables; name one" in refused(empty)
    old = opened(new_url("sqlite"), migrate=True)
    with old._writing() as write:
        write.conn.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    assert "got those of 0001; start the service" in refused(old)
    assert "the same one twice" in refused_same(old)
    (tmp_path / "noise.db").write_bytes(b"no database " * 1000)
    assert "is damaged" in refused(opened(f"sqlite:///{tmp_path}/noise.db"))


def refused_same(store):
    with pytest.raises(CopyRefused) as found:
        store.copy_to(store)
    return str(found.value)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_copy_that_differs_is_not_kept(kind, new_url, opened, monkeypatch):
    """The database that was written to is asked, not believed."""
    source, copy = opened(new_url("sqlite"), migrate=True), opened(new_url(kind), migrate=True)
    fill(source)
    give_out = copying._copy_counters

    def change(one, other):
        give_out(one, other)
        other.execute(sa.update(tables.metrics).values(value=0.5))

    monkeypatch.setattr(copying, "_copy_counters", change)

    with pytest.raises(CopyRefused, match=r"table metrics differs: 3 rows .*nothing was kept"):
        source.copy_to(copy)
    assert copy.summary().sweeps == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_as_one_file(kind, tmp_path, new_url, opened):
    url = new_url(kind)
    store = opened(url, migrate=True)
    fill(store)

    summary = store.copy_to_file(tmp_path / "copy.db")

    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]
    assert (summary.sweeps, summary.trials) == (1, 3)
    assert content(opened(f"sqlite:///{tmp_path}/copy.db"))["trials"] == content(store)["trials"]


def test_a_damaged_store_gives_no_copy(tmp_path, opened):
    store = opened(f"sqlite:///{tmp_path}/store.db", migrate=True)
    fill(store)
    store.close()
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)

    with pytest.raises(StoreDamaged, match=r"store\.db is damaged"):
        store.copy_to_file(tmp_path / "copy.db")
