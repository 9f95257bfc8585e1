"""Notes, which are Markdown, as part of a page: nothing in them can load, run or post anything."""

from collections.abc import Sequence
from functools import cache, lru_cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

#: A page has a title and sections of its own; headings of notes stand below them.
_DEEPER, _DEEPEST = 2, 6
_SCHEMES = ("http", "https")


@lru_cache(maxsize=64)
def markdown(text: str) -> Markup:
    """Render notes as HTML: CommonMark with tables, and lines that end where they were ended.

    HTML in them is shown as text. Links lead to http and https addresses only, and there are no
    images, which would ask other hosts.
    """
    tokens = parsed(text)
    return Markup(_parser().renderer.render(tokens, _parser().options, {}))


def part_of_markdown(text: str) -> str:
    """Notes as they were written, to stand in a longer text: a fence left open ends with them."""
    notes = text.strip("\n")
    last = _parser().parse(f"{notes}\n\n# what follows")[-1]
    return f"{notes}\n{last.markup}" if last.type == "fence" else notes


def parsed(text: str) -> list[Token]:
    """The parts of notes, as markdown-it-py tells them, with safe links and deeper headings."""
    tokens = _parser().parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(_DEEPEST, int(token.tag[1:]) + _DEEPER)}"
    for token in _inline(tokens):
        if token.type == "link_open":
            token.attrSet("rel", "noopener noreferrer nofollow")
    return tokens


def _inline(tokens: Sequence[Token]) -> list[Token]:
    return [child for token in tokens for child in token.children or ()]


class _Notes(MarkdownIt):
    """Asked of every address; what is refused stays the text it was."""

    def validateLink(self, url: str) -> bool:  # markdown-it-py's name
        try:
            found = urlsplit(url)
        except ValueError:
            return False
        return found.scheme in _SCHEMES and bool(found.netloc)


@cache
def _parser() -> MarkdownIt:
    return _Notes("commonmark", {"html": False, "breaks": True}).enable("table").disable("image")
