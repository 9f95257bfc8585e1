"""Where files of trials lie in a home, and the URL of a store that is a file."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_SQLITE = "sqlite:///"


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


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, for a path with any characters that a file system takes."""
    # SQLAlchemy reads %xx as one character, and ? as the beginning of options.
    return _SQLITE + str(path).replace("%", "%25").replace("?", "%3F")


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; None for the URL of another database."""
    if not url.startswith(_SQLITE):
        return None
    return Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
