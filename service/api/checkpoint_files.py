"""The checkpoints of a trial as files, without reading them."""

import re
from datetime import UTC, datetime
from pathlib import Path

from dashboards.sweep_pages.trial import CheckpointFile


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
