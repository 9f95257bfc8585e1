"""The parts a report is made of: headings, paragraphs, tables, pictures."""

from dataclasses import dataclass

from dashboards.report.drawing import Drawing

#: What a number begins with; "–" stands for none.
_NUMERIC = set("0123456789+-−–")


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
    """What somebody wrote in Markdown."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Cells as people read them. Columns of numbers are set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def is_numeric(self, column: int) -> bool:
        """Whether every cell of a column begins with a number, or says that there is none."""
        return column > 0 and all(row[column][:1] in _NUMERIC for row in self.rows)


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
