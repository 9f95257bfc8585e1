"""Reads the end of a trial's log without reading the rest, and lists its checkpoints as files."""

import codecs
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dashboards.sweep_pages.trial import CheckpointFile, LogEnd

log = logging.getLogger(__name__)

#: A line is rarely longer than 100 bytes; this much holds 10,000 of them.
MAX_BYTES = 1_000_000


#: Bytes that are read of a log at once while it is followed.
_PIECE = 65_536


def log_path(home: Path, sweep_id: str, number: int) -> Path:
    """Where a trial writes its log, on whichever node it runs: the home is shared.

    Both names come from the store, never from a request: they are parts of a path.
    """
    return home / "logs" / sweep_id / f"{number}.log"


def add_to_log(home: Path, sweep_id: str, number: int, text: str) -> None:
    """Append lines that an agent sent to a trial's log, unless they are its end already."""
    path, line = log_path(home, sweep_id, number), f"{text}\n"
    if tail(path, text.count("\n") + 1).text == line:
        return  # the answer to it was lost on its way
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:  # it has been told all the same
        log.warning("the log of trial %d of %s cannot be written: %s", number, sweep_id, error)


def trial_log(home: Path, sweep_id: str, number: int, lines: int = 200) -> LogEnd:
    """The last ``lines`` lines that a trial wrote; "" when it wrote none."""
    return tail(log_path(home, sweep_id, number), lines)


def tail(path: Path, lines: int) -> LogEnd:
    """The last ``lines`` lines of a text file; "" when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - MAX_BYTES)
            file.seek(start)
            data = file.read(MAX_BYTES)
    except FileNotFoundError:
        return LogEnd("", 0)
    text = data.decode("utf-8", errors="replace")
    return LogEnd("".join(text.splitlines(keepends=True)[-lines:]), start + len(data))


def pieces_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


class GrowingLog:
    """A log that is read while it is written, a bounded piece at a time."""

    def __init__(self, path: Path, offset: int) -> None:
        """``offset``: the byte before which nothing is read."""
        self._path, self.offset = path, offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> str:
        """Return the next piece; "" if nothing was added since, or if there is no file yet."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self.offset:
                    self.offset = 0  # another file of that name
                file.seek(self.offset)
                data = file.read(_PIECE)
        except FileNotFoundError:
            return ""
        self.offset += len(data)
        return self._decoder.decode(data)


def trial_checkpoints(home: Path, sweep_id: str, number: int) -> list[CheckpointFile]:
    """The files that a trial can go on from, newest first; [] when it has none here.

    Both names come from the store, never from a request: they are parts of a path.
    """
    found = []
    for path in (home / "checkpoints" / sweep_id / str(number)).glob("*.ckpt"):
        try:
            about = path.stat()
        except FileNotFoundError:
            # Replaced by a newer one between the two looks.
            continue
        step = re.search(r"(\d+)", path.stem)
        at = datetime.fromtimestamp(about.st_mtime, UTC)
        found.append(CheckpointFile(path.name, int(step[1]) if step else None, about.st_size, at))
    return sorted(found, key=lambda file: (file.at, file.name), reverse=True)
