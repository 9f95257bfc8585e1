"""What a machine may lack: a home folder, one that can be written to, and bash."""

import pwd

import pytest
from typer.testing import CliRunner

from service.cli import quickstart
from service.cli.app import app
from service.cli.quickstart import QuickstartError
from service.settings import Settings
from service.supervision.shell import require_bash

NO_HOME = (
    "HOME is not set and this user has no home folder; set NDSWEEP_DATA to a folder for the "
    "data sets"
)


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """A user that the machine does not know, in a container say, without HOME."""

    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "NDSWEEP_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path / "home"))


@pytest.fixture
def unwritable(monkeypatch, tmp_path):
    """A home folder in which nobody can make anything, root neither."""
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "ndsweep"
    monkeypatch.setenv("NDSWEEP_DATA", str(home))
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path / "home"))
    return home


@pytest.mark.parametrize(
    "command", ["quickstart --once", "data list", "data fetch digits", "train dataset=digits"]
)
def test_without_a_home_folder_one_line_says_what_to_set(homeless, command):
    result = CliRunner().invoke(app, command.split())

    assert result.exit_code in (1, 2)
    assert NO_HOME in result.stderr
    assert result.stderr.count("\n") == 1


def test_doctor_says_that_there_is_no_home_folder(homeless):
    result = CliRunner().invoke(app, ["doctor"])

    assert result.exit_code == 1
    assert f"error  data sets: {NO_HOME}" in result.stdout


def test_the_quickstart_says_where_it_cannot_write_and_what_to_set(unwritable):
    with pytest.raises(QuickstartError) as refused:
        quickstart.run(Settings(), once=True)

    assert str(refused.value) == (
        f"the digits cannot be written to {unwritable} (Not a directory); set NDSWEEP_DATA to a "
        "folder that you may write to"
    )


def test_so_does_fetching(unwritable):
    result = CliRunner().invoke(app, ["data", "fetch", "digits"])

    assert result.exit_code == 1
    assert "Not a directory" in result.stderr
    assert "NDSWEEP_DATA sets the folder of the data sets" in result.stderr


def test_doctor_says_that_no_data_set_can_be_written(unwritable):
    result = CliRunner().invoke(app, ["doctor"])

    assert result.exit_code == 1
    said = f"none, and none can be written to {unwritable}; set NDSWEEP_DATA to another folder"
    assert said in result.stdout


@pytest.mark.parametrize("command", ["quickstart --once", "serve", "serve --only ray"])
def test_without_bash_no_trial_waits_for_it(monkeypatch, tmp_path, command):
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NDSWEEP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    result = CliRunner().invoke(app, command.split())

    assert result.exit_code == 1
    said = "bash is not on PATH, and Ray starts its workers with it; install bash or complete PATH"
    assert said in result.stderr
    assert f"error  bash: {said}" in CliRunner().invoke(app, ["doctor"]).stdout


def test_a_cluster_elsewhere_needs_no_bash_here(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("RAY_ADDRESS", "ray.example:6379")

    require_bash()
