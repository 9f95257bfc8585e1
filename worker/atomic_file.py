"""Writes files that are whole or absent, whatever stops the writer.

A file that a person named as an output is replaced only by a whole one.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(
    path: Path, *, prefix: str | None = None, mode: int = 0o644, replace: bool = True
) -> Iterator[BinaryIO]:
    """Write ``path`` under a temporary name; it gets its own, synced, when the block has ended.

    Its folder is made. ``mode``: permissions, from the first byte on no wider than these, less
    what the process's umask takes.
    Without ``replace``, a file that is there by then stays, whoever made it.
    A block that raises leaves what was there before, and nothing beside it;
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
        os.chmod(temporary, mode & ~_umask())
        if replace:
            os.replace(temporary, path)
        else:
            with suppress(FileExistsError):
                os.link(temporary, path)
            os.unlink(temporary)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = str(path)
        raise
    _sync_folder(path.parent)


def _umask() -> int:
    # To ask the system is to set it, for every thread.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0


def _sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
