"""The package as people meet it: lazy names, torch alone, a wheel of its own."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import torch

import ndadam

FOLDER = Path(ndadam.__file__).parent
FILES = sorted(path for path in FOLDER.rglob("*.py") if "build" not in path.parts)


def python(code, *paths):
    """Run code in a fresh interpreter that finds ``paths`` first."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, paths)))
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )


def test_every_exported_name_loads_and_the_list_is_sorted():
    assert ndadam.__all__ == sorted(ndadam.__all__)
    for name in ndadam.__all__:
        value = getattr(ndadam, name)
        assert callable(value)
        assert value.__doc__


def test_unknown_names_raise_attribute_error():
    with pytest.raises(AttributeError, match="module 'ndadam' has no attribute 'Nothing'"):
        _ = ndadam.Nothing


def test_functions_are_not_hidden_by_the_files_they_live_in():
    importlib.import_module("ndadam.invariance.probe")
    importlib.import_module("ndadam.optimizer.param_groups")

    from ndadam import param_groups, probe

    assert callable(probe)
    assert callable(param_groups)
    assert set(ndadam.__all__) <= set(dir(ndadam))


def test_importing_the_package_and_its_theory_loads_no_torch():
    code = (
        "import sys, ndadam; ndadam.theory; ndadam.statistics; ndadam.matching;"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    result = python(code, FOLDER.parent)

    assert result.returncode == 0, result.stderr


def imported(path):
    """Top-level names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path.name}"
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_import_torch_triton_and_the_standard_library_only(path):
    allowed = {"torch", "triton", "ndadam", *sys.stdlib_module_names}

    assert set(imported(path)) <= allowed


MAKERS = {"arange", "empty", "eye", "full", "linspace", "ones", "tensor", "zeros"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_the_library_makes_names_its_device(path):
    """Else ``torch.set_default_device`` decides, which only a new module may ask."""
    silent = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in {("torch", maker) for maker in MAKERS}
        and "device" not in {keyword.arg for keyword in node.keywords}
    ]
    lines = path.read_text().splitlines()

    assert [n for n in silent if "self.register_buffer" not in lines[n - 1]] == []


def test_public_classes_and_functions_have_docstrings():
    missing = [
        f"{path.name}: {node.name}"
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]

    assert missing == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the folder without build isolation or an index."""
    folder = tmp_path_factory.mktemp("source") / "ndadam"
    shutil.copytree(
        FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    )
    earlier = folder / "build" / "lib" / "ndadam"
    earlier.mkdir(parents=True)
    (earlier / "deleted.py").write_text("left by an earlier build of a file that is gone\n")
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(out)]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(folder)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("ndadam-*.whl")
    return path


def test_the_wheel_holds_the_whole_library_and_needs_torch_only(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = [name for name in names if name.endswith("METADATA")]
        text = archive.read(described).decode()

    expected = {f"ndadam/{path.relative_to(FOLDER).as_posix()}" for path in FILES} | {
        "ndadam/py.typed"
    }
    assert {name for name in names if not name.startswith("ndadam-")} == expected
    needs = [line for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert needs == ["Requires-Dist: torch>=2.11"]


def test_the_wheel_carries_its_licence_and_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (licence,) = [name for name in names if name.endswith("/LICENSE")]
        (described,) = [name for name in names if name.endswith("METADATA")]
        text = archive.read(described).decode()
        carried = archive.read(licence).decode()

    assert carried == (FOLDER.parent / "LICENSE").read_text()
    assert text.endswith((FOLDER / "README.md").read_text())
    assert "License-Expression: Apache-2.0" in text


def test_the_readme_of_the_wheel_runs_as_it_is_printed():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(36, 2)
    )
    text = (FOLDER / "README.md").read_text()
    names = {"torch": torch, "ndadam": ndadam, "model": model}

    def train():
        model(torch.randn(2, 3, 5, 5)).logsumexp(1).mean().backward()
        names["optimizer"].step()

    names["train"] = train
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(re.sub(r"(?m)^\.\.\. ", "train() ", block), names)

    assert isinstance(names["optimizer"], ndadam.NDAdam)
    assert (
        len(names["record"].effective_lr) == len(names["record"].layers["conv1"].effective_lr) == 1
    )
    for name in re.findall(r"`([A-Za-z_]+)`", text.partition("|---|---|")[2].partition("\n\n")[0]):
        assert getattr(ndadam, name)


def link_torch_alone(folder):
    """Make ``folder`` a place where torch and what it requires can be imported, nothing else."""
    waiting, seen = ["torch"], set()
    while waiting:
        name = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # required on other machines only
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
        seen.add(name)
        needs = [r for r in distribution.requires or [] if "extra ==" not in r]
        waiting += {re.match(r"[\w.-]+", need).group() for need in needs} - seen


def test_the_wheel_installs_and_works_where_nothing_but_torch_is(wheel, tmp_path):
    """In a fresh environment that sees torch, and what torch requires, in another folder."""
    links, fresh = tmp_path / "links", tmp_path / "fresh"
    links.mkdir()
    link_torch_alone(links)
    venv.create(fresh, with_pip=False)
    python_there = fresh / "bin" / "python"
    paths = {"base": fresh, "platbase": fresh}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    # Not the links themselves: what an installer writes there would go through them.
    (site / "torch_alone.pth").write_text(f"{links}\n")
    options = ["--no-index", "--no-deps", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python_there, "install", *options, wheel]
    installed = subprocess.run(pip, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert (site / "ndadam" / "__init__.py").is_file()
    code = f"""
import importlib.metadata, importlib.util
import ndadam, torch
assert ndadam.__file__.startswith({str(site)!r}), ndadam.__file__
assert importlib.metadata.version("ndadam")
assert importlib.util.find_spec("pydantic") is None
for name in ndadam.__all__:
    getattr(ndadam, name)
model = ndadam.WideResNet(10, 1, 10)
optimizer = ndadam.NDAdam(ndadam.param_groups(model))
dynamics = ndadam.EffectiveLR(model, optimizer)
torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()
optimizer.step()
assert len(dynamics.drain().effective_lr) == 1
"""

    # -I: nothing of this environment and of the folder it runs in.
    result = subprocess.run(
        [python_there, "-I", "-c", code], cwd="/", capture_output=True, text=True
    )

    assert result.returncode == 0, result.stderr
