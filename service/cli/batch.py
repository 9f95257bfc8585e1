"""``ndsweep batch SPEC…``: runs specs on this machine, without a service; writes a file per run."""

from pathlib import Path
from typing import Annotated

import typer


def batch(
    specs: Annotated[
        list[Path],
        typer.Argument(metavar="SPEC…", exists=True, dir_okay=False, help="Sweep specs."),
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the results.")],
    gpus: Annotated[int, typer.Option(min=0, help="GPUs to use; 0 = train on the CPU.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; default: one per GPU, or one.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="When to end: 90s, 15m, 2h from now, or HH:MM. Runs that would not finish are not "
            "started; running ones write a checkpoint."
        ),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(min=1, help="Seeds per point, instead of each spec's own.")
    ] = None,
    seed_offset: Annotated[
        int, typer.Option(min=0, help="Added to the first seed of each spec.")
    ] = 0,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed runs again.")
    ] = False,
    data_home: Annotated[
        Path | None, typer.Option(help="Prepared data sets; default: NDSWEEP_DATA or the cache.")
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints; default: OUT/checkpoints.")
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds between two checkpoints of a run.")
    ] = 120.0,
    progress_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds between two progress lines of a process.")
    ] = 10.0,
    git_commit: Annotated[
        str | None, typer.Option(help="Git commit to record if the code is not a git checkout.")
    ] = None,
) -> None:
    """Run specs on this machine alone, one process per GPU; continue an earlier batch.

    Exit code 0: every run is done; 1: some failed; 2: refused; 3: some are left.
    """
    from sweeps.batch.plan import BatchRefused
    from sweeps.batch.run import REFUSED, BatchOptions, run_batch, say_on_stderr

    options = BatchOptions(
        specs=tuple(specs),
        out=out,
        gpus=gpus,
        processes=processes,
        until=until,
        replicates=replicates,
        seed_offset=seed_offset,
        retry_failed=retry_failed,
        data_home=data_home,
        checkpoints=checkpoints,
        checkpoint_seconds=checkpoint_seconds,
        progress_seconds=progress_seconds,
        git_commit=git_commit,
    )
    try:
        outcome = run_batch(options, say_on_stderr)
    except BatchRefused as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(REFUSED) from None
    typer.echo(outcome.table)
    raise typer.Exit(outcome.exit_code)
