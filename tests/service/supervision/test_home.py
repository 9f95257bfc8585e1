"""The folder of a service is usable before anything starts in it."""

import os
import re
import socket
import subprocess
import sys
from collections import namedtuple

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.settings import Settings, SettingsError
from service.supervision import doctor, supervisor
from service.supervision import home as homes
from service.supervision.doctor import diagnose
from sweeps.driver.process import DriverSettings
from sweeps.store.store import Store

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr(homes.shutil, "disk_usage", lambda _: Usage(10**12, 10**12 - 4096, 4096))


def test_a_folder_on_a_full_disk_is_refused(full_disk, tmp_path):
    with pytest.raises(SettingsError, match=r"no space below .*: 0\.0 MB are free and 50 MB"):
        homes.prepare(tmp_path / "home")


def test_serve_on_a_full_disk_is_one_line_and_starts_nothing(full_disk, tmp_path):
    result = CliRunner().invoke(app, ["serve", "--home", str(tmp_path / "home")])

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "no space below" in result.stderr
    assert not (tmp_path / "home" / "store.db").exists()


@pytest.fixture
def _umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return oct(path.stat().st_mode & 0o777)


def umask():
    now = os.umask(0)
    os.umask(now)
    return oct(now)


@pytest.mark.usefixtures("_umask")
class TestPrivacy:
    """What a service keeps is its owner's: sweeps, logs, tokens of Ray, addresses."""

    def test_a_new_home_is_its_owners_alone(self, tmp_path):
        homes.prepare(tmp_path / "a" / "home")

        assert mode(tmp_path / "a" / "home") == "0o700"

    def test_whatever_is_made_in_it_is_too(self, tmp_path):
        home = tmp_path / "home"
        homes.prepare(home)
        homes.keep_private(home)
        store = Store(f"sqlite:///{home / 'store.db'}")
        store.migrate()
        homes.write_endpoints(home, homes.Endpoints(1, "http://a", "http://b"))
        with homes.locked(home):
            (home / "logs" / "a.log").write_text("a")
            (home / "checkpoints" / "b").mkdir()
            code = "open('c.log', 'w'); import os; os.mkdir('d')"
            subprocess.run([sys.executable, "-c", code], cwd=home / "logs", check=True)
            wide = [p for p in home.rglob("*") if p.stat().st_mode & 0o077 and p.parent != home]
            assert not wide
            files = [path for path in home.iterdir() if path.is_file()]
            assert {path.name for path in files} >= {"store.db", "endpoints.json", "serve.lock"}
            assert {mode(path) for path in files} == {"0o600"}
        store.close()

    def test_a_home_of_an_older_version_is_closed(self, tmp_path, caplog):
        home = tmp_path / "home"
        homes.prepare(home)
        (home / "store.db").write_bytes(b"")
        home.chmod(0o755)
        homes.keep_private(home)

        assert mode(home) == "0o700"
        assert "could be read by everybody" in caplog.text

    @pytest.mark.parametrize("kind", ["sticky", "with other things"])
    def test_a_folder_that_is_not_a_home_alone_stays_as_it_is(self, tmp_path, kind):
        home = tmp_path / "home"
        homes.prepare(home)
        if kind == "sticky":
            home.chmod(0o1777)
        else:
            (home / "somebody.txt").write_text("else")
            home.chmod(0o755)
        homes.keep_private(home)

        assert mode(home) in ("0o777", "0o755")
        assert umask() == "0o77"

    def test_a_home_for_a_group_stays_readable_for_it(self, tmp_path):
        home = tmp_path / "home"
        homes.prepare(home)
        home.chmod(0o750)
        homes.keep_private(home)

        assert (mode(home), umask()) == ("0o750", "0o27")


@pytest.mark.usefixtures("_umask")
class TestDoctorsFix:
    """What older versions and copies left open is found, and closed when that is asked."""

    @pytest.fixture
    def wide(self, tmp_path):
        """A home with files, and a link to a folder of somebody else."""
        home, other = tmp_path / "home", tmp_path / "other"
        homes.prepare(home)
        (home / "images" / "a").mkdir(parents=True)
        for name in ("store.db", "endpoints.json", "logs/a.log", "images/a/b.png"):
            (home / name).write_text("x")
        other.mkdir()
        (other / "file").write_text("x")
        (home / "checkpoints" / "link").symlink_to(other)
        return home

    def findings(self, home, **options):
        found = diagnose(Settings(home=home, data=home.parent), **options)
        return {one.what: one for one in found if one.what in ("home", "permissions")}

    def test_what_is_open_is_closed(self, wide):
        wide.chmod(0o755)
        before = self.findings(wide)
        after = self.findings(wide, fix=True)

        assert "everybody on this machine can look into" in before["home"].detail
        assert before["permissions"].level == "warning"
        assert "files and folders not closed" in before["permissions"].detail
        for finding in before.values():
            assert "`ndsweep doctor --fix` closes" in finding.detail
        assert "files and folders closed just now" in after["permissions"].detail
        assert {one.level for one in self.findings(wide).values()} == {"ok"}
        for path in (wide, *wide.rglob("*")):
            if not path.is_symlink():
                assert mode(path) == ("0o700" if path.is_dir() else "0o600")
        assert (mode(wide.parent / "other"), mode(wide.parent / "other" / "file")) == (
            "0o755",
            "0o644",
        )

    def test_a_group_that_was_let_in_stays(self, wide):
        wide.chmod(0o750)
        self.findings(wide, fix=True)

        assert mode(wide) == "0o750"
        assert mode(wide / "store.db") == "0o640"
        assert mode(wide / "images") == "0o750"

    def test_other_things_in_the_folder_are_left_alone(self, wide):
        (wide / "somebody.txt").write_text("else")
        wide.chmod(0o755)
        found = self.findings(wide, fix=True)

        assert "other things are in it too" in found["home"].detail
        assert (mode(wide), mode(wide / "somebody.txt")) == ("0o755", "0o644")
        assert mode(wide / "store.db") == "0o600"

    def test_the_command_closes_them(self, wide):
        run = CliRunner().invoke
        asked = ["doctor", "--home", str(wide)]

        assert "note  permissions: " in run(app, asked).stdout
        assert "ok  permissions: " in run(app, [*asked, "--fix"]).stdout
        assert f"ok  permissions: {wide} is closed to other users\n" in run(app, asked).stdout


def test_every_finding_says_what_to_do(tmp_path, monkeypatch, full_disk):
    """Where nothing is well: each line names a command, a setting or what to install."""
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    (tmp_path / "home").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        places = {"home": tmp_path / "home", "data": "/proc/none", "store_url": url}
        found = diagnose(Settings(port=port, **places))
    bad = {one.what: one.detail for one in found if one.level != "ok"}

    assert set(bad) >= {"packages", "bash", "home", "disk", "address", "store", "data sets", "gpu"}
    words = (
        "install|prepares digits|set NDSWEEP|free some|start the database|needs NVIDIA|"
        "choose another|doctor --fix"
    )
    for what, detail in bad.items():
        assert re.search(words, detail), (what, detail)


SECRET = "s3cret-of-the-database"


@pytest.mark.parametrize("part", ["api", "ray", "mlflow", "runner", "a driver"])
def test_no_secret_stands_in_a_command_line(tmp_path, part, monkeypatch):
    """Every user of a machine sees the command lines of all."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    url = f"postgresql+psycopg://ndsweep:{SECRET}@127.0.0.1:1/ndsweep"
    settings = Settings(home=tmp_path, store_url=url, token="another-" + SECRET)
    if part == "a driver":
        driver = DriverSettings(url, tmp_path)
        argv, environment = driver.command(), driver.environment()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            children, _ = supervisor.plan(settings, tmp_path, server, 5000)
        (child,) = [child for child in children if child.name == part]
        argv, environment = child.argv, child.env

    assert not [word for word in argv if SECRET in word]
    assert environment["NDSWEEP_STORE_URL"] == url


@pytest.mark.parametrize("module", ["sweeps.driver.runner", "sweeps.driver.driver"])
def test_a_process_without_a_store_says_where_to_name_it(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--home", "x"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "--store" in done.stderr
