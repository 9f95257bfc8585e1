"""What the repository promises about itself."""

import ast
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("ndadam", "worker", "sweeps", "dashboards", "service", "ndsweep")
MOST_LINES = 600
#: File -> why it is longer.
LONGER: dict[str, str] = {}
#: Entries of a folder of Python: modules, __init__.py, and folders with Python in them.
MOST_ENTRIES = 15
#: Folder -> why it holds more.
FULLER: dict[str, str] = {}

_MADE = {"build", "dist", "node_modules", "__pycache__"}
_MEANINGLESS = {"utils", "util", "common", "helpers", "helper", "misc", "core", "base"}
#: Folders of somebody's own machine, put together so that this file does not name them.
_OWN_FOLDERS = re.compile(r"(?<![\w.>}*-])/(?:" + "|".join(("work", "root", "Users")) + ")/")


def files() -> Iterator[Path]:
    """Every file that belongs to the project, none that was made from it."""
    found = []
    # What is left out is not looked into: an environment is large, and caches come and go.
    for folder, inside, names in os.walk(ROOT):
        inside[:] = [name for name in inside if not _is_left_out(name)]
        found += [Path(folder, name) for name in names if not _is_left_out(name)]
    yield from sorted(found)


def _is_left_out(name: str) -> bool:
    hidden = name.startswith(".") and name not in (".ci", ".github")
    return hidden or name in _MADE or name.endswith(".egg-info")


FILES = list(files())
SOURCES = [path for path in FILES if path.suffix == ".py"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_files_are_found():
    assert len(SOURCES) > 100
    assert {"README.md", "Makefile", "docs/api.md"} <= {name_of(path) for path in FILES}


def test_no_file_has_a_name_that_says_nothing():
    assert [name_of(path) for path in SOURCES if path.stem in _MEANINGLESS] == []


def test_files_are_short_or_say_why_not():
    long = {
        name_of(path)
        for path in SOURCES
        if "tests" not in path.relative_to(ROOT).parts
        and len(path.read_text("utf-8").splitlines()) > MOST_LINES
    }

    assert long == set(LONGER)
    assert all(LONGER.values())


def test_a_folder_of_python_can_be_seen_at_a_glance():
    entries: dict[str, set[str]] = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT).parts
        for depth in range(1, len(parts)):
            entries.setdefault("/".join(parts[:depth]), set()).add(parts[depth])

    assert {name for name, inside in entries.items() if len(inside) > MOST_ENTRIES} == set(FULLER)


def test_no_file_names_a_folder_of_a_developers_machine():
    found = []
    for path in FILES:
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # an image
        found += [f"{name_of(path)}: {text[m.start() : m.end() + 20]}" for m in find(text)]

    assert found == []


def find(text: str) -> list[re.Match[str]]:
    return list(_OWN_FOLDERS.finditer(text))


def test_such_a_folder_would_be_noticed():
    assert find("see /" + "work/main/README.md")
    assert find('"/' + 'root/.cache"')
    assert not find("docs/" + "work/plan.md")


def modules_with_all() -> Iterator[str]:
    for path in SOURCES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] not in PACKAGES:
            continue
        body = ast.parse(path.read_text("utf-8")).body
        targets = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
        targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            yield ".".join(parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", list(modules_with_all()))
def test_every_exported_name_exists_once(name):
    module = importlib.import_module(name)

    assert [n for n in module.__all__ if getattr(module, n, None) is None] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_ndadam_and_worker_export_names():
    assert {"ndadam", "worker"} <= set(modules_with_all())


def test_decision_records_are_numbered_without_gaps_and_listed():
    folder = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text("utf-8")

    assert [int(name[:4]) for name in records] == list(range(1, len(records) + 1))
    for name in records:
        heading = (folder / name).read_text("utf-8").partition("\n")[0]
        title = heading.removeprefix(f"# {name[:4]}: ")
        assert f"| [{name[:4]}]({name}) | {title[:1].upper()}{title[1:]} |" in index


def test_the_changelog_has_a_place_for_what_is_not_released():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")

    assert re.search(r"^## \[?Unreleased\]?$", text, re.MULTILINE)
