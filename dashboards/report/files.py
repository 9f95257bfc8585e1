"""Writes a report: one file, or one with its figures beside it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dashboards.report.blocks import Document, Picture
from dashboards.report.document import to_html, to_latex, to_markdown
from worker.atomic_file import write_asked

Form = Literal["html", "md", "latex"]


def report_text(document: Document, form: Form) -> str:
    """A report as one text. LaTeX names its figures ``<name>.pdf`` in the folder ``figures``."""
    if form == "html":
        return to_html(document)
    if form == "md":
        return to_markdown(document)
    return to_latex(document, lambda picture: f"figures/{picture.drawing.name}.pdf")


def write_report(document: Document, form: Form, out: Path, figures: Path | None) -> list[Path]:
    """Write a report to ``out``; return every file that was written.

    With ``figures``, each figure is also written there as SVG and PDF, and Markdown and LaTeX name
    them by their path from the report. LaTeX, which cannot hold them, always has such a folder:
    by default the report's name with ``-figures``. Each file is there whole or as it was before;
    the report comes last. Raises OSError that names the file.
    """
    if form == "latex" and figures is None:
        figures = out.with_name(f"{out.stem}-figures")
    written = [] if figures is None else _write_figures(document, figures)
    if form == "html":
        text = to_html(document)
    elif form == "md":
        text = to_markdown(document, _linked(out, figures, "svg") if figures else None)
    else:
        assert figures is not None
        text = to_latex(document, _linked(out, figures, "pdf"))
    write_asked(out, [text.encode()])
    return [out, *written]


def _write_figures(document: Document, folder: Path) -> list[Path]:
    written = []
    for picture in document.pictures():
        drawing = picture.drawing
        svg, pdf = (folder / f"{drawing.name}.{suffix}" for suffix in ("svg", "pdf"))
        write_asked(svg, [drawing.svg.encode()])
        write_asked(pdf, [drawing.pdf])
        written += [svg, pdf]
    return written


def _linked(out: Path, figures: Path, suffix: str) -> Callable[[Picture], str]:
    folder = Path(os.path.relpath(figures, out.parent)).as_posix()
    return lambda picture: f"{folder}/{picture.drawing.name}.{suffix}"
