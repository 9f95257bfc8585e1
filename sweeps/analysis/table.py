"""A table of words, written as text, Markdown, CSV, LaTeX or HTML."""

import csv
import html
import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Format = Literal["text", "markdown", "latex", "csv"]

#: What a number begins with; "–" stands for none.
_NUMERIC = set("0123456789+-−–")


@dataclass(frozen=True)
class Table:
    """Cells as people read them. Columns of numbers are set to the right where a form has sides."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def is_numeric(self, column: int) -> bool:
        """Whether every cell of a column begins with a number, or says that there is none."""
        return column > 0 and all(row[column][:1] in _NUMERIC for row in self.rows)


def written(table: Table, form: Format) -> str:
    """Return the table in a form, ending with a line break."""
    return {"text": to_text, "markdown": to_markdown, "csv": to_csv, "latex": to_latex}[form](table)


# --- Text ----------------------------------------------------------------------------------------


def to_text(table: Table) -> str:
    """The caption, an empty line, and columns side by side with a rule below the head."""
    rule = ["-" * width for width in _widths([table.head, *table.rows])]
    lines = aligned([table.head, rule, *table.rows])
    return "\n".join([*_above(table.caption), *lines]) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in which each column begins at the same place."""
    widths = _widths(rows)
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _above(caption: str) -> list[str]:
    return [caption, ""] if caption else []


# --- Markdown ------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """The caption as a paragraph, and a table whose columns of numbers are set to the right."""
    sides = ["---:" if table.is_numeric(i) else "---" for i in range(len(table.head))]
    cells = [[markdown_text(cell) for cell in row] for row in (table.head, *table.rows)]
    head, *rows = [f"| {' | '.join(row)} |" for row in cells]
    lines = [*_above(markdown_text(table.caption)), head, f"|{'|'.join(sides)}|", *rows]
    return "\n".join(lines) + "\n"


#: Signs that Markdown reads wherever they stand, and some that it reads beside certain others.
_MARKS = re.compile(
    r"[\\`*|<>~]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # alpha_v is a word
    r"|!(?=\[)|\[(?=[\^!\[])|\](?=[(\[:])"  # an interval [1, 2] is none of its links
    r"|&(?=#?\w+;)"
    r"|(?<=http):(?=//)|(?<=https):(?=//)|(?<=\bwww)\.|(?<=\w)@(?=\w)",  # linked by themselves
    re.IGNORECASE,
)
#: What makes a heading, a list or a line of the line that it begins.
_OPENING = re.compile(r"^(\s*)(#{1,6}(?=\s|$)|[-+](?=[\s-]|$)|={2,}|\d{1,9}(?=[.)](?:\s|$)))")


def markdown_text(text: str) -> str:
    """Text in which Markdown takes no sign for a mark of its own, in one line."""
    line = _MARKS.sub(r"\\\g<0>", " ".join(text.splitlines()).strip())
    begun = _OPENING.match(line)
    if begun is None:
        return line
    # A digit cannot be escaped, the dot behind a number can.
    at = begun.end() if begun[2][0].isdigit() else begun.start(2)
    return f"{line[:at]}\\{line[at:]}"


# --- CSV -----------------------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """Head and rows, without the caption."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(csv_cell, table.head))
    writer.writerows(map(csv_cell, row) for row in table.rows)
    return buffer.getvalue()


def csv_cell(value: Any) -> Any:
    """A value as a spreadsheet takes it for what it is.

    Text that it would take for a formula begins with a quotation mark, so that it arrives as text;
    numbers stay numbers.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


#: What a formula begins with, in halves and wholes of an East Asian letter's width.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


# --- LaTeX ---------------------------------------------------------------------------------------

#: Greek letters that have a form of their own, as commands of mathematics.
_GREEK = dict(
    zip(
        "αβγδζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho varsigma sigma "
        "tau upsilon varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi "
        "Omega".split(),
        strict=True,
    )
)

_TEX = {
    "\\": r"\textbackslash{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"$\\{name}$" for letter, name in _GREEK.items()},
    # The others look like Latin letters.
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),
    **{"‖": r"$\|$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "√": r"$\surd$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "µ": r"$\mu$"},
    **{
        "₀": "$_0$",
        "₁": "$_1$",
        "₂": "$_2$",
        "²": "$^2$",
        "ᵛ": "$^v$",
        "ˢ": "$^s$",
        "ε": r"$\epsilon$",
    },
    **{"–": "--", "—": "---", "…": r"\ldots{}", "→": r"$\to$", "\N{NARROW NO-BREAK SPACE}": r"\,"},
}

#: An index or exponent in plain text after a symbol: γ_C, α^v.
_INDEXED = re.compile(r"(?<!\\)\$(\\_|\\textasciicircum\{\})([A-Za-z0-9])(?![A-Za-z0-9])")

#: What the end of a line, a rule and an item before it would take for their own option.
_OPTION = re.compile(r"^\s*[\[*]")


def to_latex(table: Table) -> str:
    """A ``tabular`` for the package booktabs, with the caption as a comment above it."""
    columns = "".join("r" if table.is_numeric(i) else "l" for i in range(len(table.head)))
    lines = [
        *([f"% {' '.join(table.caption.split())}"] if table.caption else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        latex_row(table.head),
        r"\midrule",
        *map(latex_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def latex_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    """Text with every character that LaTeX would read escaped, and symbols as mathematics."""
    # Control characters would end the run of LaTeX.
    plain = "".join(_TEX.get(c, c) for c in text if c.isspace() or not _is_control(c))
    # Symbols side by side are one formula; a dollar of the text is escaped and keeps its own.
    joined = re.sub(r"(?<!\\)\$\$", "", plain)
    joined = _OPTION.sub(lambda found: f"{{{found[0]}}}", joined)
    return _INDEXED.sub(lambda found: ("_" if found[1] == r"\_" else "^") + found[2] + "$", joined)


def _is_control(sign: str) -> bool:
    return unicodedata.category(sign) == "Cc"


# --- HTML ----------------------------------------------------------------------------------------


def to_html(table: Table) -> str:
    """A ``<table>`` inside a box that scrolls; cells of numbers have the class ``n``."""
    sides = [' class="n"' if table.is_numeric(i) else "" for i in range(len(table.head))]
    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    head = _html_cells("th", table.head, [f' scope="col"{side}' for side in sides])
    rows = "\n".join(f"<tr>{_html_cells('td', row, sides)}</tr>" for row in table.rows)
    return (
        f'<div class="wide"><table>{caption}\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _html_cells(tag: str, cells: Sequence[str], attributes: Sequence[str]) -> str:
    pairs = zip(cells, attributes, strict=True)
    return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell, kind in pairs)
