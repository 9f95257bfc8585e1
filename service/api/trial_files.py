"""Reads the end of a trial's log without reading the rest, and lists its checkpoints as files."""

import re
from datetime import UTC, datetime
from pathlib import Path

from dashboards.sweep_pages.trial import CheckpointFile

#: A line is rarely longer than 100 bytes; this much holds 10,000 of them.
MAX_BYTES = 1_000_000


def trial_log(home: Path, sweep_id: str, number: int, lines: int = 200) -> str:
    """The last ``lines`` lines that a trial wrote; "" when it wrote none.

    Both names come from the store, never from a request: they are parts of a path.
    """
    return tail(home / "logs" / sweep_id / f"{number}.log", lines)


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file; "" when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_BYTES))
            text = file.read(MAX_BYTES).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "".join(text.splitlines(keepends=True)[-lines:])


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
