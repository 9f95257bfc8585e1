"""Checkpoints that a training function writes itself: folders, each whole or absent.

A folder is written under a temporary name, listed with the checksum of every file, synced and
renamed. The previous one stays; one that is found damaged is renamed, so that it does not count.
Imports no torch.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from worker.errors import CheckpointError

_LOG = logging.getLogger(__name__)
_KEPT = 2
_PREFIX, _TEMPORARY, _DAMAGED = "saved-", ".saving-", ".damaged"
_LIST = "checksums.json"
_CHUNK = 1 << 20


class SavedFolders:
    """The folders of one trial."""

    def __init__(self, checkpoint_dir: Path | str, config_key: str) -> None:
        self._root = Path(checkpoint_dir)
        self._config_key = config_key

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Have ``write`` fill a folder and keep it as the newest.

        What ``write`` raises, and OSError, leave the older folders as they were.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        temporary = self._root / f"{_TEMPORARY}{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            write(temporary)
            listed = {"config_key": self._config_key, "step": step, "files": _checksums(temporary)}
            with (temporary / _LIST).open("w", encoding="utf-8") as file:
                json.dump(listed, file)
                file.flush()
                os.fsync(file.fileno())
            path = self._root / f"{_PREFIX}{self._next_number():06d}"
            temporary.rename(path)
            _sync(self._root)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        for old in self._newest_first()[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def newest(self) -> Path | None:
        """Return the newest whole folder; None if there is none yet.

        Raises CheckpointError if there are folders but none is whole: to start again without a
        word would lose work.
        """
        for left in self._root.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)
        found = self._newest_first()
        for path in found:
            try:
                self._check(path)
            except (OSError, ValueError) as error:
                _LOG.warning("skipping checkpoint %s: %s", path, error)
                with contextlib.suppress(OSError):
                    path.rename(path.with_name(path.name + _DAMAGED))
                continue
            return path
        if found:
            raise CheckpointError(
                f"none of the {len(found)} checkpoints in {self._root} is whole; delete them to "
                "start from the beginning"
            )
        return None

    def step_of(self, path: Path) -> int:
        """Return the step at which a whole folder was saved."""
        return int(json.loads((path / _LIST).read_text("utf-8"))["step"])

    def _check(self, path: Path) -> None:
        listed = json.loads((path / _LIST).read_text("utf-8"))
        if listed["config_key"] != self._config_key:
            raise CheckpointError(
                f"{path} belongs to another config (key {listed['config_key']}, this run's is "
                f"{self._config_key}); delete it to start from the beginning"
            )
        if listed["files"] != _checksums(path):
            raise ValueError("its files are not those that were written")

    def _newest_first(self) -> list[Path]:
        found = (p for p in self._root.glob(f"{_PREFIX}*") if p.name[len(_PREFIX) :].isdigit())
        return sorted(found, reverse=True)

    def _next_number(self) -> int:
        newest = self._newest_first()
        return int(newest[0].name[len(_PREFIX) :]) + 1 if newest else 1


def _checksums(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file below a folder, by its path there; each is synced."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _LIST:
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                os.fsync(file.fileno())
            found[str(path.relative_to(folder))] = digest.hexdigest()
    return found


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
