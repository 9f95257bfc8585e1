"""A home goes into one file while it is used, and comes back as it was."""

import os
import sqlite3
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient
from typer.testing import CliRunner

from service.api.app import create_app
from service.backup import archive, making, restoring
from service.backup.archive import BackupRefused
from service.cli.app import app as command_line
from service.settings import Settings, SettingsError
from service.supervision import home as homes
from sweeps.records import NewTrial, TrialState
from sweeps.retention.note_images import add_image
from sweeps.store.database import tables
from sweeps.store.database.schema import head_revision
from sweeps.store.store import Store
from tests.postgres import start_postgres
from worker.checkpoints.saved_folders import SavedFolders
from worker.report import Report

STORED = Path(__file__).parents[1] / "stored_homes"
#: A GIF of one pixel.
GIF = bytes.fromhex(
    "47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b"
)


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def report(step, error=0.5):
    metrics = {"validation_error": error}
    return Report(step=step, num_steps=20, status="running", metrics=metrics)


def running_sweep(store, spec, trials=2):
    """A sweep with one trial that runs, and others that wait; its claim."""
    store.create_sweep("sweep", spec, name="running", num_trials=trials)
    claim = store.claim("tester")
    new = [NewTrial(n, 0, {"alpha_v": 0.01 * n}, {"seed": n}, f"key-{n}") for n in range(trials)]
    added = store.add_trials(claim, new)
    attempt = store.start_attempt(claim, added[0].number)
    store.record(claim, 0, attempt.id, [report(10)])
    return claim


@pytest.fixture
def used(store, home, trained, spec):
    """A home with a complete sweep, one that runs, and files of both; the id of the latter."""
    claim = running_sweep(store, spec)
    sweep, of_trial = claim.sweep_id, home / "checkpoints" / claim.sweep_id / "0"
    for step in (5, 10):
        write(of_trial / f"step-{step:010d}.ckpt", f"checkpoint at {step}")
    for name in ("reports.jsonl", "weights.pt", "stop", ".checkpoint-a", "step-0000000011.damaged"):
        write(of_trial / name)
    write(home / "checkpoints" / trained.id / "0" / "step-0000000020.ckpt")
    write(home / "models" / trained.id / "weights.pt", "weights")
    write(
        home / "models" / trained.id / "best.json", '{"trial": 0, "objective": 0.1, "params": {}}'
    )
    write(home / "logs" / trained.id / "0.log", "a line of the log\n")
    for name in ("logs/api.log", "endpoints.json", "ray.token", "tune/a/b", "mlflow/.tmp/c"):
        write(home / name)
    write(home / "mlflow" / "artifacts" / "1" / "π.md", "| results |")
    with sqlite3.connect(home / "mlflow" / "mlflow.db") as mlflow:
        mlflow.execute("CREATE TABLE runs (name TEXT)")
        mlflow.execute("INSERT INTO runs VALUES ('trial 1')")
    mlflow.close()
    return sweep


def backed_up(store, home, tmp_path, name="a.ndsweep"):
    making.back_up(store, home, tmp_path / name)
    return tmp_path / name


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_a_home_needs_comes_back(used, store, home, trained, tmp_path):
    new = tmp_path / "new" / "home"
    restoring.restore(backed_up(store, home, tmp_path), Settings(home=new))

    assert below(new) == {
        "store.db",
        f"checkpoints/{used}/0/step-0000000010.ckpt",
        f"checkpoints/{used}/0/reports.jsonl",
        f"checkpoints/{used}/0/weights.pt",
        f"models/{trained.id}/weights.pt",
        f"models/{trained.id}/best.json",
        f"logs/{trained.id}/0.log",
        "mlflow/mlflow.db",
        "mlflow/artifacts/1/π.md",
    }
    for path in new.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    with sqlite3.connect(new / "mlflow" / "mlflow.db") as mlflow:
        assert mlflow.execute("SELECT name FROM runs").fetchall() == [("trial 1",)]
    mlflow.close()


def test_a_service_goes_on_from_a_restored_home(client, used, store, home, trained, data, tmp_path):
    image = add_image(home, trained.id, GIF)
    new = tmp_path / "new"
    restoring.restore(backed_up(store, home, tmp_path), Settings(home=new))
    wanted = [
        f"/api/v1/sweeps/{trained.id}{below}"
        for below in ("", "/trials", "/trials/0/metrics", "/best", f"/images/{image.name}")
    ]
    wanted += ["/api/v1/sweeps", f"/api/v1/sweeps/{used}/trials/0", f"/sweeps/{trained.id}"]

    settings = Settings(home=new, data=data)
    restored = Store(settings.database_url())
    with TestClient(create_app(restored, settings), base_url="http://127.0.0.1:8000") as other:
        for address in wanted[:-1]:
            answer = other.get(address)
            assert (answer.status_code, answer.content) == (200, client.get(address).content)
        assert other.get(wanted[-1]).status_code == 200
        assert other.get("/readyz").status_code == 200
    with restored._writing() as write:
        write.conn.execute(sa.update(tables.sweeps).values(lease_until=0))
    again = restored.claim("another")
    assert again.sweep_id == used
    attempt = restored.start_attempt(again, 0)
    restored.record(again, 0, attempt.id, [report(20, 0.25)])
    assert restored.trial(used, 0).metrics == {"validation_error": 0.25}
    restored.close()


class Writers:
    """Two threads that write to a store and a checkpoint folder until they are stopped."""

    def __init__(self, store, claim, folder):
        self._store, self._claim = store, claim
        self._checkpoints = SavedFolders(folder, "key-0")
        self._stop = threading.Event()
        self.rounds = 0
        works = (self._write_rows, self._write_checkpoints)
        self._threads = [threading.Thread(target=work) for work in works]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self):
        before = self.rounds
        while self.rounds < before + 3:
            assert all(thread.is_alive() for thread in self._threads)
            self._stop.wait(0.01)

    def _write_rows(self):
        store, claim, done = self._store, self._claim, TrialState.COMPLETE
        while not self._stop.is_set():
            number = self.rounds + 2
            new = NewTrial(number, 0, {"alpha_v": 0.01}, {"seed": number}, f"key-{number}")
            store.add_trials(claim, [new])
            attempt = store.start_attempt(claim, number)
            with store.together():
                store.record(claim, number, attempt.id, [report(n, n / 20) for n in range(1, 21)])
                store.finish_attempt(claim, number, attempt.id, done, "complete", trial_state=done)
            self.rounds += 1

    def _write_checkpoints(self):
        while not self._stop.is_set():
            self._checkpoints.save(self.rounds, self._save)

    def _save(self, folder):
        for name in "ab":
            (folder / name).write_text(str(self.rounds) * 50_000)


def test_a_backup_while_others_write_fits_together(store, spec, home, tmp_path):
    """Rows are of one moment, and no checkpoint is half of one."""
    claim = running_sweep(store, spec)
    folder = f"checkpoints/{claim.sweep_id}/0"
    files = []
    with Writers(store, claim, home / folder) as writers:
        for name in "abc":
            writers.wait_for_more()
            files.append(backed_up(store, home, tmp_path, name))

    counts = []
    for file in files:
        new = tmp_path / f"new-{file.name}"
        restoring.restore(file, Settings(home=new))
        counts.append(_require_invariants(new / "store.db"))
        assert SavedFolders(new / folder, "key-0").newest() is not None
        assert not list(new.rglob("*.damaged"))
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] <= writers.rounds


def _require_invariants(path):
    """What each transaction keeps true; the number of complete trials."""
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        counted = db.execute("SELECT n_complete, n_waiting + n_running + n_complete FROM sweeps")
        complete, known = counted.fetchone()
        states = dict(db.execute("SELECT state, count(*) FROM trials GROUP BY state").fetchall())
        assert (states["complete"], sum(states.values())) == (complete, known)
        points = db.execute(
            "SELECT t.number, count(m.step), max(m.value) FROM trials t JOIN attempts a "
            "ON a.trial = t.number LEFT JOIN metrics m ON m.attempt_id = a.id "
            "WHERE t.state = 'complete' GROUP BY t.number"
        ).fetchall()
        assert {row[1:] for row in points} == {(20, 1.0)}
        assert len(points) == complete
    db.close()
    return complete


def test_a_checkpoint_that_is_replaced_each_time_is_named(used, store, home, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "_newest", lambda folder: [folder / "gone.ckpt"])

    manifest = making.back_up(store, home, tmp_path / "a")

    assert f"checkpoints/{used}/0: it was replaced" in manifest.left_out[0]
    assert not [entry for entry in manifest.files if entry.path.startswith("checkpoints")]


def test_links_lead_nowhere(used, store, home, trained, tmp_path):
    """A link in the home, to a file of somebody else, is not followed into the backup."""
    write(tmp_path / "secret", "secret")
    (home / "models" / trained.id / "link").symlink_to(tmp_path / "secret")
    (home / "logs" / "link").symlink_to(tmp_path)

    manifest = making.back_up(store, home, tmp_path / "a")

    assert not [entry.path for entry in manifest.files if "link" in entry.path]


# --- What is refused ------------------------------------------------------------------------------


def forged(path, files, manifest=(), unlisted=()):
    """An archive with these files, listed as they are."""
    with archive.writing(path, lambda size: None) as writer:
        for name, content in files.items():
            write(path.parent / "part", content)
            with (path.parent / "part").open("rb") as file:
                writer.add(name, file)
        entries = tuple(writer.entries)
        for name in unlisted:
            with (path.parent / "part").open("rb") as file:
                writer.add(name, file)
        about = {"migration": head_revision(), "database": "sqlite", "sweeps": 0, "trials": 0}
        about |= {"created_at": "2026-01-01T00:00:00Z", "files": entries} | dict(manifest)
        writer.finish(archive.Manifest.model_validate(about))
    return path


def refusal(file, tmp_path, **options):
    """The sentence; nothing was written."""
    before = below(tmp_path)
    with pytest.raises(BackupRefused) as refused:
        restoring.restore(file, Settings(home=tmp_path / "new" / "home"), **options)
    assert below(tmp_path) == before
    assert not (tmp_path / "new").exists()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("part", [0, 100, 0.5, -1])
def test_a_truncated_file_is_refused(used, store, home, tmp_path, part):
    file = backed_up(store, home, tmp_path)
    size = file.stat().st_size
    os.truncate(file, int(part * size) if isinstance(part, float) else part % size)

    assert "is no backup, or its end is missing" in refusal(file, tmp_path)


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"name,value\n" * 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as other:
        other.writestr("store.db", "x")

    assert "is no backup" in refusal(tmp_path / "a.txt", tmp_path)
    assert "it has no manifest.json" in refusal(tmp_path / "a.zip", tmp_path)


def test_a_changed_byte_of_any_file_is_found(used, store, home, tmp_path):
    file = backed_up(store, home, tmp_path)
    whole = file.read_bytes()
    with zipfile.ZipFile(file) as opened:
        files = [(info.header_offset, info.compress_size) for info in opened.infolist()]
    assert len(files) == 10
    for head, size in files:
        place = head + 30 + sum(struct.unpack_from("<HH", whole, head + 26)) + size // 2
        broken = bytearray(whole)
        broken[place] ^= 255
        file.write_bytes(broken)
        assert "is damaged" in refusal(file, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("../evil", "/etc/evil", "models/../../evil", "models//evil", "models/./evil", "models"),
        *(
            "serve.lock",
            "endpoints.json",
            "tune/a",
            ".restoring/a",
            "store.db/a",
            "models/a\0b",
            "",
        ),
    ],
)
def test_a_file_that_would_lie_elsewhere_is_refused(tmp_path, name):
    entry = {"path": name, "bytes": 0, "sha256": "0" * 64}
    file = forged(tmp_path / "a", {"store.db": "x"}, {"files": [entry]})

    assert "outside of the home" in refusal(file, tmp_path)


def test_a_list_that_is_not_that_of_the_files_is_refused(tmp_path):
    entry = {"path": "models/a", "bytes": 1, "sha256": "0" * 64}
    one = {"path": "store.db", "bytes": 1, "sha256": "0" * 64}
    file = tmp_path / "a"

    missing = refusal(forged(file, {"store.db": "x"}, {"files": [one, entry]}), tmp_path)
    assert "differ, first in 'models/a'" in missing
    extra = refusal(forged(file, {"store.db": "x"}, unlisted=["models/b"]), tmp_path)
    assert "differ, first in 'models/b'" in extra
    other = refusal(forged(file, {"store.db": "x"}, {"files": [one]}), tmp_path)
    assert "store.db is not the file that was backed up" in other
    larger = refusal(forged(file, {"store.db": "xy"}, {"files": [one]}), tmp_path)
    assert "store.db is not the file that was backed up" in larger
    assert "it has no store.db" in refusal(forged(file, {"models/a": "x"}), tmp_path)
    nested = {"store.db": "x", "models/a": "x", "models/a/b": "x"}
    assert "'models/a/b' lies below a file" in refusal(forged(file, nested), tmp_path)
    assert "has format 2, and" in refusal(forged(file, {"store.db": "x"}, {"format": 2}), tmp_path)


def test_a_store_that_is_none_is_refused(tmp_path):
    file = forged(tmp_path / "a", {"store.db": "no database" * 1000})
    with pytest.raises(BackupRefused, match="the store in the backup cannot be used"):
        restoring.restore(file, Settings(home=tmp_path / "new"))
    assert not list((tmp_path / "new").iterdir())


def test_a_store_of_another_migration_is_refused_or_brought_up_to_date(tmp_path):
    home, new = tmp_path / "home", tmp_path / "brought"
    with tarfile.open(STORED / "home_of_0_1_0.tar.xz") as packed:
        packed.extractall(home, filter="data")
    store = Store(Settings(home=home).database_url())
    old = backed_up(store, home, tmp_path)
    store.close()
    newer = forged(tmp_path / "newer", {"store.db": "x"}, {"migration": "9999", "version": "9.1"})

    assert "has migration 0003, and this version's has" in refusal(old, tmp_path)
    assert "pass --migrate to bring it up to date" in refusal(old, tmp_path)
    assert "restore it with ndsweep 9.1 or a newer one" in refusal(newer, tmp_path, migrate=True)

    restoring.restore(old, Settings(home=new), migrate=True)
    with closing(Store(Settings(home=new).database_url())) as restored:
        assert restored.is_up_to_date()
        assert len(restored.list_sweeps().items) == 3
    assert len(list(new.glob("checkpoints/*/*/*.ckpt"))) == 1
    assert len(list(new.glob("models/*/weights.pt"))) == 1
    assert (new / "mlflow" / "mlflow.db").exists()


def test_a_home_or_store_that_is_not_empty_is_refused(used, store, home, tmp_path):
    file = backed_up(store, home, tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")
    (tmp_path / "other.db").write_text("mine")

    with pytest.raises(
        BackupRefused, match=r"full is not empty: it has 'a\.txt'; set NDSWEEP_HOME"
    ):
        restoring.restore(file, Settings(home=tmp_path / "full"))
    url = f"sqlite:///{tmp_path}/other.db"
    with pytest.raises(BackupRefused, match=r"there is a store .*other\.db already"):
        restoring.restore(file, Settings(home=tmp_path / "new", store_url=url))
    with pytest.raises(BackupRefused, match="is in the home that it would be a backup of"):
        making.back_up(store, home, home / "models" / "a")


def test_a_token_made_before_does_not_count_and_stays(used, store, home, tmp_path):
    new = tmp_path / "new"
    write(new / "token", "secret")
    restoring.restore(
        backed_up(store, home, tmp_path), Settings(home=new, token_file=new / "token")
    )

    assert (new / "token").read_text() == "secret"
    assert (new / "store.db").exists()


# --- What is killed -------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from service.backup import restoring
from service.settings import Settings
place, file, home = sys.argv[1:]
die = lambda *_: os.kill(os.getpid(), 9)
if place == "moving":
    rename = Path.rename
    seen = []
    Path.rename = lambda *a: die() if seen else seen.append(rename(*a))
else:
    extract = restoring.Store
    restoring.Store = lambda url: die() if ".restoring" in url else extract(url)
restoring.restore(Path(file), Settings(home=Path(home)))
"""


@pytest.mark.parametrize("place", ["writing", "moving"])
def test_nothing_starts_on_a_restore_that_was_killed(used, store, home, tmp_path, place):
    file, new = backed_up(store, home, tmp_path), tmp_path / "new"
    done = subprocess.run([sys.executable, "-c", KILLED, place, file, new], check=False)
    assert done.returncode == -9
    assert bool(below(new) - {path for path in below(new) if path.startswith(".restoring")}) == (
        place == "moving"
    )

    with pytest.raises(SettingsError, match="was ended before it was through"):
        homes.prepare(new)
    for command in (["serve"], ["runner"], ["serve", "--only", "api"], ["gc"], ["token", "list"]):
        result = CliRunner().invoke(command_line, [*command], env={"NDSWEEP_HOME": str(new)})
        assert result.exit_code == 1, command
        assert result.stderr.count("\n") == 1
    assert not (new / "store.db").exists()
    if place == "writing":
        restoring.restore(file, Settings(home=new))
        homes.prepare(new)


def test_two_restores_to_one_home_do_not_meet(used, store, home, tmp_path):
    file, new = backed_up(store, home, tmp_path), tmp_path / "new"
    with restoring._room(new) as room:
        (room / "models").mkdir()
        with pytest.raises(BackupRefused, match="another restore writes to"):
            restoring.restore(file, Settings(home=new))
        assert (room / "models").exists()


# --- Commands and PostgreSQL ----------------------------------------------------------------------


def test_the_commands_say_what_they_did(used, store, home, tmp_path):
    file = tmp_path / "a.ndsweep"
    run = CliRunner().invoke
    written = run(command_line, ["backup", str(file)])
    checked = run(command_line, ["restore", str(file), "--check"])
    restored = run(command_line, ["restore", str(file), "--home", str(tmp_path / "new")])

    assert written.stdout.splitlines()[0].startswith("2 sweeps with 6 trials as of 20")
    assert written.stdout.splitlines()[-1].startswith(f"wrote {file}, ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert checked.stdout.splitlines()[-1] == f"{file} is whole"
    assert restored.stdout.splitlines()[-1].startswith(
        f"restored to {tmp_path}/new; `ndsweep serve`"
    )
    again = run(command_line, ["restore", str(file), "--home", str(tmp_path / "new")])
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "is not empty" in again.stderr
    file.write_text("foreign")
    assert run(command_line, ["restore", str(file), "--check"]).exit_code == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".a")] == []


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """Makes empty databases of one server."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = start_postgres(Path(folder) / "data")
        count = iter(range(9))

        def make():
            name = f"t{next(count)}"
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            address = server.get_uri().replace("/postgres?", f"/{name}?")
            return address.replace("postgresql://", "postgresql+psycopg://")

        yield make
        server.cleanup()


def test_postgresql_is_backed_up_copied_and_restored(postgres, used, store, home, tmp_path):
    first, second = postgres(), postgres()
    run = CliRunner().invoke
    store.close()

    copied = run(command_line, ["store", "copy", str(home / "store.db"), first])
    assert copied.exit_code == 0, copied.stderr
    assert copied.stdout.splitlines()[-1].endswith("rows; both stores are alike")
    assert [line.split()[:2] for line in copied.stdout.splitlines() if "trials" in line] == [
        ["trials", "6"]
    ]
    (home / "store.db").unlink()

    env = {"NDSWEEP_STORE_URL": first}
    assert run(command_line, ["backup", str(tmp_path / "a")], env=env).exit_code == 0
    there = Settings(home=tmp_path / "there", store_url=second)
    manifest = restoring.restore(tmp_path / "a", there)
    restoring.restore(tmp_path / "a", Settings(home=tmp_path / "here"))

    assert (manifest.database, manifest.sweeps, manifest.trials) == ("postgresql", 2, 6)
    assert not (tmp_path / "there" / "store.db").exists()
    found = []
    for url in (second, Settings(home=tmp_path / "here").database_url()):
        opened = Store(url)
        found.append([(sweep.id, sweep.trials) for sweep in opened.list_sweeps().items])
        opened.close()
    assert found[0] == found[1]
    assert len(found[0]) == 2
    with pytest.raises(BackupRefused, match=r"is not empty: it has 2 sweeps"):
        restoring.restore(tmp_path / "a", Settings(home=tmp_path / "x", store_url=second))


def test_a_copy_that_cannot_begin_is_one_line(store, home, tmp_path):
    run = CliRunner().invoke
    for source, target, why in (
        (str(home / "store.db"), "mysql://a/b", "TO: store url must start with"),
        (str(tmp_path / "none.db"), str(tmp_path / "b.db"), "there is no"),
        (str(home / "store.db"), str(home / "store.db"), "the same one twice"),
    ):
        result = run(command_line, ["store", "copy", source, target])
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert why in result.stderr
    assert {name for name in below(tmp_path) if "-" not in name} == {"home/store.db"}
