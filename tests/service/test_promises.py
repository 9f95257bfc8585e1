"""What this package promises about itself: light, and short where it matters."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import service
from service.cli.app import app

HEAVY = {"torch", "ray", "optuna", "mlflow", "scipy", "sklearn", "matplotlib", "pandas"}
PACKAGE = Path(service.__file__).parent
SEE = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def loaded_by(code):
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; {SEE}"], capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def test_the_api_process_loads_nothing_heavy(tmp_path):
    code = (
        "from service.api.app import create_app; from service.settings import Settings; "
        "from sweeps.store.store import Store; import service.api.app; "
        f"store = Store('sqlite:///{tmp_path}/store.db'); store.migrate(); "
        "create_app(store, Settings()).openapi()"
    )

    assert not loaded_by(code) & HEAVY


@pytest.mark.parametrize(
    "module", ["service.cli.app", "service.supervision.supervisor", "service.client"]
)
def test_the_command_the_supervisor_and_the_client_load_nothing_heavy(module):
    assert not loaded_by(f"import {module}") & HEAVY


def test_help_loads_no_web_framework_and_no_database():
    code = (
        "import sys; sys.argv = ['ndsweep', '--help']\n"
        "from service.cli.app import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "import os; sys.stdout.flush()"
    )
    names = subprocess.run(
        [sys.executable, "-c", f"{code}\n{SEE}"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]

    assert not set(names.split()) & {"fastapi", "sqlalchemy", "uvicorn", "httpx2", *HEAVY}


def test_create_app_fits_on_a_screen():
    tree = ast.parse((PACKAGE / "api" / "app.py").read_text())
    function = next(node for node in tree.body if getattr(node, "name", "") == "create_app")

    assert function.end_lineno - function.lineno < 40


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_every_file_says_what_it_is(path):
    text = path.read_text()

    if text:
        assert ast.get_docstring(ast.parse(text))


def test_every_command_has_a_sentence():
    for command in app.registered_commands:
        assert command.callback.__doc__
