"""The parts a report is made of: headings, paragraphs, tables, pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweeps.analysis.table import Table
from sweeps.figures.matplotlib_files import Drawing


@dataclass(frozen=True)
class Heading:
    """A title within the report; level 2 is a section."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True)
class Notes:
    """Notes of a user, in Markdown."""

    text: str
    #: Address -> ``data:`` address of the images that they show.
    images: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """A drawn figure with what it shows in words."""

    drawing: Drawing
    caption: str


Block = Heading | Paragraph | Notes | Listing | Table | Picture


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    blocks: tuple[Block, ...]

    def pictures(self) -> list[Picture]:
        """Its figures, in order."""
        return [block for block in self.blocks if isinstance(block, Picture)]
