"""Tables of a report in LaTeX, as wide as a page of paper at most."""

from typing import TYPE_CHECKING

from dashboards.report.latex import latex_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboards.report.document import Table

#: Letters of a line at each size of type, from the largest that is used on. Those of figures and
#: text together, in LaTeX's own type on a line of 16.6 cm.
_SIZES = (("small", 98), ("footnotesize", 110), ("scriptsize", 125))
#: Letters that the gaps on both sides of a column take.
_GAP = 2.6


def latex_table(table: "Table") -> str:
    """A table that goes on over pages. What is too long for the page is broken inside its cells."""
    size, columns = _size_and_columns(table)
    caption = [f"\\caption{{{latex_text(table.caption)}}}\\\\"] if table.caption else []
    return "\n".join(
        [
            f"{{\\{size}\\begin{{longtable}}{{{''.join(columns)}}}",
            *caption,
            "\\toprule",
            _row(table.head),
            "\\midrule\\endhead",
            *(_row(row) for row in table.rows),
            "\\bottomrule",
            "\\end{longtable}}",
        ]
    )


def _size_and_columns(table: "Table") -> tuple[str, list[str]]:
    """The largest type in which the longest words of all columns fit beside each other."""
    cells = [(table.head[i], *(row[i] for row in table.rows)) for i in range(len(table.head))]
    full = [max(map(len, column)) for column in cells]
    least = [max(_longest_word(cell) for cell in column) for column in cells]
    gaps = _GAP * len(full)
    size, letters = next((s for s in _SIZES if sum(least) <= s[1] - gaps), _SIZES[-1])
    widths = _widths(full, least, letters - gaps)
    return size, [
        _column(table.is_numeric(i), full[i], width, letters) for i, width in enumerate(widths)
    ]


def _widths(full: "Sequence[int]", least: "Sequence[int]", room: float) -> list[float]:
    """Letters of each column: all it has where they fit, else what its words need and a share."""
    if sum(full) <= room:
        return [float(width) for width in full]
    wish = [most - word for most, word in zip(full, least, strict=True)]
    share = max(0.0, room - sum(least)) / max(1, sum(wish))
    return [word + share * more for word, more in zip(least, wish, strict=True)]


def _column(is_numeric: bool, full: int, width: float, letters: int) -> str:
    if width >= full:
        return "r" if is_numeric else "l"
    ragged = "\\raggedleft" if is_numeric else "\\raggedright"
    return f">{{{ragged}\\arraybackslash}}p{{{width / letters:.3f}\\linewidth}}"


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=1)


def _row(cells: "Sequence[str]") -> str:
    return " & ".join(latex_text(cell) for cell in cells) + r" \\"
