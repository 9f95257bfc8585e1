"""Options that take one of some words, or name a file to write; each is refused in one sentence."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


def one_of(*words: str) -> Callable[[str], str]:
    """The parser of such an option: ``typer.Option(parser=one_of("csv", "json"))``.

    An Enum or a Literal would do, but typer puts “Value error” before its sentence.
    """

    def parse(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"must be one of {', '.join(words)}, got {text!r}")
        return text

    return parse


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
