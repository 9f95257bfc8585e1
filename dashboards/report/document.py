"""The three forms a report is written in: HTML, Markdown, LaTeX.

Every form is made of the same parts, so a number is the same in all of them. HTML and Markdown
are one file with the figures inside; LaTeX names figures that lie beside it as PDF.
"""

import base64
import html
from collections.abc import Callable

from markupsafe import Markup

from dashboards.report.blocks import (
    Block,
    Document,
    Heading,
    Listing,
    Notes,
    Paragraph,
    Picture,
    Table,
)
from dashboards.report.latex import latex_preamble, latex_table, latex_text, notes_latex
from dashboards.web.templating import render
from dashboards.wording.markdown_notes import part_of_markdown

# --- HTML ----------------------------------------------------------------------------------------


def to_html(document: Document) -> str:
    """One page that loads nothing from anywhere."""
    parts = {"table": _html_table, "drawing": _svg}
    return render("report.html", document=document, **parts)


def _svg(picture: Picture) -> Markup:
    label = html.escape(picture.caption)
    named = picture.drawing.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return Markup(named)


def _html_table(table: Table) -> Markup:
    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    numeric = [' class="n"' if table.is_numeric(c) else "" for c in range(len(table.head))]
    head = "".join(
        f'<th scope="col"{kind}>{html.escape(cell)}</th>'
        for cell, kind in zip(table.head, numeric, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return Markup(
        f'<div class="wide"><table>{caption}\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


# --- Markdown ------------------------------------------------------------------------------------


def to_markdown(document: Document, picture: Callable[[Picture], str] | None = None) -> str:
    """Markdown with tables; ``picture`` gives a figure's address, default: inside the text."""
    address = picture or _data_address
    parts = [f"# {_md(document.title)}", *(_markdown(b, address) for b in document.blocks)]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block, address: Callable[[Picture], str]) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_md(block.text)}"
    if isinstance(block, Paragraph):
        return _md(block.text)
    if isinstance(block, Notes):
        return part_of_markdown(block.text)
    if isinstance(block, Listing):
        return "\n".join(f"- {_md(item)}" for item in block.items)
    if isinstance(block, Table):
        return _markdown_table(block)
    return f"![{_md(block.drawing.name)}]({address(block)})\n\n{_md(block.caption)}"


def _markdown_table(table: Table) -> str:
    columns = range(len(table.head))
    lines = [
        "| " + " | ".join(_md(cell) for cell in table.head) + " |",
        "|" + "|".join("---:" if table.is_numeric(c) else "---" for c in columns) + "|",
        *("| " + " | ".join(_md(cell) for cell in row) + " |" for row in table.rows),
    ]
    caption = [_md(table.caption), ""] if table.caption else []
    return "\n".join([*caption, *lines])


def _md(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def _data_address(picture: Picture) -> str:
    coded = base64.b64encode(picture.drawing.svg.encode()).decode()
    return f"data:image/svg+xml;base64,{coded}"


# --- LaTeX ---------------------------------------------------------------------------------------


def to_latex(document: Document, picture: Callable[[Picture], str]) -> str:
    """A whole LaTeX file; ``picture`` gives the path of a figure's PDF."""
    parts = "\n\n".join(_latex(block, picture) for block in document.blocks)
    title = latex_text(document.title)
    return (
        f"{latex_preamble(title + parts)}\n"
        "\\usepackage{array,booktabs,float,graphicx,longtable,geometry}\n\\geometry{margin=2.2cm}\n"
        f"\\title{{{title}}}\n\\date{{}}\n\\begin{{document}}\n\\maketitle\n\n"
        f"{parts}\n\n\\end{{document}}\n"
    )


def _latex(block: Block, picture: Callable[[Picture], str]) -> str:
    if isinstance(block, Heading):
        command = "section" if block.level == 2 else "subsection"
        return f"\\{command}*{{{latex_text(block.text)}}}"
    if isinstance(block, Paragraph):
        return latex_text(block.text)
    if isinstance(block, Notes):
        return notes_latex(block.text)
    if isinstance(block, Listing):
        items = "\n".join(f"\\item {latex_text(item)}" for item in block.items)
        return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
    if isinstance(block, Table):
        return latex_table(block)
    return (
        "\\begin{figure}[H]\n\\centering\n"
        f"\\includegraphics[width=.85\\linewidth,height=.75\\textheight,keepaspectratio]"
        f"{{{picture(block)}}}\n"
        f"\\caption{{{latex_text(block.caption)}}}\n\\end{{figure}}"
    )
