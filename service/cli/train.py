"""``ndsweep train KEY=VALUE…``: one run, without a service."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from sweeps.spec.validation_messages import explain
from worker.config.train_config import FieldError, TrainConfig
from worker.errors import WorkerError
from worker.process.stop_signal import stop_requested

if TYPE_CHECKING:
    from worker.report import Report

#: Shown above the bar at every report, in this order.
_HEADLINE = ("train_loss", "train_error", "validation_error", "test_error")
#: Exit codes: invalid arguments; the loss became NaN or infinite; stopped by Ctrl-C.
REFUSED, DIVERGED, INTERRUPTED = 2, 3, 130


def train(
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE…",
            help="Fields of the training config, as JSON values or words: "
            "dataset=digits optimizer=ndadam alpha_v=0.05 betas=[0.9,0.99] steps=500",
            show_default=False,
        ),
    ] = None,
    data_home: Annotated[
        Path | None, typer.Option(help="Prepared data sets; default: NDSWEEP_DATA or the cache.")
    ] = None,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints; training continues from the newest.")
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print every report as one line of JSON.")
    ] = False,
) -> None:
    """Train one configuration and print its metrics. Ctrl-C writes a checkpoint and stops."""
    errors = Console(stderr=True)
    try:
        config = parse_assignments(assignments or [])
        last = _run(config, data_home, checkpoint_dir, json_lines)
    except ValidationError as error:
        for item in explain(error):
            line = f"refused: {item['path']}: {item['reason']}"
            errors.print(line, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(REFUSED) from None
    except FieldError as error:
        _refuse(errors, f"{error.field}: {error}")
    except WorkerError as error:
        _refuse(errors, str(error))
    if last is None or last.status == "running":
        errors.print(
            "stopped before the end"
            + (f"; continue with --checkpoint-dir {checkpoint_dir}" if checkpoint_dir else "")
        )
        raise typer.Exit(INTERRUPTED)
    if last.status == "diverged":
        errors.print(f"diverged: the loss was NaN or infinite at step {last.diverged_at_step}")
        raise typer.Exit(DIVERGED)


def parse_assignments(assignments: list[str]) -> TrainConfig:
    """Parse KEY=VALUE words to a config. Raises FieldError or pydantic's ValidationError."""
    fields: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise FieldError(assignment, f"every argument must be KEY=VALUE, got {assignment!r}")
        if not TrainConfig.has_field(key):
            raise FieldError(key, f"there is no field {key!r} in the training config")
        if key in fields:
            raise FieldError(key, f"{key} must be given once, got it twice")
        fields[key] = _parse_value(value)
    return TrainConfig.model_validate(fields)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a word, or a number or nesting too large to parse
        return text


def _run(
    config: TrainConfig, data_home: Path | None, checkpoint_dir: Path | None, json_lines: bool
) -> "Report | None":
    # Torch is imported here, because it would delay `ndsweep --help` by seconds.
    from worker.training.train import train as train_reports

    last: Report | None = None
    with stop_requested(once=True) as stop:
        reports = train_reports(
            config,
            data_home=data_home,
            checkpoint_dir=checkpoint_dir,
            stop=stop.is_set,
        )
        if json_lines:
            for last in reports:
                typer.echo(last.model_dump_json())
            return last
        with _progress() as progress:
            task = progress.add_task("training", total=None, rate="")
            for last in reports:
                progress.update(
                    task,
                    completed=last.step,
                    total=last.num_steps,
                    rate=f"{last.metrics.get('images_per_second', 0):,.0f} images/s",
                )
                progress.print(_headline(last), highlight=False, soft_wrap=True)
    if last is not None:
        Console().print(_metrics_table(last))
    return last


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),  # the width that the other columns leave
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
        expand=True,
    )


def _headline(report: "Report") -> str:
    found = [
        f"{name} {_shown(name, report.metrics[name])}"
        for name in _HEADLINE
        if name in report.metrics
    ]
    return "  ".join([f"step {report.step:,}", *found])


def _metrics_table(report: "Report") -> Table:
    table = Table("metric", "value", title=f"{report.status} at step {report.step}")
    for name, value in report.metrics.items():
        table.add_row(name, _shown(name, value))
    return table


def _shown(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if name.endswith("_error") else f"{value:.4g}"


def _refuse(errors: Console, sentence: str) -> NoReturn:
    errors.print(f"refused: {sentence}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(REFUSED)
