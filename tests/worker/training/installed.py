"""Packages with training functions, installed into a temporary folder on the path."""

import contextlib
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from worker.config import parts
from worker.config import training as trainings
from worker.config.registry import registrations

#: A descent on a parabola: one report a step, a checkpoint when due.
DESCENT = """
    from dataclasses import dataclass
    from typing import Annotated
    from annotated_types import Gt
    import ndsweep

    @dataclass(frozen=True)
    class Config:
        rate: Annotated[float, Gt(0)] = 0.1
        steps: int = 20

    @ndsweep.training(
        metrics={
            "loss": ndsweep.Metric("minimize", unit="mm"),
            "test_loss": ndsweep.Metric("minimize", test=True),
        }
    )
    def train(config: Config, run: ndsweep.Run) -> None:
        run.num_steps = config.steps
        folder, start, x = run.restore(), 0, 1.0 + run.seed
        if folder is not None:
            start, x = (float(word) for word in (folder / "x").read_text().split())
        for step in range(int(start) + 1, config.steps + 1):
            x -= config.rate * 2 * x
            run.report(step=step, metrics={"loss": x * x})
            run.checkpoint(lambda folder: (folder / "x").write_text(f"{step} {x!r}"))
"""


def write_package(
    folder: Path,
    source: str = DESCENT,
    *,
    package: str = "my-package",
    version: str = "1.2",
    name: str = "mine",
    module: str = "my_module",
    value: str = "",
    registers: Mapping[str, str] | None = None,
) -> Path:
    """Write a distribution with one module, as pip would; return ``folder``.

    It has one entry point, or those that ``registers`` names: "networks/name" -> function.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    entries = registers or {f"training/{name}": "train"}
    entry = "".join(
        f"[ndsweep.{key.partition('/')[0]}]\n"
        f"{key.partition('/')[2]} = {value or f'{module}:{function}'}\n"
        for key, function in entries.items()
    )
    (info / "entry_points.txt").write_text(entry)
    return folder


@contextlib.contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Make packages importable meanwhile, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*map(str, folders), *sys.path])
        before = set(sys.modules)
        _forget()
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None) or ""
                if any(file.startswith(str(folder)) for folder in folders):
                    del sys.modules[name]
    _forget()


def _forget() -> None:
    registrations.cache_clear()
    trainings._loaded.clear()
    parts._loaded.clear()
