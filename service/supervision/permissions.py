"""Who may look into a home: finds what others than its owner can read, and closes it.

A service makes its files for their owner alone; older versions, copies and other programs do not.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from service.supervision.home import OURS, is_only_a_home

_GROUP_AND_OTHERS, _OTHERS = stat.S_IRWXG | stat.S_IRWXO, stat.S_IRWXO


@dataclass
class OpenPlaces:
    """What others can read, write or enter."""

    #: Files and folders that this user may close.
    own: list[Path] = field(default_factory=list)
    #: Those of other owners.
    of_others: list[Path] = field(default_factory=list)


def find_open(home: Path, *, close: bool = False) -> OpenPlaces:
    """Look at a home and at all that a service made in it; ``close`` takes the rights away.

    A home that lets a group in, and nobody else, goes on doing so. Links are not followed.
    """
    about = home.stat()
    is_for_a_group = bool(about.st_mode & stat.S_IRWXG) and not about.st_mode & _OTHERS
    found = OpenPlaces()
    for handle, path in _entries(home):
        mode = os.fstat(handle)
        too_much = mode.st_mode & (_OTHERS if is_for_a_group else _GROUP_AND_OTHERS)
        if not too_much:
            continue
        if os.getuid() not in (0, mode.st_uid):
            found.of_others.append(path)
            continue
        if close:
            os.fchmod(handle, stat.S_IMODE(mode.st_mode) & ~too_much)
        found.own.append(path)
    return found


def _entries(home: Path) -> Iterator[tuple[int, Path]]:
    """The home, unless it is something else too, and every file and folder of a service below."""
    if is_only_a_home(home):
        with _opened(home, None) as handle:
            yield handle, home
    for name in sorted(OURS):
        path = home / name
        if path.is_symlink() or not path.exists():
            continue
        if path.is_file():
            with contextlib.suppress(OSError), _opened(path, None) as handle:
                yield handle, path
            continue
        for above, _, names, folder in os.fwalk(path, follow_symlinks=False):
            yield folder, Path(above)
            for file in names:
                # By its folder, not its path: nobody can put a link in its way.
                with contextlib.suppress(OSError), _opened(Path(file), folder) as handle:
                    if stat.S_ISREG(os.fstat(handle).st_mode):
                        yield handle, Path(above, file)


@contextlib.contextmanager
def _opened(path: Path, folder: int | None) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)
