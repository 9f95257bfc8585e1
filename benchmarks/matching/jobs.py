"""One run to train, what its reports say, and the file that keeps it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lockstep import TrainedRun
from worker.report import Measurement, Report

#: Digits of a stored record: far below its noise.
_DIGITS = 6

#: Path of the run, folder of data sets, config and measurement as JSON, time to stop at.
Job = tuple[str, str, str, str | None, float | None]


def clock_for(device: str) -> Callable[[], float]:
    """Seconds that a run costs: on the one thread of a CPU without what neighbours take away."""
    return time.process_time if device == "cpu" else time.perf_counter


class SeenRun:
    """What the reports of a run have said so far."""

    def __init__(self, measurement: Measurement | None) -> None:
        self._every = measurement.every if measurement else 1
        self._series: dict[str, list[float]] = {}
        self._diverged: int | None = None
        self._probe: dict[str, Any] = {}
        self._metrics: dict[str, float] = {}

    def add(self, report: Report) -> None:
        """Take in the next report."""
        for name, piece in report.series.items():
            values = [float(f"{v:.{_DIGITS}g}") for v in piece.values]
            self._series.setdefault(name, []).extend(values)
        self._metrics, self._diverged = report.metrics, report.diverged_at_step
        self._probe = report.provenance.get("probe", self._probe)

    def trained(self, seconds: float) -> TrainedRun:
        """The run, which took ``seconds``."""
        return TrainedRun(
            series=self._series,
            every=self._every,
            metrics=self._metrics,
            probe=self._probe,
            seconds=seconds,
            diverged_at_step=self._diverged,
        )


def write_whole(path: str, what: dict[str, Any]) -> None:
    """A JSON file that is there whole or not at all."""
    temporary = Path(f"{path}.part")
    temporary.write_text(json.dumps(what), encoding="utf-8")
    temporary.replace(path)
