"""Commands after a sweep's results: extend, confirm, compare; and label, delete."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from service.cli.sweeps import SweepId, Url, connect, report
from service.cli.terminal.options import one_of, writing

if TYPE_CHECKING:
    from sweeps.analysis.table import Format


TABLES = ("text", "markdown", "latex", "csv", "json")


def extend(
    sweep_id: SweepId,
    more_points: Annotated[
        int | None, typer.Option("--more-points", min=1, help="Number of points to add.")
    ] = None,
    points: Annotated[int | None, typer.Option(min=1, help="Points in total.")] = None,
    replicates: Annotated[
        int | None, typer.Option(min=1, help="Seeds of each point in total.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--budget-trials", min=1, help="New limit of trials.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--budget-gpu-hours", help="New limit of GPU-hours.")
    ] = None,
    wall_seconds: Annotated[
        float | None, typer.Option("--budget-wall-seconds", help="New limit of wall time.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--budget-steps", min=1, help="New limit of steps.")
    ] = None,
    url: Url = None,
) -> None:
    """Give a sweep more points, more seeds or a larger budget, and continue it."""
    budget = {
        name: value
        for name, value in (
            ("trials", trials),
            ("gpu_hours", gpu_hours),
            ("wall_seconds", wall_seconds),
            ("steps", steps),
        )
        if value is not None
    }
    if not budget and more_points is None and points is None and replicates is None:
        raise typer.BadParameter(
            "name what to extend: --more-points or --points, --replicates, or a larger "
            "budget (--budget-trials, --budget-gpu-hours, --budget-wall-seconds, --budget-steps)"
        )
    with connect(url) as service:
        if more_points is not None:
            if points is not None:
                raise typer.BadParameter("give --points or --more-points, not both")
            now = service.get(sweep_id).spec.get("num_points")
            if now is None:
                raise typer.BadParameter(f"sweep {sweep_id} already tries every point of its space")
            # A total: the request may be sent again.
            points = now + more_points
        totals: dict[str, Any] = {"num_points": points, "replicates": replicates}
        asked = {name: value for name, value in totals.items() if value is not None}
        report(service.extend(sweep_id, **asked, **({"budget": budget} if budget else {})))


def confirm(
    sweep_id: SweepId,
    points: Annotated[
        int, typer.Option(min=1, help="How many of the best points of each optimizer.")
    ] = 1,
    replicates: Annotated[int, typer.Option(min=2, help="Fresh seeds of each point.")] = 5,
    full: Annotated[
        bool,
        typer.Option(
            "--full-training-set", help="Train on the validation images too; read the test error."
        ),
    ] = False,
    url: Url = None,
) -> None:
    """Train the best points again on fresh seeds, for unbiased means."""
    with connect(url) as service:
        found = service.confirm(
            sweep_id, points=points, replicates=replicates, full_training_set=full
        )
        typer.echo(f"{found.id}  {service.url}/sweeps/{found.id}")


def compare(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="ID…", help="Sweeps; ID:3 is point 3 of one, ID:t4,t5 are its trials 4 and 5."
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to compare; default: the test error, else the objective."),
    ] = None,
    baseline: Annotated[
        int | None, typer.Option(min=0, help="Compare only with this arm, counted from 0.")
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            parser=one_of(*TABLES),
            metavar="|".join(TABLES),
            help="Format of the table.",
        ),
    ] = "text",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", dir_okay=False, help="File to write.")
    ] = None,
    url: Url = None,
) -> None:
    """Compare finished sweeps, points or trials: differences with intervals, differing fields."""
    from sweeps.analysis.result_tables import comparison_csv, comparison_text

    how = {"metric": metric, "baseline": baseline}
    with connect(url) as service:
        found = service.compare([_arm(text) for text in arms], **how).model_dump(mode="json")
        sweeps = dict.fromkeys(arm["sweep"] for arm in found["arms"])
        declared = [service.get(one).spec.get("metrics") or {} for one in sweeps]
    if format == "json":
        text = json.dumps(found, indent=2) + "\n"
    elif format == "csv":
        text = comparison_csv(found, "differences")
    else:
        text = comparison_text(found, cast("Format", format), declared)
    if out is None:
        typer.echo(text, nl=False)
    else:
        from worker.atomic_file import write_asked

        with writing("--out"):
            write_asked(out, [text.encode()])


def _arm(text: str) -> dict[str, Any]:
    """Parse ``ID``, ``ID:3`` (a point) or ``ID:t4,t5`` (trials) to an arm of the API."""
    sweep_id, colon, part = text.partition(":")
    numbers = [word.removeprefix("t") for word in part.split(",")]
    if not colon:
        return {"sweep": sweep_id}
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise typer.BadParameter(f"expected ID, ID:POINT or ID:tTRIAL,tTRIAL, got {text!r}")
    if part.startswith("t"):
        return {"sweep": sweep_id, "trials": [int(number) for number in numbers]}
    return {"sweep": sweep_id, "point": int(numbers[0])}


def label(
    sweep_id: SweepId,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="A tag; may be repeated. Replaces all tags.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help="Free text. Replaces the notes.")] = None,
    url: Url = None,
) -> None:
    """Replace the tags or the notes of a sweep or match."""
    labels: dict[str, Any] = {"notes": notes} if notes is not None else {}
    if tag is not None:
        labels["tags"] = [word for word in tag if word]
    with connect(url) as service:
        sweep = service.edit(sweep_id, **labels)
        typer.echo(f"{sweep.id}  tags: {', '.join(sweep.tags) or 'none'}")


def delete(
    sweep_id: SweepId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
) -> None:
    """Cancel a sweep or match and delete it with all its records."""
    with connect(url) as service:
        sweep = service.get(sweep_id)
        if not yes:
            typer.confirm(f"Delete {sweep.kind} {sweep.name!r} ({sweep.state})?", abort=True)
        going = service.delete(sweep_id)
        ends = "deleted" if going is None else "will be deleted when its trials have stopped"
        typer.echo(f"{sweep_id}  {ends}")
