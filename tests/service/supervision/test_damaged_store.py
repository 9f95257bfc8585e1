"""A store whose file is broken is named, with what to do, by whatever would begin on it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import Settings
from service.supervision.doctor import diagnose
from service.supervision.supervisor import require_store
from sweeps.errors import StoreDamaged, StoreUnavailable
from sweeps.store.store import Store

PAGE = 4096
NOISE = random.Random(0).randbytes


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


#: What happened to the file.
DAMAGE = {
    "the first page is noise": lambda path: overwrite(path, 0, NOISE(PAGE)),
    "the first page is zeros": lambda path: overwrite(path, 0, bytes(PAGE)),
    "its head is gone": lambda path: overwrite(path, 0, b"x" * 100),
    "pages 2 to 4 are noise": lambda path: overwrite(path, PAGE, NOISE(3 * PAGE)),
    "pages 2 to 4 are zeros": lambda path: overwrite(path, PAGE, bytes(3 * PAGE)),
    "a page in the middle is noise": lambda path: overwrite(path, 14 * PAGE, NOISE(PAGE)),
    "its second half is gone": truncate,
    "it is another file": lambda path: path.write_bytes(b"name,value\n" * 1000),
}


@pytest.fixture(params=DAMAGE.values(), ids=DAMAGE)
def damaged(request, store, spec, home):
    """The file of a store with a sweep, after what happened to it."""
    for _ in range(20):
        store.create_sweep("sweep", spec | {"notes": "x" * 3000}, name="a", num_trials=4)
    store.close()
    path = home / "store.db"
    for name in ("store.db-wal", "store.db-shm"):
        (home / name).unlink(missing_ok=True)
    request.param(path)
    return path


def is_a_remedy(text, path):
    return (
        f"the store {path} is damaged (" in text
        and "put a backup in its place" in text
        and "\n" not in text.strip()
    )


def test_what_would_start_on_it_refuses(damaged, home):
    with pytest.raises(StoreDamaged) as refused:
        require_store(Settings(home=home))

    assert is_a_remedy(str(refused.value), damaged)


def test_doctor_names_it(damaged, home, data):
    (found,) = [one for one in diagnose(Settings(home=home, data=data)) if one.what == "store"]

    assert found.level == "error"
    assert is_a_remedy(found.detail, damaged)


@pytest.mark.parametrize("command", [["serve"], ["serve", "--only", "api"], ["runner"], ["doctor"]])
def test_the_commands_end_with_one_sentence(home, store, command):
    store.close()
    overwrite(home / "store.db", 0, NOISE(PAGE))
    done = subprocess.run(
        [sys.executable, "-m", "service", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"NDSWEEP_HOME": str(home), "COLUMNS": "1000"},
    )

    assert done.returncode == 1
    said = done.stderr if command != ["doctor"] else done.stdout
    (line,) = [line for line in said.splitlines() if "damaged" in line]
    assert is_a_remedy(line, home / "store.db")
    assert "Traceback" not in done.stderr


def test_a_whole_store_and_one_that_is_not_there_yet_are_fine(home, store, tmp_path):
    require_store(Settings(home=home))
    (tmp_path / "new").mkdir()
    require_store(Settings(home=tmp_path / "new"))


def test_looking_takes_no_longer_than_it_may(store, monkeypatch):
    """Of a store of many gigabytes only the beginning of each table is looked at."""
    moments = iter(range(0, 10**9, 1000))
    monkeypatch.setattr("sweeps.store.database.connection.time.monotonic", lambda: next(moments))
    with store._writing() as write:
        write.conn.exec_driver_sql("CREATE TABLE filler (a TEXT)")
        write.conn.exec_driver_sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) "
            "INSERT INTO filler SELECT hex(randomblob(40)) FROM n"
        )

    store.require_whole(0.0)
    assert store.list_sweeps().items == []


def test_an_answer_of_the_api_says_so_too(client, store, home, assert_error):
    store.close()
    overwrite(home / "store.db", 0, NOISE(PAGE))
    for name in ("store.db-wal", "store.db-shm"):
        (home / name).unlink(missing_ok=True)

    body = assert_error(client.get("/readyz"), 503, "StoreDamaged")
    assert is_a_remedy(body["detail"], home / "store.db")


def test_other_troubles_of_a_store_are_not_called_damage(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/no/such/folder/store.db")
    with pytest.raises(StoreUnavailable) as refused:
        store.require_whole()

    assert not isinstance(refused.value, StoreDamaged)
