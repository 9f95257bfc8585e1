"""Commands for matches: predict (closed form), run (measured) and curve (for a closed loop)."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.sweeps import SpecFile, Url, connect, read_spec, watch_to_the_end

app = typer.Typer(
    help="Find the learning rate at which weight vectors move as fast as under another setting.",
    no_args_is_help=True,
)

Schedule = Annotated[
    str, typer.Option(help="constant, cosine, or points: '[[0, 1], [40000, 0.1]]'.")
]


@app.command()
def predict(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE…",
            help="The source's fields: optimizer=sgd lr=0.1 momentum=0.9 weight_decay=0.001",
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="KEY=VALUE",
            help="A field of the target; may be repeated. Default: optimizer=ndadam",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Length of the run in steps.")] = 80_000,
    lr_schedule: Schedule = "constant",
    warmup_steps: Annotated[int, typer.Option(min=0, help="Steps of linear warm-up.")] = 0,
    level: Annotated[str | None, typer.Option(help="step or long_range.")] = None,
    gain: Annotated[
        float, typer.Option(help="Gain A of ND-Adam's gradients; 1 = uncorrelated.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole answer as JSON.")
    ] = False,
) -> None:
    """Compute the match in closed form, without a service and without training."""
    from rich.console import Console

    from service.cli.terminal.printing import print_prediction
    from service.submission.prediction import PredictionSpec, answer

    spec = PredictionSpec.model_validate(
        {
            "source": {"optimizer": "sgd", **_fields(source)},
            "target": {"optimizer": "ndadam", **_fields(target or [])},
            "steps": steps,
            "lr_schedule": _value("--lr-schedule", lr_schedule),
            "warmup_steps": warmup_steps,
            "level": level,
            "gain": gain,
        }
    )
    found = answer(spec)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        print_prediction(Console(), found)


def _fields(assignments: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}")
        if not value:
            raise typer.BadParameter(f"{name} has no value; write {name}=VALUE or leave it out")
        if name in fields:
            raise typer.BadParameter(f"{name} is given twice, at last as {text!r}; leave one")
        fields[name] = _value(name, value)
    return fields


def _value(name: str, text: str) -> Any:
    from sweeps.errors import UnreadableSpec
    from sweeps.spec.text import load_spec_text

    try:
        return load_spec_text(text)
    except UnreadableSpec as error:
        why = str(error).partition(": ")[2]  # without the prefix that calls it a spec
        raise UnreadableSpec(f"{name} cannot be read, got {text!r}: {why}") from error


@app.command()
def curve(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE…",
            help="Setting with a closed-form curve: optimizer=sgd lr=0.1 …",
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Read the curve from a CSV file (step, effective_lr).")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Use the curve of the source trials of a match."),
    ] = None,
    trial: Annotated[
        str | None,
        typer.Option(metavar="SWEEP/NUMBER", help="Use the curve of one trial of a match."),
    ] = None,
    steps: Annotated[int, typer.Option(min=2, help="Length of the run in steps.")] = 80_000,
    lr_schedule: Schedule = "constant",
    url: Url = None,
) -> None:
    """Print a curve as the field ``follow``, with which ndadam trains in a closed loop."""
    from service.cli.match_input import follow_points

    with ExitStack() as opened:
        points = follow_points(
            _fields(source or []),
            csv=csv,
            match=match,
            trial=trial,
            steps=steps,
            lr_schedule=_value("--lr-schedule", lr_schedule),
            service=lambda: opened.enter_context(connect(url)),
        )
    typer.echo("follow:")
    for step, value in points:
        typer.echo(f"  - [{step}, {value:.6g}]")


@app.command()
def run(
    spec: SpecFile,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: the same key submits the same match once."),
    ] = None,
    source_curve: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file (step, effective_lr) of the source, which is then not trained."
        ),
    ] = None,
    source_trial: Annotated[
        str | None,
        typer.Option(
            metavar="SWEEP/NUMBER",
            help="A finished trial as the source; SPEC then has no base and no source.",
        ),
    ] = None,
    compare: Annotated[
        int | None,
        typer.Option(min=2, help="Also train both on this many fresh seeds and compare results."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Largest difference that still counts as not inferior; 0.005 = half a point."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit it and do not wait.")] = False,
    url: Url = None,
) -> None:
    """Submit a measured match and show its progress until the verdict."""
    from service.cli.match_input import of_trial, with_options

    body = with_options(read_spec(spec), curve=source_curve, compare=compare, margin=margin)
    with connect(url) as service:
        match = (
            service.match(body, idempotency_key=key)
            if source_trial is None
            else service.match_of_trial(of_trial(body, source_trial), idempotency_key=key)
        )
        typer.echo(f"{match.id}  {service.url}/matches/{match.id}")
        if not detach:
            watch_to_the_end(service, match)
