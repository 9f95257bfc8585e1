"""Checkpoints, written atomically: a file is complete or does not exist.

One file each: 8 bytes of magic, the sha256 of the rest (32 bytes), then a torch archive that loads
with ``weights_only``. A file is written under a temporary name, fsynced and renamed. The previous
one stays, so that a file damaged later costs seconds, not the run. A damaged file is renamed when
it is found, so that the two files kept are always good.
"""

import contextlib
import hashlib
import io
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from worker.atomic_file import whole_file
from worker.errors import CheckpointError

_LOG = logging.getLogger(__name__)
_MAGIC = b"NDCKPT01"
_KEPT = 2
_TEMPORARY = ".checkpoint-"
_DAMAGED = ".damaged"


def save(folder: Path, step: int, state: dict[str, Any]) -> Path | None:
    """Write the checkpoint of ``step``.

    If the disk is full or unavailable, logs a warning and returns None: training continues and the
    last good checkpoint stays.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    path = folder / f"step-{step:010d}.ckpt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, _MAGIC + hashlib.sha256(payload).digest(), payload)
    except OSError as error:
        _LOG.warning(
            "checkpoint at step %d was not written to %s (%s); training continues without it",
            step,
            folder,
            error.strerror or error,
        )
        return None
    _remove(_newest_first(folder)[_KEPT:])
    return path


def load_newest(
    folder: Path, config_key: str, older_key: str | None = None
) -> dict[str, Any] | None:
    """Return the newest whole checkpoint of this config, or None if the folder has none.

    A checkpoint under ``older_key`` was written before checkpoints recorded their images; it is
    used, with a warning.

    Raises CheckpointError if there are checkpoints but none can be used: starting again silently
    would lose work.
    """
    _remove(folder.glob(f"{_TEMPORARY}*"))  # left by a process that was killed while writing
    paths = _newest_first(folder)
    damaged = []
    for path in paths:
        try:
            state = _read(path)
        except CheckpointError as error:
            _LOG.warning("skipping checkpoint %s: %s", path, error)
            damaged.append(path)
            continue
        except OSError as error:  # it may be readable again later
            _LOG.warning("skipping checkpoint %s: %s", path, error)
            continue
        if state["config_key"] not in (config_key, older_key):
            raise CheckpointError(
                f"{path} belongs to another config or other images (key {state['config_key']}, "
                f"this run's is {config_key}); give this run a folder of its own, or delete the "
                "checkpoints to start from step 0"
            )
        if state["config_key"] != config_key:
            _LOG.warning(
                "%s was written by an older version, which did not record the images; assuming "
                "that they are those of the current data set",
                path,
            )
        _set_aside(damaged)
        return state
    if paths:
        raise CheckpointError(
            f"none of the {len(paths)} checkpoints in {folder} is whole; delete them to start "
            "from step 0"
        )
    return None


def remove_all(folder: Path) -> None:
    """Delete the checkpoints of a finished run, and the folder if nothing else is in it."""
    for pattern in ("step-*.ckpt", f"step-*{_DAMAGED}", f"{_TEMPORARY}*"):
        _remove(folder.glob(pattern))
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _remove(paths: Iterable[Path]) -> None:
    """Delete files that only take space; if the disk refuses, log a warning and continue."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s was not deleted (%s)", path, error.strerror or error)


def _set_aside(damaged: list[Path]) -> None:
    """Rename damaged files, so that they do not count; if the disk refuses, they still count."""
    for path in damaged:
        with contextlib.suppress(OSError):
            path.rename(path.with_suffix(_DAMAGED))


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.ckpt"), reverse=True)


def _write(path: Path, header: bytes, payload: memoryview) -> None:
    with whole_file(path, prefix=_TEMPORARY) as file:
        file.write(header)
        file.write(payload)


def _read(path: Path) -> dict[str, Any]:
    data = memoryview(path.read_bytes())
    header, payload = data[:40], data[40:]
    if bytes(header[:8]) != _MAGIC or bytes(header[8:]) != hashlib.sha256(payload).digest():
        raise CheckpointError("its checksum is wrong, so it is truncated or damaged")
    try:
        state: dict[str, Any] = torch.load(
            io.BytesIO(payload), map_location="cpu", weights_only=True
        )
    except Exception as error:  # a whole file that this program did not write
        raise CheckpointError(f"it holds more than tensors and numbers ({type(error)})") from error
    return state
