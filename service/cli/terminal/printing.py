"""Tables on the terminal: sweeps, a match under every criterion, results with intervals."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ndadam.statistics.inference import MOST_SEEDS
from ndadam.theory.caveats import beta2_in_words
from service.client.client import Client
from service.contract.analysis import (
    ArmDifferenceOut,
    ArmOut,
    ConfirmedOut,
    FindingsOut,
    FrontOut,
    ImportanceOut,
    RungOut,
)
from service.contract.outputs import PageOut, PredictionOut, SweepOut, ValidationOut
from service.contract.people import TokenOut
from sweeps.analysis.formatting import (
    BRACKETS,
    NOTHING,
    arm_name,
    declared_unit,
    estimate_text,
    metric_title,
    metric_with_unit,
    settings_words,
    with_interval,
)
from sweeps.analysis.result_tables import Declared, shows_test_error
from sweeps.records import objective_of
from sweeps.store.database.copying import CopiedTable


def print_sweeps(console: Console, page: PageOut[SweepOut]) -> None:
    table = Table("id", "kind", "name", "state", "trials", "best (selected)", "created", box=None)
    for sweep in page.items:
        done = sum(count for state, count in sweep.trials.items() if state.is_finished())
        table.add_row(
            sweep.id,
            sweep.kind,
            escape(sweep.name),
            sweep.state,
            f"{done}/{'?' if sweep.num_trials is None else sweep.num_trials}",
            _best(sweep),
            f"{sweep.created_at:%Y-%m-%d %H:%M}",
        )
    console.print(table)
    if page.next:
        console.print("[dim]there are more; narrow with --state, --tag or --search[/]")


def _best(sweep: SweepOut) -> str:
    if sweep.best is None:
        return NOTHING
    metric = objective_of(sweep.spec).metric
    unit = declared_unit(_declared(sweep), metric)
    text = metric_with_unit(metric, sweep.best.mean, unit)
    wanted = sweep.spec.get("replicates") or 1
    if sweep.best.n < wanted and not sweep.state.is_finished():
        # More of its seeds are to come, and the mean will move.
        text += f", {sweep.best.n} of {wanted} seeds"
    return escape(text)


def _declared(sweep: SweepOut) -> dict[str, Any]:
    return sweep.spec.get("metrics") or {}


def print_tokens(console: Console, tokens: Sequence[TokenOut]) -> None:
    table = Table("id", "name", "owner", "scope", "expires", "last used", "quotas", box=None)
    for token in tokens:
        ends = (token.revoked_at, "revoked") if token.revoked_at else (token.expires_at, "")
        limits = (f"{k} {v:g}" for k, v in token.quotas.model_dump().items() if v is not None)
        table.add_row(
            token.id,
            escape(token.name),
            escape(token.owner),
            token.scope,
            f"{ends[1]} {ends[0]:%Y-%m-%d}".strip() if ends[0] else "never",
            f"{token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else NOTHING,
            ", ".join(limits) or NOTHING,
        )
    console.print(table)


def print_copied_tables(console: Console, tables: Sequence[CopiedTable]) -> None:
    shown = Table("table", "rows", "checksum", box=None)
    for table in tables:
        shown.add_row(table.name, f"{table.rows:,}", table.checksum[:16])
    console.print(shown)


def print_validation(console: Console, found: ValidationOut) -> None:
    def known(number: int | None) -> str:
        return "unknown until it runs" if number is None else f"{number:,}"

    console.print(f"[bold]{escape(found.name)}[/] can run. Nothing was created.")
    console.print(f"  points      {known(found.points)} × {found.replicates} seeds")
    console.print(f"  trials      {known(found.trials)}")
    console.print(f"  steps       {known(found.steps)}")
    console.print(f"  GPU-hours   {_hours(found)}")
    points = NOTHING
    if found.assumed_seed_deviation is not None:
        points = f"{100 * found.assumed_seed_deviation:.2f}"
    deviation = f"if seeds deviate by {points} points"
    if found.seed_deviation_is == "measured":
        deviation += ", as in earlier sweeps"
    if found.detectable_difference is not None:
        console.print(
            f"  detectable  {100 * found.detectable_difference:.2f} points between two arms, "
            f"{deviation}"
        )
    if found.difference is not None:
        # The search for the number doubles it, so it may stop at half of its limit.
        needed = found.seeds_needed
        seeds = f"more than {MOST_SEEDS // 2:,}" if needed is None else needed
        console.print(
            f"  seeds       {seeds} to show {100 * found.difference:.2f} points, {deviation}"
        )
    for note in found.notes:
        console.print(f"  note        {escape(note)}")


def _hours(found: ValidationOut) -> str:
    """Format GPU-hours on every measured card, or trial-hours if trials use no GPU."""
    if found.gpu_hours == 0:
        if not found.rates:
            return "none, trials run on CPUs; how long is not known yet"
        hours = found.rates[0].trial_hours
        return f"none; {hours:.2g} hours of trials on {escape(found.rates[0].card)}"
    if not found.rates:
        return "unknown; no trial of this shape has been trained yet"
    return "; ".join(
        f"{rate.gpu_hours:.2g} on {escape(rate.card)} (from {rate.trials} trials)"
        for rate in found.rates
    )


def print_outcome(console: Console, service: Client, sweep: SweepOut) -> None:
    """Print how a sweep or match ended, and its results."""
    reason = f": {escape(sweep.reason)}" if sweep.reason else ""
    console.print(f"[bold]{escape(sweep.name)}[/] {sweep.state}{reason}")
    if sweep.kind == "match" and sweep.result:
        print_match(console, sweep.result)
        print_cost(console, sweep.result)
    elif sweep.kind == "sweep" and any(sweep.trials.values()):
        print_results(console, service.analysis(sweep.id), _declared(sweep))


def print_prediction(console: Console, found: PredictionOut) -> None:
    beta2 = beta2_in_words(found.beta2_equivalent)
    console.print(
        f"source effective learning rate {_figures(found.effective_lr, 5)} per step at "
        f"equilibrium; settles with time constant {found.tau_steps:.0f} steps; "
        f"equivalent beta2 {beta2}; {_trusted(found)}"
    )
    table = Table("criterion", found.rate_name, "makes equal", box=None)
    for one in found.criteria:
        name = f"[bold]{one.criterion} ←[/]" if one.criterion == found.criterion else one.criterion
        table.add_row(name, _rate(one.rate), one.formula)
    console.print(table)
    notes = list(found.warnings)
    if found.criterion != "stationary":
        notes.append("The rate of schedule is its largest; --json prints its points.")
    for note in notes:
        console.print(f"[yellow]note[/] {escape(note)}")


def _trusted(found: PredictionOut) -> str:
    first, until = found.trust_from_step, found.trust_until_step
    if first >= until:
        return f"to be trusted at no step of {found.num_steps}"
    return f"to be trusted from step {first} until step {until}"


def print_match(console: Console, result: dict[str, Any]) -> None:
    """Print the match under every criterion with its interval, and the verdict's sentence."""
    table = Table("criterion", "closed form", "predicted", box=None)
    table.add_column("measured \\[95 %]", no_wrap=True)
    for row in result["criteria"]:
        name = f"[bold]{row['criterion']} ←[/]" if row["chosen"] else row["criterion"]
        table.add_row(
            name, _rate(row["closed_form"]), _rate(row["predicted"]), _range(row["measured"])
        )
    console.print(f"{result['rate_name']} of the target, by what is made equal:")
    console.print(table)
    verdict = result.get("verdict")
    if verdict:
        colour = {"matched": "green", "not shown": "yellow"}.get(verdict["state"], "red")
        console.print(f"[{colour}]{escape(verdict['sentence'])}[/]")
    comparison = result.get("comparison")
    if comparison:
        console.print(escape(comparison["sentence"]))
    notes = list(result.get("warnings", []))
    if verdict and verdict["schedule"]:
        notes.append(
            f"The schedule's {len(verdict['schedule'])} points, for lr_schedule of a config, are "
            "result.verdict.schedule of GET /api/v1/matches/ID."
        )
    for note in notes:
        console.print(f"[yellow]note[/] {escape(note)}")


def print_cost(console: Console, result: dict[str, Any]) -> None:
    """Print the trials, steps and seconds of a match's stages in one line."""
    stages = result.get("cost", [])
    if stages:
        console.print(
            "cost "
            + ", ".join(
                f"{one['stage']} {one['trials']} x {one['steps'] // one['trials']:,} steps in "
                f"{one['seconds']:.0f} s"
                for one in stages
            )
        )


def _rate(value: float | None) -> str:
    return NOTHING if value is None else _figures(value, 3)


def _figures(value: float, count: int) -> str:
    """Format with ``count`` significant figures, zeros included: rates range from 1e-5 to 1."""
    return f"{value:#.{count}g}"


def _range(interval: dict[str, Any] | None) -> str:
    return NOTHING if interval is None else escape(with_interval(_rate, **interval, form=BRACKETS))


def print_results(
    console: Console, found: FindingsOut, declared: Declared = MappingProxyType({})
) -> None:
    """Print a row for each arm: mean with its 95 % interval over seeds, errors in percent.

    ``declared``: metrics of the spec, which give units; {} for images.
    """
    shows_test = found.metric == "test_error" or shows_test_error(
        found.metric, found.arms, declared
    )
    metrics = [found.metric, *(["test_error"] if shows_test else [])]
    titles = (metric_title(metric, declared_unit(declared, metric)) for metric in metrics)
    table = Table("arm", *(escape(f"{one} (95 %)") for one in titles), "seeds", "point", box=None)
    for arm in found.arms:
        table.add_row(
            escape(arm_name(arm.arm)),
            estimate_text(found.metric, arm.objective),
            *([estimate_text("test_error", arm.test_error)] if shows_test else []),
            str(arm.objective.n if arm.objective else 0),
            _points(arm),
        )
    console.print(table)
    lines = [
        *(f"{arm_name(arm.arm)}: {_chosen(arm) or 'nothing was chosen'}" for arm in found.arms),
        *map(_difference, found.comparisons),
        *(_confirmation(row, declared) for row in found.confirmed),
        *_front(found.front, declared),
        *map(_importance, found.importance or ()),
        *(_rung(row, row.spearman) for row in found.rungs or () if row.spearman is not None),
    ]
    for line in lines:
        console.print(f"  {escape(line)}")
    for note in found.notes:
        console.print(f"[dim]{escape(note)}[/]")


def _points(arm: ArmOut) -> str:
    points = f"selected of {arm.points}" if arm.selected else str(arm.points)
    return f"{points} ({arm.points_diverged} diverged)" if arm.points_diverged else points


def _chosen(arm: ArmOut) -> str:
    return settings_words({n: value for n, value in arm.params.items() if n not in arm.arm})


def _difference(row: ArmDifferenceOut) -> str:
    a, b, metric = arm_name(row.a), arm_name(row.b), row.metric.replace("_", " ")
    if row.verdict == "not shown":
        return f"{a} against {b}: no difference shown in {metric}"
    return f"{a} is {row.verdict} than {b} in {metric}"


def _confirmation(row: ConfirmedOut, declared: Declared) -> str:
    """Format a point's result on fresh seeds, or the state of its confirmation."""
    name = f"point {row.point} confirmed by sweep {row.sweep}"
    if row.objective is None:
        return f"{name}: {row.state}"
    title = metric_title(row.metric, declared_unit(declared, row.metric))
    text = f"{name}: {title} {estimate_text(row.metric, row.objective)}"
    if not declared or row.test_error is not None:
        text += f", test error % {estimate_text('test_error', row.test_error)}"
    return f"{text} over {len(row.seeds)} fresh seeds"


def _front(front: FrontOut | None, declared: Declared) -> Iterator[str]:
    """A line for each point of a front, and what the front does not show."""
    if front is None:
        return
    for point in front.points:
        values = ", ".join(
            f"{metric_title(name, declared_unit(declared, name))} {estimate_text(name, found)}"
            for name, found in point.values.items()
        )
        yield f"on the front: point {point.point} ({settings_words(point.params)}): {values}"
    yield from front.notes


def _importance(row: ImportanceOut) -> str:
    shares = sorted(row.fields.items(), key=lambda item: -item[1])
    branch = f" ({arm_name(row.branch)})" if row.branch else ""
    return f"importance{branch}: {', '.join(f'{n} {100 * share:.0f} %' for n, share in shares)}"


def _rung(row: RungOut, spearman: float) -> str:
    return (
        f"rung at step {row.step}: ranks agree with the end by {spearman:.2f} "
        f"(Spearman, {row.points} points)"
    )
