"""Notes, which are Markdown, as part of a page: nothing in them can load, run or post anything."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup

from sweeps.retention.note_images import ADDRESS

#: A page has a title and sections of its own; headings of notes stand below them.
_DEEPER, _DEEPEST = 2, 6
_SCHEMES = ("http", "https")


@lru_cache(maxsize=64)
def markdown(text: str) -> Markup:
    """Render notes as HTML: CommonMark with tables, and lines that end where they were ended.

    HTML in them is shown as text. Links lead to http and https addresses only. Images are those
    that were added to notes here; any other would ask another host, and is a link.
    """
    tokens = parsed(text)
    return Markup(_parser().renderer.render(tokens, _parser().options, {}))


def with_images(text: str, images: Mapping[str, str]) -> str:
    """Notes, in HTML or Markdown, with other addresses for images: a report holds them."""
    return ADDRESS.sub(lambda found: images.get(found[0], found[0]), text)


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


_OWN_IMAGE = re.compile(rf"!\[([^\[\]\n]*)\]\(({ADDRESS.pattern})\)")


def _own_image(state: StateInline, silent: bool) -> bool:
    """A rule of markdown-it-py for images of this service; others have none, and are links."""
    found = _OWN_IMAGE.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        token = state.push("image", "img", 0)
        # Not lazily: a print and a capture of the whole page show it too.
        token.attrs = {"src": found[2], "alt": found[1]}
        token.content = found[1]
        # Of it the renderer makes the text that stands for the image.
        token.children = [Token("text", "", 0, content=found[1])]
    state.pos = found.end()
    return True


@cache
def _parser() -> MarkdownIt:
    parser = _Notes("commonmark", {"html": False, "breaks": True}).enable("table").disable("image")
    parser.inline.ruler.before("link", "own_image", _own_image)
    return parser
