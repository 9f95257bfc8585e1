"""The examples: which there are, what was added to them for ndsweep, and how they are installed."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples"
#: Ends a line that an example has for ndsweep.
MARK = "# ndsweep"


@dataclass(frozen=True)
class Example:
    """One folder of ``examples/``."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_package(self) -> bool:
        """Whether it is installed; the others are run by agents."""
        return (self.folder / "pyproject.toml").exists()

    @property
    def has_training(self) -> bool:
        """Whether it registers a training; others register parts of the built-in one."""
        return self.is_package and "ndsweep.training" in self.project["entry-points"]

    @property
    def project(self) -> dict[str, Any]:
        project: dict[str, Any] = tomllib.loads(self.read("pyproject.toml"))["project"]
        return project

    @property
    def program(self) -> Path:
        """Its module, or its script."""
        pattern = "*.py" if self.is_package else "*.sh"
        (found,) = self.folder.glob(pattern)
        return found

    def read(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def added(self) -> list[str]:
        """Lines of its program that stand there for ndsweep, without the mark."""
        lines = self.program.read_text("utf-8").splitlines()
        return [line.removesuffix(MARK).strip() for line in lines if line.endswith(MARK)]

    def missing(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        named = self.project["dependencies"] if self.is_package else []
        wanted = [re.split(r"[^A-Za-z0-9-]", one)[0] for one in named]
        modules = {"scikit-learn": "sklearn", "ndadam-sweeps": "ndsweep"}
        return [
            one
            for one in wanted
            if importlib.util.find_spec(modules.get(one, one.replace("-", "_"))) is None
        ]


EXAMPLES = [Example(path.parent) for path in sorted(FOLDER.glob("*/sweep.yaml"))]


def install(examples: Sequence[Example], target: Path, scratch: Path) -> None:
    """Install packages into a folder as pip does, offline.

    From copies below ``scratch``: a build leaves files beside its source.
    """
    copies = []
    for example in examples:
        copies.append(scratch / example.name)
        shutil.copytree(
            example.folder, copies[-1], ignore=shutil.ignore_patterns("build", "*.egg-info")
        )
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target)]
    subprocess.run([*command, *map(str, copies)], check=True, cwd=scratch)
