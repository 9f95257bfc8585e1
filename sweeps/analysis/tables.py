"""A table of words as text for a terminal, Markdown, LaTeX or CSV."""

import csv
import io
import re
from collections.abc import Sequence
from typing import Literal

Format = Literal["text", "markdown", "latex", "csv"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "±": r"$\pm$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX_SIGNS = re.compile("|".join(map(re.escape, _LATEX)))


def table_text(
    header: Sequence[str], rows: Sequence[Sequence[str]], form: Format = "text", caption: str = ""
) -> str:
    """Return the table, ending with a line break. ``caption`` stands above it, not in CSV."""
    if form == "csv":
        return _csv(header, rows)
    if form == "latex":
        return _latex(header, rows, caption)
    body = _markdown(header, rows) if form == "markdown" else _text(header, rows)
    return f"{caption}\n\n{body}\n" if caption else f"{body}\n"


def latex_text(text: str) -> str:
    """Text in which LaTeX takes no sign for a command."""
    return _LATEX_SIGNS.sub(lambda found: _LATEX[found[0]], text)


def _text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)])


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """For the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(latex_text, cells)) + r" \\"

    lines = [
        f"% {caption}" if caption else "",
        rf"\begin{{tabular}}{{{'l' * len(header)}}}",
        r"\toprule",
        line(header),
        r"\midrule",
        *map(line, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(part for part in lines if part) + "\n"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
