"""``ndsweep token``: made once, kept private, printed for people."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.cli.upkeep import create_token
from service.settings import SettingsError

runner = CliRunner()


def test_a_token_is_made_once_and_only_its_owner_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state" / "token"
    monkeypatch.setenv("NDSWEEP_TOKEN_FILE", str(path))

    first, second = (runner.invoke(app, ["token", "--create"]) for _ in range(2))

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout == second.stdout == path.read_text()
    assert len(first.stdout.strip()) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["token"]


def test_parts_that_start_together_see_one_token(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def make(_: int) -> str:
        if not path.exists():
            create_token(path)
        return path.read_text()

    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(make, range(8)))

    assert len(tokens) == 1


def test_without_a_setting_it_says_what_to_set() -> None:
    refused = runner.invoke(app, ["token"])

    assert refused.exit_code != 0
    assert "NDSWEEP_TOKEN_FILE" in refused.output


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingsError, match=r"cannot write the token to .*file/token"):
        create_token(tmp_path / "file" / "token")
