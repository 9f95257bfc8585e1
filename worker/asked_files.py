"""Files that a person asked for by name: whole, or as they were before."""

from collections.abc import Iterable
from pathlib import Path

from worker.atomic_file import whole_file


def write_asked(path: Path, pieces: Iterable[bytes]) -> None:
    """Write ``pieces`` to ``path``; its folder is made. A pipe or a device gets them as they come.

    Raises OSError that names ``path``; a file of before is then untouched, and no piece of the new
    one stays.
    """
    # The file that a link names is replaced, not the link.
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as pipe:
                pipe.writelines(pieces)
            return
        with whole_file(target) as file:
            file.writelines(pieces)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
