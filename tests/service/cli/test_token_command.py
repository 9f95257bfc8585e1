"""``ndsweep token``: made once, kept private, printed for people."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.cli.upkeep import create_token
from service.settings import SettingsError
from sweeps.store.store import Store

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


def test_the_first_token_is_made_in_the_store_of_this_machine(store: Store) -> None:
    made = runner.invoke(
        app, ["token", "create", "ada-laptop", "--owner", "ada", "--days", "30", "--trials", "100"]
    )

    assert made.exit_code == 0, made.output
    found = store.token_of_text(made.stdout.strip())
    assert found is not None
    assert (found.owner, found.scope, found.quotas.trials) == ("ada", "submit", 100)
    listed = runner.invoke(app, ["token", "list"]).stdout
    assert ("ada-laptop" in listed, "trials 100" in listed) == (True, True)
    assert made.stdout.strip()[-43:] not in listed
    ended = runner.invoke(app, ["token", "revoke", "ada-laptop"])
    assert ended.stdout == f"revoked ada-laptop ({found.id}) of ada\n"
    assert store.token_of_text(made.stdout.strip()) is None
    entries = store.audit_log().items
    assert [(one.action, one.token) for one in entries] == [
        ("token.revoke", "command line"),
        ("token.create", "command line"),
    ]


def test_a_token_is_made_on_a_home_that_no_service_has_run_on(home: Path) -> None:
    made = runner.invoke(app, ["token", "create", "root", "--scope", "admin"])

    assert made.exit_code == 0, made.output
    assert stat.S_IMODE((home / "store.db").stat().st_mode) == 0o600


def test_tokens_are_made_over_the_api_of_another_machine(
    live: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runner.invoke(app, ["token", "create", "root", "--scope", "admin", "--url", live])
    assert first.exit_code == 0, first.output
    monkeypatch.setenv("NDSWEEP_URL", live)
    refused = runner.invoke(app, ["token", "list"])
    monkeypatch.setenv("NDSWEEP_TOKEN", first.stdout.strip())

    second = runner.invoke(app, ["token", "create", "bob lab/2", "--scope", "read"])
    listed = runner.invoke(app, ["token", "list"]).stdout
    ended = runner.invoke(app, ["token", "revoke", "bob lab/2"])

    assert (refused.exit_code, "NDSWEEP_TOKEN" in refused.output) == (1, True)
    assert second.exit_code == 0, second.output
    assert "bob lab/2" in listed
    assert ended.exit_code == 0, ended.output
    assert [one.name for one in store.list_tokens().items] == ["root"]
    again = runner.invoke(app, ["token", "create", "root"])
    assert (again.exit_code, "no other token has" in again.output) == (1, True)
