"""Small specs on digits, and a batch as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweeps.batch.plan import PlannedRun
from sweeps.batch.results import RunResult
from tests.sweeps.batch.turns import PATIENCE

ROOT = Path(__file__).parents[3]
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


def failed_result(run: PlannedRun, cause: str) -> RunResult:
    """What an attempt that failed at once has left of a run."""
    return RunResult(
        config=run.config.stored(),
        config_key=run.config_key,
        seed=run.config.seed,
        specs=list(run.specs),
        state="failed",
        exit_cause=cause,
        step=0,
        num_steps=run.num_steps,
        metrics={},
        curves=[],
        attempts=[],
        started_at="2026-01-01T00:00:00.000Z",
        finished_at="2026-01-01T00:00:01.000Z",
        seconds=1.0,
        provenance={"card": "a card"},
    )


def command(*arguments: object) -> list[str]:
    """The command line of a batch."""
    return [sys.executable, "-m", "sweeps.batch", *map(str, arguments)]


@contextmanager
def started(*arguments: object) -> "Iterator[subprocess.Popen[str]]":
    """A batch that says every report; one that still runs after the block is killed."""
    with subprocess.Popen(
        command(*arguments, "--progress-seconds", 0),
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as batch:
        try:
            yield batch
        finally:
            batch.kill()  # its processes see that nobody is there any more


def outcome(batch: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, table and progress of a batch, once it has ended."""
    out, err = batch.communicate(timeout=PATIENCE)
    return batch.returncode, out, err


def finish(*arguments: object) -> tuple[int, str, str]:
    """Run a batch to its end: exit code, table, progress."""
    with started(*arguments) as batch:
        return outcome(batch)
