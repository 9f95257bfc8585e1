"""``ndsweep import-results``, ``ndsweep import optuna|wandb|ray|csv`` and ``ndsweep report``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from service.cli.terminal.options import one_of, writing

if TYPE_CHECKING:
    from dashboards.report.blocks import Document
    from dashboards.report.files import Form
    from sweeps.batch.imports.found import Found
    from sweeps.records import Direction
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


imports = typer.Typer(
    help="Import results of other tools as finished sweeps.", no_args_is_help=True
)

_Objective = Annotated[str | None, typer.Option(help="Metric that the sweep is about.")]
_ENDS = ("minimize", "maximize")
_Direction = Annotated[
    str | None,
    typer.Option(
        parser=one_of(*_ENDS), metavar="|".join(_ENDS), help="Which end of the objective is better."
    ),
]
_Name = Annotated[str | None, typer.Option(help="Name of the sweep; default: that of the source.")]
_Table = Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE")]
_Params = Annotated[
    str | None, typer.Option(metavar="NAME,…", help="Columns that are fields of the configuration.")
]
_Ignore = Annotated[str | None, typer.Option(metavar="NAME,…", help="Columns to leave out.")]
_Metrics = Annotated[
    str | None, typer.Option(metavar="NAME,…", help="Further columns that were measured.")
]


@imports.command()
def optuna(
    study: Annotated[
        str, typer.Argument(help="Name of the study, or the file of a storage that holds one.")
    ],
    storage: Annotated[
        str | None,
        typer.Option(help="URL of the storage as Optuna takes it, or a file (SQLite, journal)."),
    ] = None,
    objective: _Objective = None,
    seed: Annotated[
        str, typer.Option(help="Parameter or user attribute that holds a trial's seed.")
    ] = "seed",
    name: _Name = None,
) -> None:
    """Import a study of Optuna."""
    from sweeps.batch.imports.optuna_study import read_study

    _import(read_study(study, storage, objective=objective, seed=seed), name)


@imports.command()
def wandb(
    export: _Table,
    objective: _Objective = None,
    direction: _Direction = None,
    params: _Params = None,
    metrics: _Metrics = None,
    ignore: _Ignore = None,
    seed: Annotated[str | None, typer.Option(help="Column of the seed; default: seed.")] = None,
    name: _Name = None,
) -> None:
    """Import the CSV file that the runs table of Weights & Biases exports."""
    from sweeps.batch.imports.cells import Asked
    from sweeps.batch.imports.wandb_export import read_wandb

    asked = Asked(objective, _end(direction), _names(params), _names(metrics), _names(ignore), seed)
    _import(read_wandb(export, asked), name)


_STOPPED = ("pruned", "complete")


@imports.command()
def ray(
    folder: Annotated[
        Path,
        typer.Argument(exists=True, file_okay=False, help="Folder of an experiment of Ray Tune."),
    ],
    direction: _Direction,
    objective: Annotated[
        str | None, typer.Option(help="Metric; default: the one that the experiment names.")
    ] = None,
    seed: Annotated[str, typer.Option(help="Field of the config that holds the seed.")] = "seed",
    stopped_early: Annotated[
        str,
        typer.Option(
            "--stopped-early",
            parser=one_of(*_STOPPED),
            metavar="|".join(_STOPPED),
            help="What a trial is that Tune stopped before the longest one's end.",
        ),
    ] = "pruned",
    name: _Name = None,
) -> None:
    """Import an experiment of Ray Tune from its folder."""
    from sweeps.batch.imports.ray_folder import read_experiment

    found = read_experiment(
        folder,
        objective=objective,
        direction=cast("Direction", direction),
        seed=seed,
        stopped_early=cast("Literal['pruned', 'complete']", stopped_early),
    )
    _import(found, name)


@imports.command("csv")
def csv_table(
    file: _Table,
    objective: Annotated[str, typer.Option(help="Column of the objective.")],
    direction: _Direction,
    params: _Params = None,
    metrics: _Metrics = None,
    ignore: _Ignore = None,
    seed: Annotated[str | None, typer.Option(help="Column of the seed; default: seed.")] = None,
    step: Annotated[
        str | None, typer.Option(help="Column of steps, if each row is one report of a trial.")
    ] = None,
    name: _Name = None,
) -> None:
    """Import a CSV table with a row for each trial, or, with --step, for each report."""
    from sweeps.batch.imports.cells import Asked
    from sweeps.batch.imports.csv_table import read_csv

    asked = Asked(
        objective, _end(direction), _names(params), _names(metrics), _names(ignore), seed, step
    )
    _import(read_csv(file, asked), name)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _end(direction: str | None) -> "Direction | None":
    return cast("Direction | None", direction)


def _import(found: "Found", name: str | None) -> None:
    """Import into the store of NDSWEEP_HOME; print what was taken and what the source lacks."""
    from sweeps.batch.imports.as_sweep import import_found

    store = open_store()
    try:
        report = import_found(store, found, name=name)
    finally:
        store.close()
    done = report.sweep
    again = f", {done.replaced} failed ones replaced" if done.replaced else ""
    typer.echo(f"{done.sweep.id}  {done.sweep.name}: {done.added} trials added{again}")
    for word, lines in (("taken", report.taken), ("lacks", report.lacks)):
        for line in lines:
            typer.echo(f"{word}: {line}")


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
    from service.settings import Settings

    store = open_store(to_read=True)
    try:
        if what == _PAPER:
            return paper_document(PaperRuns(runs_of_store(store)))
        return report_document(store, what, Settings().home)
    finally:
        store.close()
