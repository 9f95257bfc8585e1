"""Commands that start processes or check the installation: serve, runner, quickstart, doctor."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.terminal.options import one_of

if TYPE_CHECKING:
    from service.settings import Settings


PARTS = ("api", "runner", "mlflow", "ray")

Home = Annotated[
    Path | None, typer.Option(help="Folder of store, checkpoints and logs; default NDSWEEP_HOME.")
]
Host = Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port to listen on; default 8000 or the next free one."),
]


def settings_with(**options: object) -> "Settings":
    """Read settings from the environment, overridden by the given options."""
    from service.settings import Settings

    return Settings(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]


def serve(
    host: Host = None,
    port: Port = None,
    home: Home = None,
    only: Annotated[
        str | None,
        typer.Option(
            parser=one_of(*PARTS),
            metavar="|".join(PARTS),
            help="Run this part alone, in the foreground, as one container does.",
        ),
    ] = None,
) -> None:
    """Start the service: API and pages, runner, MLflow and Ray. Ctrl-C ends them all."""
    from service.supervision.supervisor import run_part, serve

    settings = settings_with(host=host, port=port, home=home)
    if only is not None:
        run_part(settings, only)
    else:
        serve(settings, _announce)


def _announce(endpoints: object) -> None:
    from service.settings import Settings
    from service.supervision.doctor import silent_parts
    from service.supervision.home import Endpoints

    assert isinstance(endpoints, Endpoints)
    typer.echo(f"Pages     {endpoints.url}/")
    typer.echo(f"API docs  {endpoints.url}/docs")
    typer.echo(f"MLflow    {endpoints.mlflow_url}")
    for sentence in silent_parts(Settings()):
        typer.echo(f"Waiting   {sentence}")
    typer.echo("Ctrl-C ends everything that was started.")


def runner(home: Home = None) -> None:
    """Run only the runner, which drives queued sweeps, with an existing store and Ray."""
    from service.supervision.supervisor import run_part

    run_part(settings_with(home=home), "runner")


def quickstart(
    once: Annotated[
        bool, typer.Option("--once", help="Exit when it has finished, with exit code 0.")
    ] = False,
    home: Home = None,
    port: Port = None,
) -> None:
    """Run a demo: a matched learning rate and a small sweep on real images, without GPU."""
    from service.cli.quickstart import run

    run(settings_with(home=home, port=port), once=once)


def doctor(
    home: Home = None,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Take from other users what they can read of the home."),
    ] = False,
) -> None:
    """Check this machine and this installation; exit code 1 if a problem is found."""
    from rich.console import Console

    from service.supervision.doctor import diagnose, print_findings

    findings = diagnose(settings_with(home=home), fix=fix)
    print_findings(Console(), findings)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
