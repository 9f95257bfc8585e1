"""The URL of a store that is a file."""

from pathlib import Path
from urllib.parse import unquote

_SQLITE = "sqlite:///"


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, for a path with any characters that a file system takes."""
    # SQLAlchemy reads %xx as one character, and ? as the beginning of options.
    return _SQLITE + str(path).replace("%", "%25").replace("?", "%3F")


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; None for the URL of another database."""
    if not url.startswith(_SQLITE):
        return None
    return Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
