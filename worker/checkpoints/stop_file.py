"""Requests from other processes to stop a run: a file beside its checkpoints. Imports no torch.

Ray can only stop a Tune function at its next report, which may be minutes away. A file is noticed
within ``_POLL_SECONDS`` and reaches every machine that can resume from the same folder.

``by`` names the requester if there may be several: a driver that lost its lease and stops its own
attempts must not stop those of its successor in the same folder.
"""

from pathlib import Path
from time import monotonic

_NAME = "stop"
#: Seconds between two looks of a run. Pause and cancel must end within a second.
_POLL_SECONDS = 0.2


def request_stop(checkpoint_dir: Path | str, by: str = "") -> None:
    """Ask the run that writes its checkpoints there to stop and write one."""
    path = _path(checkpoint_dir, by)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def withdraw_stop(checkpoint_dir: Path | str, by: str = "") -> None:
    """Remove the request, so that a run can resume from this folder."""
    _path(checkpoint_dir, by).unlink(missing_ok=True)


class StopFile:
    """Checks for the file a few times a second; after a stop request the answer stays True."""

    def __init__(self, checkpoint_dir: Path | str, by: str = "") -> None:
        self._path = _path(checkpoint_dir, by)
        self._next_look = 0.0
        self._is_requested = False

    def __call__(self) -> bool:
        if not self._is_requested and (now := monotonic()) >= self._next_look:
            self._next_look = now + _POLL_SECONDS
            self._is_requested = self._path.exists()
        return self._is_requested


def _path(checkpoint_dir: Path | str, by: str) -> Path:
    return Path(checkpoint_dir) / (f"{_NAME}-{by}" if by else _NAME)
