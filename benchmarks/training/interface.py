"""What the interface of training functions costs the built-in training: the same run both ways.

In turn and in one process: ``worker.train`` called as it is, and ``trial_reports`` as workers call
it, with its journal of reports on the disk, its looks at the machine and its requests to stop. Both
keep checkpoints in folders of their own.
"""

import statistics
import tempfile
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.training.times import EPOCHS, synchronize
from worker import TrainConfig, train
from worker.report import Report
from worker.training.trial import trial_reports

#: Runs of each way, in turn, beside a first one of each that warms up.
ROUNDS = 5


def interface_row(config: TrainConfig, home: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds of a step both ways, and the mean ratio of the rounds with its standard error."""
    config = config.model_copy(update={"steps": None, "epochs": EPOCHS})
    found: dict[str, list[float]] = {"call": [], "interface": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(1 + rounds):
            # Whoever is second finds a warmer machine: they take turns at that as well.
            ways = ("call", "interface") if turn % 2 else ("interface", "call")
            for way in ways:
                where = Path(folder) / f"{way}-{turn}"
                reports = (
                    _call(config, home, where) if way == "call" else _trial(config, home, where)
                )
                seconds = _seconds_per_step(reports, config.device)
                if turn:
                    found[way].append(seconds)
    ratios = [b / a for a, b in zip(found["call"], found["interface"], strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    return {
        "optimizer": config.optimizer,
        "rounds": rounds,
        "call": statistics.median(found["call"]),
        "interface": statistics.median(found["interface"]),
        "ratio": statistics.fmean(ratios),
        "standard_error": error,
    }


def _call(config: TrainConfig, home: Path, folder: Path) -> Generator[Report, None, None]:
    return train(config, data_home=home, checkpoint_dir=folder)


def _trial(config: TrainConfig, home: Path, folder: Path) -> Generator[Report, None, None]:
    task = {
        "config": config.stored(),
        "device": config.device,
        "checkpoint_dir": str(folder),
        "data_home": str(home),
    }
    return trial_reports(task)


def _seconds_per_step(reports: Generator[Report, None, None], device: str) -> float:
    """Between the first report, which comes after the start, and the last before the end."""
    began, first, last, ended = 0.0, 0, 0, 0.0
    with closing(reports):
        for report in reports:
            if report.status != "running":
                break
            synchronize(device)
            last, ended = report.step, time.perf_counter()
            if not first:
                first, began = last, ended
    return (ended - began) / (last - first)


HEAD = """\
| network | optimizer | call, ms/step | interface, ms/step | ratio | standard error | rounds |
| --- | --- | ---: | ---: | ---: | ---: | ---: |"""


def interface_line(network: str, row: dict[str, Any]) -> str:
    """One measurement, in Markdown."""
    return (
        f"| {network} | {row['optimizer']} | {1e3 * row['call']:.3f} | "
        f"{1e3 * row['interface']:.3f} | {row['ratio']:.4f} | {row['standard_error']:.4f} | "
        f"{row['rounds']} |"
    )
