"""The folder of a service is usable before anything starts in it."""

from collections import namedtuple

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.settings import SettingsError
from service.supervision import home as homes

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
