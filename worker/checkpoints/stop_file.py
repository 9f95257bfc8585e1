"""How another process asks a run to stop: a file beside its checkpoints. Imports no torch.

Ray can only stop a Tune function at its next report, which may be minutes away. A file is seen
within ``_POLL_SECONDS`` and reaches every machine that can resume from the same folder.

``by`` names who asks, where several may: a driver that was cut off and stops what it started must
not stop what its successor goes on with in the same folder.
"""

from pathlib import Path
from time import monotonic

_NAME = "stop"
#: How often a run looks. Pause and cancel must end within a second.
_POLL_SECONDS = 0.2


def request_stop(checkpoint_dir: Path | str, by: str = "") -> None:
    """Ask the run that writes its checkpoints there to stop and write one."""
    path = _path(checkpoint_dir, by)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def withdraw_stop(checkpoint_dir: Path | str, by: str = "") -> None:
    """Let a run go on from there again."""
    _path(checkpoint_dir, by).unlink(missing_ok=True)


class StopFile:
    """Asks the disk at most a few times a second; once it said stop, it stays so."""

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
