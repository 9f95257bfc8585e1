"""Small specs on digits, and a batch as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASE: dict[str, Any] = {
    "dataset": "digits",
    "recipe": "paper-wrn",
    "depth": 10,
    "widen_factor": 1.0,
    "batch_size": 32,
    "crop_pad": 1,
    "validation_fraction": 0.0,
    "test_evaluation": "curve",
    "steps": 6,
    "report_every": 2,
}


def spec(
    name: str = "tiny", optimizers: Sequence[str] = ("sgd",), **changes: Any
) -> dict[str, Any]:
    """Values of a grid over optimizers; ``base`` in changes is added to the base."""
    base = BASE | changes.pop("base", {})
    space = {"optimizer": {"kind": "choice", "values": list(optimizers)}}
    values = {"name": name, "base": base, "space": space, "sampler": "grid"}
    return values | {"objective": {"metric": "test_error"}} | changes


def write_spec(folder: Path, **values: Any) -> Path:
    """A spec file."""
    made = spec(**values)
    path = folder / f"{made['name']}.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def command(*arguments: object) -> list[str]:
    """The command line of a batch."""
    return [sys.executable, "-m", "sweeps.batch", *map(str, arguments)]


def start(*arguments: object) -> "subprocess.Popen[str]":
    """Start a batch that says every report."""
    return subprocess.Popen(
        command(*arguments, "--progress-seconds", 0),
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(*arguments: object) -> tuple[int, str, str]:
    """Run a batch to its end: exit code, table, progress."""
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=480)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return process.returncode, out, err
