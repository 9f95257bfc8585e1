"""Keeps logs of processes short: a log that is long or old is moved aside, old ones are removed.

A process writes to the file that it was started with, whatever its name, so a log is copied and
then cut to nothing, as logrotate's ``copytruncate`` does. Every writer must append. What is written
between the last look at the copy and the cut, some microseconds, is lost.
"""

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)

#: Seconds between two looks.
PERIOD = 10.0
#: Beyond which a log is moved aside, in bytes, and how many of each are kept.
MOST_BYTES = 20_000_000
MOST_FILES = 7
_DAY = 86_400.0


class LogRotation:
    """Rotates some logs of a folder, of which it must be the only caretaker."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...],
        *,
        days: float,
        most_bytes: int = MOST_BYTES,
        most_files: int = MOST_FILES,
    ) -> None:
        """``names`` of logs without ``.log``. A log of more than a day is moved aside too.

        Of each, ``most_files`` older ones are kept (``NAME.log.1`` is the newest), for ``days``.
        """
        self._logs = [folder / f"{name}.log" for name in names]
        self._days = days
        self._most_bytes, self._most_files = most_bytes, most_files
        self._next_look = 0.0
        #: Of logs that were never moved aside: when they were last written to before that.
        self._seen: dict[Path, float] = {}

    def look_if_due(self) -> None:
        """Rotate what is due, at most every ``PERIOD`` seconds. What cannot be done waits."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + PERIOD
        self.look(time.time())

    def look(self, now: float) -> None:
        """Rotate what is due at ``now``, in seconds since 1970."""
        for path in self._logs:
            try:
                if self._is_due(path, now):
                    self._rotate(path)
                self._remove_old(path, now)
            except OSError as error:
                log.warning("%s is not rotated: %s", path.name, error.strerror or error)

    def _is_due(self, path: Path, now: float) -> bool:
        try:
            about = path.stat()
        except FileNotFoundError:
            return False
        # Begun when the one before was moved aside, or no later than it was written to at first.
        seen = self._seen.setdefault(path, about.st_mtime)
        began = _changed(_aside(path, 1)) or seen
        is_old = about.st_size > 0 and began < now - _DAY
        return is_old or about.st_size > self._most_bytes

    def _rotate(self, path: Path) -> None:
        for number in range(self._most_files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                _aside(path, number).replace(_aside(path, number + 1))
        with path.open("r+b") as source, _aside(path, 1).open("xb") as target:
            os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
            while True:
                shutil.copyfileobj(source, target)
                # Written meanwhile: once more, so that the cut comes right after the last byte.
                if source.tell() == os.fstat(source.fileno()).st_size:
                    break
            source.truncate(0)

    def _remove_old(self, path: Path, now: float) -> None:
        for number in range(1, self._most_files + 1):
            changed = _changed(_aside(path, number))
            if changed is not None and changed < now - self._days * _DAY:
                _aside(path, number).unlink(missing_ok=True)


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
