"""Reads the documentation: its pages, code blocks, tables and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Everything a reader may start from, with the pages that they lead to.
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
GUIDES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command line of a page, and what the page says that it prints."""

    page: str
    #: NAME=VALUE words before the program.
    env: dict[str, str]
    #: Behind "ndsweep".
    arguments: list[str]
    output: str


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def fenced(path: Path, language: str) -> list[str]:
    """Contents of a page's fenced blocks in a language, "" for none."""
    return [body for lang, body in _FENCE.findall(path.read_text("utf-8")) if lang == language]


def links(path: Path) -> list[str]:
    """Targets of a page's links that stay within the project."""
    prose = _FENCE.sub("", path.read_text("utf-8"))
    return [target for target in _LINK.findall(prose) if "://" not in target]


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as links spell them."""
    prose = _FENCE.sub("", path.read_text("utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose)
    }


def rows(text: str) -> list[list[str]]:
    """Cells of every table row."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def first_names(text: str) -> list[str]:
    """The names in backticks that stand in the first cells of the tables of a text."""
    return [name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])]


def section(text: str, heading: str) -> str:
    """The part below a heading, up to the next one of its rank or a higher one."""
    marks, _, _ = heading.partition(" ")
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    assert found, f"there is no heading {heading!r}"
    return re.split(rf"^#{{1,{len(marks)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def commands() -> Iterator[Command]:
    """Every ``$ ndsweep …`` of the guides' fenced blocks, with what follows it."""
    for path in GUIDES:
        for block in fenced(path, ""):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                words = line.split()
                at = next((i for i, word in enumerate(words) if "=" not in word), len(words))
                if words[at : at + 1] == ["ndsweep"]:
                    env = dict(word.split("=", 1) for word in words[:at])
                    yield Command(path.name, env, words[at + 1 :], output)


def plain(text: str) -> str:
    """A text without line breaks and alignment, which depend on the width of a terminal."""
    return " ".join(text.split())
