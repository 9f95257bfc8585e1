"""``ndsweep agent ID -- COMMAND``: runs a command for each trial of a sweep of agents."""

import shutil
import sys
from typing import Annotated, Any

import typer

from service.cli.sweeps import SweepId, Url, connect

#: Trials in a row that may fail before one was complete: then it is the command's fault.
MAX_FAILURES = 3


def agent(
    sweep_id: SweepId,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND…",
            help="What to run for a trial. {args} stands for all fields as --name value, {name} "
            "for the value of one, {config} for the path of a JSON file with all of them.",
        ),
    ],
    url: Url = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Trials to run at most; default: until the sweep has ended."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Who runs them, for people; default: host and process.")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=5, max=3600, help="Seconds without a sign of life after which others get its trial."
        ),
    ] = 60.0,
) -> None:
    """Run a command for each trial of a sweep, and report the lines of JSON that it prints.

    Start as many agents as you like, anywhere. docs/agents.md shows shell loops and Slurm.
    """
    from service.client.agents import Agent
    from service.client.command import run_command
    from worker.process.stop_signal import stop_requested

    with connect(url) as service, stop_requested() as stopping:
        _refuse(command, service.get(sweep_id).spec)
        asking = Agent(service, sweep_id, name=name, lease_seconds=lease)
        done = failures = 0
        while not stopping.is_set() and (count is None or done < count):
            trial = asking.ask(wait_seconds=2.0)
            if trial is None:
                if asking.is_over:
                    typer.echo(asking.reason, err=True)
                    return
                continue
            if stopping.is_set():
                trial.give_back("the agent was stopped")
                break
            typer.echo(f"trial {trial.number}  {trial.params}", err=True)
            ended = run_command(
                trial,
                command,
                url=service.url,
                stopping=stopping,
                out=sys.stdout,
                err=sys.stderr,
            )
            typer.echo(f"trial {trial.number}  {ended}", err=True)
            done += 1
            failures = failures + 1 if ended.startswith("failed") and failures == done - 1 else 0
            if failures == MAX_FAILURES:
                typer.echo(
                    f"ndsweep: the first {failures} trials failed; mend the command, then "
                    f"`ndsweep retry {sweep_id}`",
                    err=True,
                )
                raise typer.Exit(1)
        if stopping.is_set():
            raise typer.Exit(130)


def _refuse(command: list[str], spec: dict[str, Any]) -> None:
    """End with a sentence for a command that no trial could run."""
    from service.client.command import unknown_placeholder

    base, space = spec.get("base"), spec.get("space")
    fields = [
        *(base if isinstance(base, dict) else ()),
        *(space if isinstance(space, dict) else ()),
    ]
    problem = unknown_placeholder(command, sorted({*fields, "seed"}))
    if shutil.which(command[0]) is None:
        problem = f"there is no command {command[0]!r}"
    if problem is not None:
        typer.echo(f"ndsweep: {problem}", err=True)
        raise typer.Exit(2)
