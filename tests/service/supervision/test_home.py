"""The folder of a service is usable before anything starts in it."""

import os
import socket
import subprocess
import sys
from collections import namedtuple

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.settings import Settings, SettingsError
from service.supervision import home as homes
from service.supervision import supervisor
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
