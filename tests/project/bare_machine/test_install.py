"""``make install`` as locked: which Python, which packages, from where; what the lock promises."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
#: Versions of Python that the lock serves, as a marker knows them.
SERVED = ("3.11", "3.12", "3.13")
#: Variables by which a make reaches the makes below it.
OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
#: A Python that only notes what it was asked for; its pip does too.
STAND_IN = """#!/bin/sh
[ "$1" = -c ] && exit {code}
mkdir -p .venv/bin
printf '#!/bin/sh\\necho "$@" >>asked\\ncp .venv/asked.lock asked.lock\\n' >.venv/bin/pip
chmod +x .venv/bin/pip
"""


def blocks(text: str) -> dict[str, str]:
    """Name -> its requirement with all hashes, of a lock."""
    found = re.findall(r"^([a-z0-9.-]+)==.*(?:\n    .*)*", text, re.MULTILINE)
    whole = re.findall(r"^[a-z0-9.-]+==.*(?:\n    .*)*", text, re.MULTILINE)
    return dict(zip(found, whole, strict=True))


LOCKED = blocks((ROOT / "requirements.lock").read_text())


def requirement(name: str) -> Requirement:
    return Requirement(LOCKED[name].partition("\\")[0])


def make_install(
    folder: Path, *arguments: str, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    python = folder / "python"
    python.write_text(STAND_IN.format(code=code))
    python.chmod(0o755)
    return subprocess.run(
        ["make", "install", f"PYTHON={python}", *arguments],
        cwd=folder,
        # Without what a make around the tests has set: a make within another says where it is.
        env={name: value for name, value in os.environ.items() if name not in OF_MAKE},
        capture_output=True,
        text=True,
    )


class TestMakeInstall:
    def test_what_is_locked_is_installed_with_its_hashes_then_the_project(self, tmp_path):
        done = make_install(tmp_path)

        assert done.returncode == 0, done.stderr
        locked, project = (tmp_path / "asked").read_text().splitlines()
        assert locked.endswith("--require-hashes -r .venv/asked.lock")
        assert project.endswith("--no-deps --no-build-isolation -e .")
        assert (tmp_path / "asked.lock").read_text() == (ROOT / "requirements.lock").read_text()
        assert "7 GB" in done.stdout

    def test_with_an_index_of_cpu_builds_nothing_of_cuda_is(self, tmp_path):
        done = make_install(tmp_path, "TORCH_INDEX=https://example.org/cpu")

        assert done.returncode == 0, done.stderr
        locked, torch, _ = (tmp_path / "asked").read_text().splitlines()
        assert locked.endswith("--require-hashes -r .venv/asked.lock")
        pins = [str(requirement(name)) for name in ("torch", "torchvision")]
        assert torch.endswith(" ".join(["--no-deps --index-url https://example.org/cpu", *pins]))
        kept = blocks((tmp_path / "asked.lock").read_text())
        left_out = sorted(LOCKED.keys() - kept.keys())
        assert [name for name in left_out if not re.match("cuda-|nvidia-", name)] == [
            "torch",
            "torchvision",
        ]
        assert [name for name in kept if re.search("cuda|nvidia", name)] == []
        # Whole blocks: no hash is left behind by what went.
        assert all(kept[name] == LOCKED[name] for name in kept)

    def test_another_python_is_refused_in_one_sentence(self, tmp_path):
        done = make_install(tmp_path, code=1)

        assert done.returncode == 2
        assert done.stdout == (
            "This needs Python 3.11, 3.12 or 3.13 with its venv module (python3-venv of Debian "
            f"and Ubuntu), which {tmp_path}/python is not, and PYTHON=/path/to/one names it.\n"
        )
        assert not (tmp_path / ".venv").exists()

    def test_no_python_at_all_too(self, tmp_path):
        done = make_install(tmp_path, "PYTHON=")

        assert done.returncode == 2
        assert done.stdout.startswith("This needs Python 3.11, 3.12 or 3.13 ")

    def test_the_first_python_that_runs_is_taken(self, tmp_path):
        """Of some tools every version has a command, and only some of them run."""
        for name in ("Makefile", "requirements.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, tmp_path)
        for name, code in (("python3.11", 127), ("python3.12", 0), ("python3", 1)):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(STAND_IN.format(code=code))
            path.chmod(0o755)

        told = subprocess.run(
            ["make", "-n", "install"],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )

        assert "python3.12 -m venv .venv\n" in told.stdout


class TestTheLock:
    @pytest.mark.parametrize("name", LOCKED)
    def test_everything_has_one_version_and_hashes(self, name):
        assert re.fullmatch(r"==[^*,]+", str(requirement(name).specifier))
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", LOCKED[name])

    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    @pytest.mark.parametrize("python", SERVED)
    def test_it_serves_every_python_alike(self, python, machine):
        about = {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "platform_machine": machine,
            "sys_platform": "linux",
            "os_name": "posix",
            "platform_system": "Linux",
        }

        found = {name for name in LOCKED if _is_for(requirement(name), about)}

        only_elsewhere = {"colorama", "httpx2-jsfetch", "pywin32", "tzdata", "waitress"}
        assert LOCKED.keys() - found == only_elsewhere

    def test_what_the_project_asks_for_is_in_it(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        asked = map(Requirement, project["dependencies"] + project["optional-dependencies"]["dev"])

        wrong = [
            str(one)
            for one in asked
            if canonicalize_name(one.name) not in LOCKED
            or not one.specifier.contains(
                str(requirement(canonicalize_name(one.name)).specifier).removeprefix("==")
            )
        ]

        assert wrong == []

    def test_what_is_installed_here_is_what_it_says(self):
        installed: dict[str, str] = {}
        for one in metadata.distributions():
            # The first counts, as for an import: setuptools puts copies of others behind.
            installed.setdefault(canonicalize_name(one.name), one.version)

        wrong = {
            name: (installed[name], str(requirement(name).specifier))
            for name in LOCKED.keys() & installed.keys()
            # A CPU build of torch has a word of its own behind the number.
            if installed[name].partition("+")[0] != str(requirement(name).specifier)[2:]
        }

        assert wrong == {}

    def test_the_classifiers_name_the_pythons_that_it_serves(self):
        for place in (ROOT, ROOT / "ndadam"):
            project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
            named = [one for one in project["classifiers"] if "Python :: 3." in one]

            assert named == [f"Programming Language :: Python :: {one}" for one in SERVED]
            assert project["requires-python"] == ">=3.11"

    def test_this_python_is_one_of_them(self):
        assert "{}.{}".format(*sys.version_info) in SERVED


def _is_for(one: Requirement, about: dict[str, str]) -> bool:
    return one.marker is None or one.marker.evaluate(about)
