"""The command line's refusals: one line each, with what is wrong and what to do."""

import contextlib
import socket
import sqlite3

import pytest
import yaml
from typer.testing import CliRunner

from service.cli.app import app
from service.client.client import ServiceRefused
from service.contract.outputs import ErrorOut
from tests.service.one_line import one_line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "no-such-file.yaml"], "no-such-file.yaml: No such file"),
        (["watch", "0123456789ab"], "there is no sweep"),
        (["cancel", "not an id"], "sweep_id"),
        (["list", "--state", "done"], "state"),
        (["match", "predict", "lr=-1"], "source.lr"),
        (["match", "predict", "optimizer=lion"], "source.optimizer"),
        (["match", "predict", "lr=[1"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_line(ndsweep, arguments, said):
    assert said in one_line(ndsweep(*arguments))


def test_a_refused_spec_is_one_line_with_its_field(ndsweep, tmp_path, spec):
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(spec | {"base": {"dataset": "made-up", "alpha_v": -1.0}}))

    assert "base.alpha_v" in one_line(ndsweep("submit", path))


def test_no_service_running_is_one_line():
    line = one_line(CliRunner().invoke(app, ["list", "--url", "http://127.0.0.1:9"]))

    assert "no service answers at http://127.0.0.1:9" in line


def test_a_port_in_use_that_was_asked_for_is_one_line(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        line = one_line(CliRunner().invoke(app, ["serve", "--port", str(port)]))

    assert f"port {port} on 127.0.0.1 is in use" in line


def test_an_open_address_without_a_token_is_one_line():
    assert "NDSWEEP_TOKEN" in one_line(CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"]))


def test_a_home_that_cannot_be_written_is_one_line():
    line = one_line(CliRunner().invoke(app, ["serve", "--home", "/proc/nothing"]))

    assert "cannot write to /proc/nothing" in line
    assert "NDSWEEP_HOME" in line


def test_a_setting_that_is_wrong_is_one_line(monkeypatch):
    monkeypatch.setenv("NDSWEEP_PORT", "eight thousand")

    assert "NDSWEEP_PORT" in one_line(CliRunner().invoke(app, ["list"]))


def test_a_store_that_no_part_could_open_is_one_line(monkeypatch):
    monkeypatch.setenv("NDSWEEP_STORE_URL", "postgres://somebody@db/store")

    for options in ([], ["--only", "runner"]):
        line = one_line(CliRunner().invoke(app, ["serve", *options]))

        assert "NDSWEEP_STORE_URL" in line
        assert "postgresql+psycopg://" in line


def test_a_store_of_a_newer_version_is_one_line_and_never_touched(ndsweep, home, monkeypatch):
    """Going back to an older version: it would write what the newer one cannot read."""
    monkeypatch.setenv("NDSWEEP_STORE_URL", f"sqlite:///{home / 'store.db'}")
    with contextlib.closing(sqlite3.connect(home / "store.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    for arguments in (["serve"], ["serve", "--only", "runner"], ["report", "paper"]):
        line = one_line(ndsweep(*arguments))

        assert "a newer version of ndsweep (its tables are at 9999, this version knows" in line
        assert "put back the backup" in line
    assert "error  store: the store was brought up to date by" in ndsweep("doctor").stdout


def test_a_token_that_no_request_can_carry_is_one_line_and_not_shown(monkeypatch):
    monkeypatch.setenv("NDSWEEP_TOKEN", "geh\u00e9im")

    line = one_line(CliRunner().invoke(app, ["list"]))

    assert "NDSWEEP_TOKEN must be one line of printable ASCII" in line
    assert "geh" not in line


def test_a_service_that_asks_for_a_token_is_one_line_that_says_where_to_put_it(monkeypatch):
    def refused(*arguments, **query):
        detail = "this service asks for a token"
        raise ServiceRefused(401, ErrorOut(error="Unauthorized", detail=detail, fields=[]))

    monkeypatch.setattr("service.client.Client.list_sweeps", refused)

    line = one_line(CliRunner().invoke(app, ["list", "--url", "http://127.0.0.1:9"]))
    assert line.startswith("ndsweep: this service asks for a token; ")
    assert "NDSWEEP_TOKEN or the file NDSWEEP_TOKEN_FILE" in line


def test_an_export_into_a_folder_is_refused_before_it_is_asked_for(ndsweep, trained, tmp_path):
    for folder in (tmp_path, "."):
        result = ndsweep("export", trained.id, "--out", folder)

        assert result.exit_code == 2
        assert "directory" in result.stderr


def test_an_mlflow_address_that_is_none_is_one_line(monkeypatch):
    monkeypatch.setenv("NDSWEEP_MLFLOW_URL", "notaurl")

    done = CliRunner().invoke(app, ["serve"])

    assert done.exit_code == 1
    assert done.stderr.startswith("ndsweep: NDSWEEP_MLFLOW_URL: ")
    assert "http://127.0.0.1:5000" in done.stderr
    assert done.stderr.count("\n") == 1
