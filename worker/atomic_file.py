"""Files that are there whole or not at all, whatever stops the one who writes them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, prefix: str | None = None) -> Iterator[BinaryIO]:
    """Write ``path`` under a temporary name; it gets its own, synced, when the block has ended.

    Its folder is made. A block that raises leaves what was there before, and nothing beside it;
    only a killed process leaves a file that begins with ``prefix`` (default: a dot and the name).
    OSError as of any writing; it names ``path`` where it would name no file or a temporary one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    start = prefix or f".{path.name}-"
    try:
        handle, temporary = tempfile.mkstemp(prefix=start, dir=path.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = str(path)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
