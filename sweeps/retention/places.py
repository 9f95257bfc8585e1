"""Where files of trials lie in a home."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Where the trials of a sweep keep their files."""

    home: Path
    sweep_id: str
    #: Folder of prepared data sets; None = the worker's default.
    data_home: str | None = None

    def checkpoints(self, number: int) -> Path:
        return self.home / "checkpoints" / self.sweep_id / str(number)

    def discard(self, number: int) -> None:
        """Remove a trial's checkpoints."""
        shutil.rmtree(self.checkpoints(number), ignore_errors=True)

    def log(self, number: int) -> Path:
        return self.home / "logs" / self.sweep_id / f"{number}.log"
