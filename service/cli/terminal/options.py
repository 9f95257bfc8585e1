"""An option that takes one of some words, refused in one plain sentence."""

from collections.abc import Callable

import typer


def one_of(*words: str) -> Callable[[str], str]:
    """The parser of such an option: ``typer.Option(parser=one_of("csv", "json"))``."""

    def parse(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"must be one of {', '.join(words)}, got {text!r}")
        return text

    return parse
