"""Writes a report in LaTeX: escaped text, symbols as mathematics, tables.

pdfLaTeX has type for Latin letters and for what this module writes as mathematics. Of any other
sign (Chinese, Arabic, an emoji) it prints the number, as U+4F60, instead of ending in an error;
XeLaTeX and LuaLaTeX print the sign itself if their font has it. Tables are as wide as a page of
paper at most.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

from markdown_it.token import Token

from dashboards.wording.markdown_notes import parsed
from sweeps.analysis.table import Table, latex_row, latex_text

#: LaTeX around the parts of notes. Of a table each row is a line; wide ones are for HTML.
_AROUND = {
    "paragraph_close": "\n\n",
    "bullet_list_open": "\\begin{itemize}\n",
    "bullet_list_close": "\\end{itemize}\n\n",
    "ordered_list_open": "\\begin{enumerate}\n",
    "ordered_list_close": "\\end{enumerate}\n\n",
    "list_item_open": "\\item ",
    "blockquote_open": "\\begin{quote}\n",
    "blockquote_close": "\\end{quote}\n\n",
    "heading_open": "\\subsection*{",
    "heading_close": "}\n\n",
    "th_close": " \\quad ",
    "td_close": " \\quad ",
    "tr_close": "\\\\\n",
    "table_close": "\n",
    "hr": "\\medskip\n\n",
    "strong_open": "\\textbf{",
    "strong_close": "}",
    "em_open": "\\emph{",
    "em_close": "}",
    "softbreak": "\\\\\n",
    "hardbreak": "\\\\\n",
}


def _code(text: str) -> str:
    words = text.lstrip(" ")
    # Two dashes would be printed as one long one, and the spaces of an indentation as one.
    plain = re.sub("-(?=-)", "-{}", latex_text(words))
    return f"\\texttt{{{'~' * (len(text) - len(words))}{plain}}}"


def _listing(text: str) -> str:
    lines = "\\\\\n".join(map(_code, text.splitlines()))
    return f"{lines}\n\n"


_TEXTS: dict[str, Callable[[str], str]] = {
    "image": lambda alt: f"[image: {latex_text(alt)}]",
    "text": latex_text,
    "code_inline": _code,
    "code_block": _listing,
    "fence": _listing,
}


def notes_latex(text: str) -> str:
    """Notes, which are Markdown, as LaTeX; the addresses of links stand behind their words."""
    return re.sub(r"\n{3,}", "\n\n", _written(parsed(text))).strip()


def _written(tokens: Sequence[Token]) -> str:
    found, addresses = [], []
    for token in tokens:
        if token.type == "link_open":
            addresses.append(str(token.attrGet("href")))
        elif token.type == "link_close":
            found.append(f" ({_code(addresses.pop())})")
        elif token.type in _TEXTS:
            found.append(_TEXTS[token.type](token.content))
        elif token.children:
            found.append(_written(token.children))
        else:
            found.append(_AROUND.get(token.type, ""))
    return "".join(found)


#: Marks that only change how the sign before them looks, and joiners: nothing of their own.
_SILENT = ("Mn", "Me", "Cf")


def latex_preamble(body: str) -> str:
    """What stands before the packages: fonts, encodings, and a name for each sign of ``body``."""
    signs = sorted({sign for sign in body if not sign.isascii()})
    return "\n".join(
        [
            "% For pdflatex, xelatex and lualatex. Signs that pdflatex has no type for are printed",
            "% as U+ and their number; the other two print them where the font has them.",
            "\\documentclass{article}",
            "\\ifdefined\\directlua\\usepackage{fontspec}\\else",
            "\\ifdefined\\XeTeXrevision\\usepackage{fontspec}\\else",
            "\\usepackage[T1]{fontenc}\\usepackage[utf8]{inputenc}",
            "\\newcommand{\\nameunset}[3]{\\ifcsname u8:\\detokenize{#1}\\endcsname\\else"
            "\\DeclareUnicodeCharacter{#2}{#3}\\fi}",
            *map(_named, signs),
            "\\fi\\fi",
        ]
    )


def _named(sign: str) -> str:
    number = f"{ord(sign):04X}"
    printed = "" if unicodedata.category(sign) in _SILENT else f"{{\\tiny U+{number}}}"
    return f"\\nameunset{{{sign}}}{{{number}}}{{{printed}}}"


#: Letters of a line at each size of type, from the largest that is used on. Those of figures and
#: text together, in LaTeX's own type on a line of 16.6 cm.
_SIZES = (("small", 98), ("footnotesize", 110), ("scriptsize", 125))

#: Letters that the gaps on both sides of a column take.
_GAP = 2.6


def latex_table(table: Table) -> str:
    """A table that may span pages; long texts wrap inside their cells."""
    size, columns = _size_and_columns(table)
    caption = [f"\\caption{{{latex_text(table.caption)}}}\\\\"] if table.caption else []
    return "\n".join(
        [
            f"{{\\{size}\\begin{{longtable}}{{{''.join(columns)}}}",
            *caption,
            "\\toprule",
            latex_row(table.head),
            "\\midrule\\endhead",
            *map(latex_row, table.rows),
            "\\bottomrule",
            "\\end{longtable}}",
        ]
    )


def _size_and_columns(table: Table) -> tuple[str, list[str]]:
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


def _widths(full: Sequence[int], least: Sequence[int], room: float) -> list[float]:
    """Width of each column in letters: its longest cell, or its longest word and a share."""
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
