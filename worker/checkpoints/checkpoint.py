"""Checkpoints that are whole or not there.

One file each: 8 bytes of magic, the sha256 of the rest (32 bytes), then a torch archive that loads
with ``weights_only``. Written under a temporary name, fsynced, renamed; the one before stays until
the new one stands, and one more is kept so that a file damaged later costs seconds, not the run.
A damaged file is renamed when it is found, so that the two that are kept are always good ones.
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

    A disk that is full or gone is a warning, not an error: training goes on and the last good
    checkpoint stays. Then the answer is None.
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
            "checkpoint at step %d was not written to %s (%s); training goes on without it",
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
    """The newest whole checkpoint of this config, or None when the folder has none at all.

    One under ``older_key`` was written before checkpoints named their images; it is taken, with a
    warning.

    Raises CheckpointError when there are checkpoints and none can be used: starting again in
    silence would throw work away.
    """
    _remove(folder.glob(f"{_TEMPORARY}*"))  # of a process that was killed while it wrote
    paths = _newest_first(folder)
    damaged = []
    for path in paths:
        try:
            state = _read(path)
        except CheckpointError as error:
            _LOG.warning("%s is passed over: %s", path, error)
            damaged.append(path)
            continue
        except OSError as error:  # it may be readable again later
            _LOG.warning("%s is passed over: %s", path, error)
            continue
        if state["config_key"] not in (config_key, older_key):
            raise CheckpointError(
                f"{path} belongs to another config or other images (key {state['config_key']}, "
                f"this run's is {config_key}); give this run a folder of its own, or delete the "
                "checkpoints to start from step 0"
            )
        if state["config_key"] != config_key:
            _LOG.warning(
                "%s does not say on which images it was trained, as an older version wrote it; "
                "they are taken to be those of now",
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
    """Delete what only takes room: no reason to end a run where the disk refuses."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s was not deleted (%s)", path, error.strerror or error)


def _set_aside(damaged: list[Path]) -> None:
    """Take damaged files out of the count; with a disk that refuses, they only stay in it."""
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
