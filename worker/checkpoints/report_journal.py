"""Reports of a run on disk, beside its checkpoints, until somebody has recorded them.

Who listens to a run may die with reports in hand that nothing has recorded, and the run then goes
on from a checkpoint behind them: without this file its curves would have a gap. Imports no torch.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from worker.report import Report

_LOG = logging.getLogger(__name__)
_NAME = "reports.jsonl"


class ReportJournal:
    """Appends reports, a line of JSON each, and reads them back for whoever listens next."""

    def __init__(self, checkpoint_dir: Path | str) -> None:
        self._path = Path(checkpoint_dir) / _NAME
        self._is_checked = False

    def append(self, report: Report) -> None:
        """Write a report down, before it is handed on.

        A disk that is full or gone is a warning, as it is for a checkpoint: training goes on.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                if not self._is_checked:
                    _end_torn_line(file)
                file.write(report.model_dump_json().encode() + b"\n")
            self._is_checked = True
        except OSError as error:
            self._is_checked = False
            _LOG.warning(
                "the report of step %d was not written to %s (%s); training goes on without it",
                report.step,
                self._path,
                error.strerror or error,
            )

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
        with self._path.open(encoding="utf-8", errors="replace") as file:
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
