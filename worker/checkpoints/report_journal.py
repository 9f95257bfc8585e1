"""Reports of a run on disk, beside its checkpoints, until they are recorded.

The process that receives a run's reports may die before it records them, and the run then continues
from a later checkpoint: without this file its curves would have a gap. Imports no torch.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from worker.report import Report

_LOG = logging.getLogger(__name__)
_NAME = "reports.jsonl"


class ReportJournal:
    """Appends reports, a line of JSON each, and reads them back for the next receiver."""

    def __init__(self, checkpoint_dir: Path | str) -> None:
        self._path = Path(checkpoint_dir) / _NAME
        # Opened by the first report and kept: a training function may report often.
        self._file: int | None = None

    def append(self, report: Report) -> None:
        """Write a report to disk before it is passed on.

        If the disk is full or unavailable, logs a warning, as for a checkpoint: training continues.
        """
        try:
            if self._file is None:
                self._file = _opened(self._path)
            line = report.model_dump_json().encode() + b"\n"
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            self.close()
            _LOG.warning(
                "the report of step %d was not written to %s (%s); training continues without it",
                report.step,
                self._path,
                error.strerror or error,
            )

    def close(self) -> None:
        """Close the file; another report opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    __del__ = close

    def replay(self) -> Iterator[Report]:
        """Yield every report of earlier attempts, each metric of a step once, in order."""
        last, names = -1, frozenset[str]()
        for report in self._read():
            # A run that resumed from a checkpoint has reported some steps again.
            if report.step > last:
                names = frozenset(report.metrics)
            elif report.step == last and not names & report.metrics.keys():
                names |= report.metrics.keys()
            else:
                continue
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
                    # The process was killed while writing this line; the step is reported again.
                    continue


def _opened(path: Path) -> int:
    """Open a journal to append to, with a truncated last line ended, so that the next is apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    if (end := os.lseek(file, 0, os.SEEK_END)) and os.pread(file, 1, end - 1) != b"\n":
        os.write(file, b"\n")
    return file
