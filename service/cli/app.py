"""The command ``ndsweep``: assembles the groups of commands without heavy imports."""

import typer

from service.cli.agent import agent
from service.cli.batch import batch
from service.cli.data import app as data
from service.cli.growth import compare, confirm, delete, extend, label
from service.cli.match import app as match
from service.cli.results import import_results, imports, report
from service.cli.serve import doctor, quickstart, runner, serve
from service.cli.sweeps import (
    cancel,
    export,
    list_sweeps,
    logs,
    pause,
    resume,
    retry,
    submit,
    watch,
)
from service.cli.terminal.failures import OneLineErrors
from service.cli.train import train
from service.cli.upkeep import backup, gc, restore, stores, token

app = typer.Typer(
    name="ndsweep",
    help="Run sweeps over hyperparameters; find learning rates that make optimizers comparable.",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(quickstart)
app.command()(runner)
app.command()(submit)
app.command()(watch)
app.command("list")(list_sweeps)
app.command()(logs)
app.command()(agent)
app.command()(cancel)
app.command()(pause)
app.command()(resume)
app.command()(extend)
app.command()(retry)
app.command()(confirm)
app.command()(label)
app.command()(delete)
app.command()(compare)
app.command()(export)
app.add_typer(match, name="match")
app.command(context_settings={"allow_extra_args": True})(train)
app.command()(batch)
app.command("import-results")(import_results)
app.add_typer(imports, name="import")
app.command()(report)
app.add_typer(data, name="data")
app.add_typer(token, name="token")
app.command()(gc)
app.command()(backup)
app.command()(restore)
app.add_typer(stores, name="store")
app.command()(doctor)
