"""Options that take one of several words, or name a file to write, and their refusals."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


def one_of(*words: str) -> Callable[[str], str]:
    """Make a parser for an option: ``typer.Option(parser=one_of("csv", "json"))``.

    An Enum or a Literal would do, but typer puts “Value error” before its sentence.
    """

    def parse(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"must be one of {', '.join(words)}, got {text!r}")
        return text

    return parse


#: Error numbers of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputRefused(Exception):
    """A requested file cannot be written; the message names the file and a remedy."""


@contextmanager
def writing(option: str) -> Iterator[None]:
    """Turn the OSError of a file that ``option`` names into OutputRefused."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except OSError as error:
        where = f"{option}: cannot write {error.filename}: {error.strerror}"
        raise OutputRefused(f"{where}; {_way_out(error)}") from error


def _way_out(error: OSError) -> str:
    if error.errno in _FULL:
        return "free some space there, or name a file on another disk"
    return "name a file in a folder that you may write to"
