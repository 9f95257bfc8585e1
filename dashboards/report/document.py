"""The three forms a report is written in: HTML, Markdown, LaTeX.

Every form is made of the same parts, so a number is the same in all of them. HTML and Markdown
are one file with the figures inside; LaTeX names figures that lie beside it as PDF.
"""

import base64
import html
from collections.abc import Callable

from markupsafe import Markup

from dashboards.report.blocks import Block, Document, Heading, Listing, Notes, Paragraph, Picture
from dashboards.report.latex import latex_preamble, latex_table, notes_latex
from dashboards.web.templating import render
from dashboards.wording.markdown_notes import markdown, part_of_markdown, with_images
from sweeps.analysis.table import Table, latex_text, markdown_text
from sweeps.analysis.table import to_html as to_html_table
from sweeps.analysis.table import to_markdown as to_markdown_table

# --- HTML ----------------------------------------------------------------------------------------


def to_html(document: Document) -> str:
    """One page that loads nothing from anywhere."""
    parts = {"table": _html_table, "drawing": _svg, "notes": _html_notes}
    return render("report.html", document=document, **parts)


def _html_table(table: Table) -> Markup:
    return Markup(to_html_table(table))


def _html_notes(notes: Notes) -> Markup:
    return Markup(with_images(markdown(notes.text), notes.images))


def _svg(picture: Picture) -> Markup:
    label = html.escape(picture.caption)
    named = picture.drawing.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return Markup(named)


# --- Markdown ------------------------------------------------------------------------------------


def to_markdown(document: Document, picture: Callable[[Picture], str] | None = None) -> str:
    """Markdown with tables; ``picture`` gives a figure's address, default: inside the text."""
    address = picture or _data_address
    parts = [
        f"# {markdown_text(document.title)}",
        *(_markdown(b, address) for b in document.blocks),
    ]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block, address: Callable[[Picture], str]) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {markdown_text(block.text)}"
    if isinstance(block, Paragraph):
        return markdown_text(block.text)
    if isinstance(block, Notes):
        return with_images(part_of_markdown(block.text), block.images)
    if isinstance(block, Listing):
        return "\n".join(f"- {markdown_text(item)}" for item in block.items)
    if isinstance(block, Table):
        return to_markdown_table(block).rstrip("\n")
    name, caption = markdown_text(block.drawing.name), markdown_text(block.caption)
    return f"![{name}]({address(block)})\n\n{caption}"


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
