"""An option that names a file to write, refused in one sentence where the disk refuses it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

#: Of a disk that takes no more.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputRefused(Exception):
    """A file that was asked for cannot be written; the text says which, and what to do."""


@contextmanager
def writing(option: str) -> Iterator[None]:
    """Turn the OSError of a file that ``option`` named into OutputRefused."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads has seen enough
    except OSError as error:
        where = f"{option}: cannot write {error.filename}: {error.strerror}"
        raise OutputRefused(f"{where}; {_way_out(error)}") from error


def _way_out(error: OSError) -> str:
    if error.errno in _FULL:
        return "free some space there, or name a file on another disk"
    return "name a file in a folder that you may write to"
