"""Commands for sweeps: submit, watch, list, cancel, pause, resume, retry, export."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from service.cli.terminal.options import one_of, writing

if TYPE_CHECKING:
    from service.client.client import Client, ExportFormat
    from service.contract.outputs import SweepOut

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="Address of the service; default: the service that runs on NDSWEEP_HOME."
    ),
]
SweepId = Annotated[str, typer.Argument(help="Id of the sweep or match.", metavar="ID")]
SpecFile = Annotated[Path, typer.Argument(help="A spec in YAML or JSON.", metavar="SPEC")]


EXPORT_FORMATS = ("csv", "json", "parquet")


def connect(url: str | None, token: str | None = None, **options: Any) -> "Client":
    """Connect to the service that ``url``, NDSWEEP_URL or the home's endpoints.json names.

    ``token``: default, that of the settings. ``options`` go to the client.
    """
    from service.client.client import Client
    from service.settings import DEFAULT_PORT, Settings
    from service.supervision.home import read_endpoints
    from service.supervision.ports import address

    settings = Settings()
    found = url or settings.url
    if found is None:
        endpoints = read_endpoints(settings.home)
        port = settings.port or DEFAULT_PORT
        found = endpoints.url if endpoints else address(settings.host, port)
    return Client(found, token or settings.secret(), **options)


def read_spec(path: Path) -> tuple[bytes, str]:
    """Read a spec file as the body of a request; the service checks it."""
    suffix = path.suffix.lower()
    media = "application/json" if suffix == ".json" else "application/yaml"
    return path.read_bytes(), media


def submit(
    spec: SpecFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the spec would do; create nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show its progress until it is finished.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: the same key submits the same sweep once."),
    ] = None,
    url: Url = None,
) -> None:
    """Submit a sweep."""
    from rich.console import Console

    from service.cli.terminal.printing import print_validation

    with connect(url) as service:
        if dry_run:
            print_validation(Console(), service.validate(read_spec(spec)))
            return
        sweep = service.submit(read_spec(spec), idempotency_key=key)
        typer.echo(f"{sweep.id}  {service.url}/sweeps/{sweep.id}")
        if watch:
            watch_to_the_end(service, sweep)


def watch(sweep_id: SweepId, url: Url = None) -> None:
    """Show the progress of a sweep or match until it is finished."""
    with connect(url) as service:
        watch_to_the_end(service, service.get(sweep_id))


def watch_to_the_end(service: "Client", sweep: "SweepOut") -> None:
    """Show a progress bar, then the results; exit code 1 unless the sweep ended complete."""
    from rich.console import Console

    from service.cli.terminal.printing import print_outcome
    from service.cli.terminal.progress import follow, progress_bars

    console = Console()
    with progress_bars(console) as bars:
        sweep = follow(service, sweep, bars, sweep.name)
    print_outcome(console, service, sweep)
    if sweep.state != "complete":
        raise typer.Exit(1)


def logs(
    sweep_id: SweepId,
    trial: Annotated[int, typer.Argument(min=0, help="Number of the trial.", metavar="TRIAL")],
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=10_000, help="Lines from the end.")
    ] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the trial has ended.")
    ] = False,
    url: Url = None,
) -> None:
    """Print the log of a trial: its end, or with --follow all of it as it is written."""
    with connect(url) as service:
        pieces = (
            service.follow_log(sweep_id, trial)
            if follow
            else iter([service.log(sweep_id, trial, lines)])
        )
        for piece in pieces:
            # What a training logs must not steer the terminal.
            shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in piece)
            typer.echo(shown, nl=False)


def list_sweeps(
    state: Annotated[str | None, typer.Option(help="Only sweeps in this state.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only sweeps with this tag.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only sweeps of this owner.")] = None,
    search: Annotated[str | None, typer.Option(help="Only names or notes with this text.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 50,
    url: Url = None,
) -> None:
    """List sweeps and matches, newest first."""
    from rich.console import Console

    from service.cli.terminal.printing import print_sweeps

    with connect(url) as service:
        page = service.list_sweeps(state=state, tag=tag, owner=owner, search=search, limit=limit)
        print_sweeps(Console(), page)


def cancel(sweep_id: SweepId, url: Url = None) -> None:
    """End a sweep or match for good."""
    with connect(url) as service:
        report(service.cancel(sweep_id))


def pause(sweep_id: SweepId, url: Url = None) -> None:
    """Stop a sweep and release its resources; `resume` continues it."""
    with connect(url) as service:
        report(service.pause(sweep_id))


def resume(sweep_id: SweepId, url: Url = None) -> None:
    """Continue a paused or failed sweep."""
    with connect(url) as service:
        report(service.resume(sweep_id))


def retry(sweep_id: SweepId, url: Url = None) -> None:
    """Run the failed trials of a sweep again."""
    with connect(url) as service:
        report(service.retry(sweep_id))


def report(sweep: "SweepOut") -> None:
    """Print a sweep's state in one line."""
    wish = f", {sweep.requested} requested" if sweep.requested != "none" else ""
    typer.echo(f"{sweep.id}  {sweep.state}{wish}")


def export(
    sweep_id: SweepId,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            parser=one_of(*EXPORT_FORMATS),
            metavar="|".join(EXPORT_FORMATS),
            help="Format of the file.",
        ),
    ] = "csv",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", dir_okay=False, help="File to write; default: standard output."
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Export the trials of a sweep or match."""
    with connect(url) as service:
        pieces = service.export(sweep_id, cast("ExportFormat", format))
        if out is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        from worker.atomic_file import write_asked

        with writing("--out"):
            write_asked(out, pieces)
