"""Reports of a run on disk, beside its checkpoints, until somebody has recorded them.

Who listens to a run may die with reports in hand that nothing has recorded, and the run then goes
on from a checkpoint behind them: without this file its curves would have a gap. Imports no torch.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from worker.measurement import Report

_NAME = "reports.jsonl"


class ReportJournal:
    """Appends reports, a line of JSON each, and reads them back for whoever listens next."""

    def __init__(self, checkpoint_dir: Path | str) -> None:
        self._path = Path(checkpoint_dir) / _NAME
        self._is_checked = False

    def append(self, report: Report) -> None:
        """Write a report down, before it is handed on."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab+") as file:
            if not self._is_checked:
                _end_torn_line(file)
                self._is_checked = True
            file.write(report.model_dump_json().encode() + b"\n")

    def replay(self) -> Iterator[Report]:
        """Yield every report of the attempts before, each step once, in order."""
        last = 0
        for report in self._read():
            # A run that went on from a checkpoint has reported some steps again.
            if report.step > last:
                yield report
                last = report.step

    def _read(self) -> Iterator[Report]:
        if not self._path.exists():
            return
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    yield Report.model_validate_json(line)
                except ValidationError:
                    # Killed while it wrote this line; the step comes again.
                    continue


def _end_torn_line(file: BinaryIO) -> None:
    """Keep what follows a line that was cut off apart from it."""
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
