"""``ndsweep import-results DIR`` and ``ndsweep report WHAT``: import and report results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from service.cli.terminal.options import one_of, writing

if TYPE_CHECKING:
    from dashboards.report.blocks import Document
    from dashboards.report.files import Form
    from sweeps.store.store import Store

#: Exit code if a file or sweep was skipped.
SKIPPED = 1


def import_results(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The --out of `ndsweep batch`.")
    ],
) -> None:
    """Import a batch's results as finished sweeps into the store of NDSWEEP_HOME.

    May be run while a service runs on the store, and repeated: only new results are added.
    """
    from sweeps.batch.import_results import import_results as imported

    store = open_store()
    try:
        report = imported(store, folder)
    finally:
        store.close()
    for done in report.sweeps:
        again = f", {done.replaced} failed ones replaced" if done.replaced else ""
        typer.echo(
            f"{done.sweep.id}  {done.sweep.name}: {done.added} trials added{again}; "
            f"{done.sweep.reason}"
        )
    for sentence in report.skipped:
        typer.echo(f"skipped: {sentence}", err=True)
    if report.skipped:
        raise typer.Exit(SKIPPED)


def open_store(*, to_read: bool = False) -> "Store":
    """Open the store of the settings and create its tables; with ``to_read`` it must exist."""
    from service.settings import Settings, SettingsError
    from service.supervision.home import prepare, require
    from sweeps.store.store import Store

    settings = Settings()
    if to_read:
        require(settings)
    elif settings.store_url is None:
        prepare(settings.home)
    try:
        store = Store(settings.database_url())
    except ValueError as error:
        raise SettingsError(f"NDSWEEP_STORE_URL: {error}") from error
    try:
        store.migrate()
    except BaseException:
        store.close()
        raise
    return store


_PAPER = "paper"


REPORT_FORMATS = ("html", "md", "latex")


def report(
    what: Annotated[
        str, typer.Argument(metavar="SWEEP|MATCH|paper", help="Id of a sweep or match, or `paper`.")
    ],
    format: Annotated[
        str,
        typer.Option(
            "--format", "-f", parser=one_of(*REPORT_FORMATS), metavar="|".join(REPORT_FORMATS)
        ),
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", dir_okay=False, help="File to write; default: standard output."
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder for each figure as SVG and PDF; default for LaTeX: OUT-figures.",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            file_okay=False,
            help="Results of `ndsweep batch` instead of the store; for `paper`.",
        ),
    ] = None,
    keep_runs: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder for small copies of the runs used; the report is made from the copies.",
        ),
    ] = None,
) -> None:
    """Write a report of a sweep, a match, or the paper's tables and figures from our runs."""
    from dashboards.report.files import report_text, write_report

    if (source or keep_runs) and what != _PAPER:
        raise typer.BadParameter("--from and --keep-runs are for `ndsweep report paper`")
    if keep_runs is not None and source is None:
        raise typer.BadParameter("--keep-runs needs --from, a folder of results")
    if out is None and (figures is not None or format == "latex"):
        raise typer.BadParameter(
            "--figures and LaTeX need --out, the file to put the figures beside"
        )
    if keep_runs is not None and source is not None:
        from sweeps.paper.keep_runs import keep_runs as keep

        with writing("--keep-runs"):
            num_runs = keep(source, keep_runs)
        typer.echo(f"{keep_runs}: {num_runs} runs", err=True)
        # Report from the copies, so that they reproduce the same numbers.
        source = keep_runs
    document, written_as = _document(what, source), cast("Form", format)
    if out is None:
        typer.echo(report_text(document, written_as), nl=False)
        return
    with writing("--out" if figures is None else "--out or --figures"):
        written = write_report(document, written_as, out, figures)
    for path in written:
        typer.echo(path)


def _document(what: str, source: Path | None) -> "Document":
    from dashboards.paper.document import paper_document
    from dashboards.report.sweep import report_document
    from sweeps.paper.runs import PaperRuns, runs_of_folder, runs_of_store

    if source is not None:
        return paper_document(PaperRuns(runs_of_folder(source)))
    store = open_store(to_read=True)
    try:
        if what == _PAPER:
            return paper_document(PaperRuns(runs_of_store(store)))
        return report_document(store, what)
    finally:
        store.close()
