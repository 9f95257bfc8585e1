"""Stores in folders of any name."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from service.settings import Settings
from service.supervision.doctor import diagnose
from service.supervision.supervisor import mlflow_command
from sweeps.store.database.sqlite_file import sqlite_path, sqlite_url
from sweeps.store.store import Store

#: Names that a URL, a shell, a template, a configuration file or a glob would read otherwise.
NAMES = [
    *("pct%20x", "pct%41", "100%", "%", "what?x=1", "hash#a", "at@b", "co:lon", "sp ace", "plus+"),
    *("üñ", "back\\slash", "quo'te", 'dou"ble', "amp&y=2", "semi;", "line\nend", "[br]", "{a}"),
    *("$HOME", "~t", "*st", "a=b", "%(here)s", "-dash", "${x}", "sqlite:"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_home_of_any_name_holds_its_store(name: str, tmp_path: Path) -> None:
    home = tmp_path / name
    home.mkdir()
    url = Settings(home=home).database_url()

    store = Store(url)
    store.migrate()
    store.close()

    assert (home / "store.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert sqlite_path(url) == home / "store.db"


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1))
def test_a_path_survives_its_url(name: str) -> None:
    path = Path("/home") / name / "store.db"

    url = sqlite_url(path)

    assert sqlite_path(url) == path
    assert sa.make_url(url).database == str(path)
    assert not sa.make_url(url).query


@pytest.mark.parametrize("name", NAMES)
def test_mlflow_keeps_its_files_in_a_home_of_any_name(name: str, tmp_path: Path) -> None:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.store.db.utils import _make_parent_dirs_if_sqlite

    folder = tmp_path / name / "mlflow"
    command = mlflow_command(tmp_path / name, "127.0.0.1", 5000)
    options = dict(zip(command[4::2], command[5::2], strict=True))

    url = options["--backend-store-uri"]
    _make_parent_dirs_if_sqlite(url)
    found = get_artifact_repository(options["--artifacts-destination"])

    assert sa.make_url(url).database == str(folder / "mlflow.db")
    assert Path(found.artifact_dir) == folder / "artifacts"
    assert {path.name for path in tmp_path.iterdir()} <= {name}


@pytest.mark.parametrize("url", ["postgresql+psycopg://user:p%40ss@host/db", "sqlite://", ""])
def test_other_databases_are_no_file(url: str) -> None:
    assert sqlite_path(url) is None


@pytest.mark.parametrize(
    "password", ["p@ss", "co:lon", "sla/sh", "per%cent", "ha#sh", "qu?ery", "%41"]
)
def test_a_password_of_any_characters_reaches_the_database_as_it_is(password: str) -> None:
    url = sa.URL.create("postgresql+psycopg", "user", password, "host", 5432, "db")

    store = Store(url.render_as_string(hide_password=False))

    assert store._engine.url.password == password
    store.close()


@pytest.mark.parametrize("name", ["pct%20x", "what?x=1"])
def test_doctor_finds_the_store_of_a_home_of_any_name(name: str, tmp_path: Path) -> None:
    home = tmp_path / name
    home.mkdir()
    Store(Settings(home=home).database_url()).migrate()

    found = {finding.what: finding for finding in diagnose(Settings(home=home))}

    assert (found["store"].level, found["store"].detail) == ("ok", "answers")
