"""Commands for matches: predict (closed form, at once) and run (measured)."""

from typing import Annotated, Any

import typer

from service.cli_sweeps import SpecFile, Url, connect, read_spec, watch_to_the_end

app = typer.Typer(
    help="Find the learning rate that moves weight vectors as fast as another setting does.",
    no_args_is_help=True,
)


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
            help="A field of the target; repeat it. Default: optimizer=ndadam",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Length of the run in steps.")] = 80_000,
    lr_schedule: Annotated[str, typer.Option(help="constant or cosine.")] = "constant",
    warmup_steps: Annotated[int, typer.Option(min=0, help="Steps of linear warm-up.")] = 0,
    level: Annotated[str | None, typer.Option(help="step or long_range.")] = None,
    gain: Annotated[float, typer.Option(help="A of ND-Adam's gradients.")] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole answer as JSON.")
    ] = False,
) -> None:
    """Answer in closed form, without a service and without training."""
    from rich.console import Console

    from service.predictions import PredictionSpec, answer
    from service.printing import print_prediction

    spec = PredictionSpec.model_validate(
        {
            "source": {"optimizer": "sgd", **_fields(source)},
            "target": {"optimizer": "ndadam", **_fields(target or [])},
            "steps": steps,
            "lr_schedule": lr_schedule,
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
    from sweeps.spec_text import load_spec_text

    fields: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}")
        if not value:
            raise typer.BadParameter(f"{name} has no value; write {name}=VALUE or leave it out")
        fields[name] = load_spec_text(value)
    return fields


@app.command()
def run(
    spec: SpecFile,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: the same key submits the same match once."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit it and do not wait.")] = False,
    url: Url = None,
) -> None:
    """Submit a measured match and show it until its verdict."""
    with connect(url) as service:
        match = service.match(read_spec(spec), idempotency_key=key)
        typer.echo(f"{match.id}  {service.url}/matches/{match.id}")
        if not detach:
            watch_to_the_end(service, match)
