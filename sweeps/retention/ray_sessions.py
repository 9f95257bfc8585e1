"""What the local Ray leaves in its temporary folder: counted with the rest, cleared of the dead.

Ray writes a log for each of its processes and a folder for each run of Tune, and removes neither
while it runs. The folder itself goes when Ray stops.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Ends the name of a process's log: worker-…-4711.out, python-core-worker-…_4711.log.
_PID = re.compile(r"[-_](\d+)\.(?:log|out|err)$")


@dataclass(frozen=True)
class RayFile:
    """A log of a process that has ended, or Tune's folder of a driver that has."""

    path: Path
    size: int
    #: Seconds since 1970.
    changed: float


def session_folder(home: Path) -> Path | None:
    """The temporary folder of the local Ray of ``home``; None where none runs on this machine."""
    try:
        folder = Path(json.loads((home / "ray.json").read_text())["folder"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return folder if folder.is_dir() else None


def dead_files(folder: Path, driven: set[str]) -> list[RayFile]:
    """What nobody writes to any more, oldest first. ``driven`` are ids of sweeps with a driver."""
    found = [*_logs(folder), *_artifacts(folder, driven)]
    return sorted(found, key=lambda file: (file.changed, file.path))


def _logs(folder: Path) -> Iterator[RayFile]:
    for path in folder.glob("session_2*/logs/*"):
        named = _PID.search(path.name)
        if named is not None and not _lives(int(named.group(1))):
            with contextlib.suppress(OSError):
                status = path.lstat()
                yield RayFile(path, status.st_size, status.st_mtime)


def _artifacts(folder: Path, driven: set[str]) -> Iterator[RayFile]:
    """Tune names them by time, and in there by the sweep and the token of its driver."""
    for path in folder.glob("session_2*/artifacts/*/*"):
        if path.name.partition("-")[0] in driven:
            continue
        with contextlib.suppress(OSError):
            sizes = [file.lstat().st_size for file in path.rglob("*") if file.is_file()]
            yield RayFile(path, sum(sizes), path.lstat().st_mtime)


def _lives(pid: int) -> bool:
    """Whether there is such a process; one of somebody else's counts."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
