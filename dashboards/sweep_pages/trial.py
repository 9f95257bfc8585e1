"""The page of one trial."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from dashboards.plots.usage import panels_of
from dashboards.plots.views import CURVE_VIEWS
from dashboards.sweep_pages.buttons import retry_of_trial, trial_note
from dashboards.sweep_pages.overview import Fact, resources_text
from dashboards.sweep_pages.plots import METRIC_PLOTS
from dashboards.sweep_pages.usage import detail_text, hours_text
from dashboards.web.error_pages import PageRoute
from dashboards.web.templating import page
from dashboards.wording.formatting import (
    caption,
    config_value,
    duration,
    number,
    quantity_value,
    upper_first,
)
from dashboards.wording.sweep_facts import (
    StoreDep,
    address,
    mlflow_run,
    objective_quantities,
    objective_quantity,
    settings_text,
)
from sweeps.figures.quantities import LAYER_QUANTITIES, quantity
from sweeps.records import Attempt, Sweep, Trial
from sweeps.store.store import Store
from worker.config.training import IMAGES


@dataclass(frozen=True)
class LogEnd:
    """The last lines of a log."""

    text: str
    #: Bytes of the log up to its end.
    size: int


#: (sweep id, trial number) -> the end of the trial's log.
ReadLog = Callable[[str, int], LogEnd]

router = APIRouter(route_class=PageRoute, include_in_schema=False)


def _provided_log(request: Request) -> ReadLog:
    read_log: ReadLog = request.state.read_log
    return read_log


ReadLogDep = Depends(_provided_log)


@dataclass(frozen=True)
class CheckpointFile:
    """A file from which a trial can continue."""

    name: str
    #: Step at which it was written; None if its name does not contain it.
    step: int | None
    #: In bytes.
    size: int
    at: datetime


#: (sweep id, trial number) -> the trial's checkpoints, newest first.
ListCheckpoints = Callable[[str, int], list[CheckpointFile]]


def _provided_checkpoints(request: Request) -> ListCheckpoints:
    listing: ListCheckpoints = request.state.list_checkpoints
    return listing


CheckpointsDep = Depends(_provided_checkpoints)


@dataclass(frozen=True)
class AttemptRow:
    """One attempt at the trial, with the machine from its provenance."""

    attempt: Attempt
    seconds: float
    host: str
    device: str
    memory: str
    mlflow: str | None


@router.get("/sweeps/{sweep_id}/trials/{number}")
def trial_page(
    request: Request,
    sweep_id: str,
    number: int,
    store: Store = StoreDep,
    read_log: ReadLog = ReadLogDep,
    list_checkpoints: ListCheckpoints = CheckpointsDep,
) -> HTMLResponse:
    """Config, provenance, curves, attempts and log of one trial."""
    sweep, trial = store.get_sweep(sweep_id), store.trial(sweep_id, number)
    seen = store.last_event_id(sweep.id)
    log = read_log(sweep.id, trial.number)
    names = set(trial.metrics)
    recorded = names | set(store.series_names(sweep.id) if trial.measurement else ())
    return page(
        "trial.html",
        title=f"Trial {trial.number} of {sweep.name}",
        curve_views=CURVE_VIEWS,
        views=dict(request.query_params),
        section="matches" if sweep.kind == "match" else "sweeps",
        section_address="/matches" if sweep.kind == "match" else "/",
        events=f"/api/v1/sweeps/{sweep.id}/events?after={seen}",
        is_over=trial.state.is_finished(),
        metric_plots=_metric_plots(sweep, names),
        layer_plots=[
            (stem, caption(stem))
            for stem in LAYER_QUANTITIES
            if any(name.startswith(f"{stem}/") for name in recorded)
        ],
        usage_panels=(
            panels_of(store.usage_names(sweep.id))
            if trial.usage.memory_megabytes is not None
            else []
        ),
        attempts=[_attempt_row(sweep, attempt) for attempt in trial.attempts],
        provenance=_provenance(trial),
        log_size=log.size,
        log_parts=_log_parts(log.text),
        checkpoints=list_checkpoints(sweep.id, trial.number),
        **_overview(sweep, trial),
    )


@router.get("/sweeps/{sweep_id}/trials/{number}/parts/overview")
def trial_part(sweep_id: str, number: int, store: Store = StoreDep) -> HTMLResponse:
    """State and figures of one trial."""
    sweep, trial = store.get_sweep(sweep_id), store.trial(sweep_id, number)
    return page("sweep/trial.html", **_overview(sweep, trial))


#: Plots of metrics that a training of one's own reports; a page with more would not be read.
_MOST_PLOTS = 12
#: Metrics whose name can stand in an address.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _metric_plots(sweep: Sweep, names: Collection[str]) -> list[tuple[str, str]]:
    """Key and caption of each plot: known metrics together, others of own trainings apart."""
    plots = METRIC_PLOTS
    if sweep.training != IMAGES:
        # Others of the same name mean something else there.
        plots = {key: METRIC_PLOTS[key] for key in ("errors", "train_loss")}
    known = {name for _, members in plots.values() for name in members}
    own = sorted(n for n in names if n not in known and _PLAIN_NAME.fullmatch(n))
    # What images report beside these is about a whole run, not over steps.
    if sweep.training == IMAGES:
        own = [name for name in own if name in sweep.metrics]
    shown = own[:_MOST_PLOTS]
    return [
        *(
            (key, title)
            for key, (title, members) in plots.items()
            if not set(members).isdisjoint(names)
        ),
        *(
            (name, upper_first(quantity(name, sweep.metrics, sweep.training).name))
            for name in shown
        ),
    ]


def _log_parts(text: str) -> list[tuple[bool, str]]:
    """A log's lines, those apart that begin an attempt: whether they do, and the text."""
    parts: list[tuple[bool, str]] = []
    for begins, lines in groupby(text.splitlines(keepends=True), is_attempt_start):
        text = "".join(lines)
        # What follows a line of its own begins on the next.
        parts.append((begins, text.rstrip("\n") if begins else text))
    return parts


def is_attempt_start(line: str) -> bool:
    """Whether a line of a log is the first of an attempt; see ``worker.tune_trainable``."""
    return _ATTEMPT_START.match(line) is not None


#: 0.1.0 did not number attempts. Its like is in static/log.js.
_ATTEMPT_START = re.compile(r"^[-\d]+ [:,\d]+ INFO attempt (\d+ )?starts in process \d+")


def _overview(sweep: Sweep, trial: Trial) -> dict[str, Any]:
    return {
        "sweep": sweep,
        "trial": trial,
        "here": f"/sweeps/{sweep.id}/trials/{trial.number}",
        "parent": address(sweep),
        "facts": _facts(sweep, trial),
        "retry": retry_of_trial(sweep, trial),
        "retry_note": trial_note(sweep, trial),
    }


def _facts(sweep: Sweep, trial: Trial) -> tuple[Fact, ...]:
    metric = objective_quantity(sweep)
    of = f" / {number(trial.num_steps)}" if trial.num_steps else ""
    end = trial.finished_at or datetime.now(UTC)
    took = (end - trial.started_at).total_seconds() if trial.started_at else None
    diverged = trial.diverged_at_step
    progress = "" if diverged is None else f"loss not finite at step {number(diverged)}"
    return (
        _setting_fact(sweep, trial),
        Fact(metric.name.capitalize(), quantity_value(metric, trial.objective)),
        *(
            Fact(other.name.capitalize(), quantity_value(other, trial.metrics.get(other.key)))
            for other in objective_quantities(sweep)[1:]
        ),
        Fact("Step", f"{number(trial.step)}{of}", progress),
        Fact("Seed", str(trial.seed), f"point {trial.point}"),
        _resources_fact(sweep, trial),
        *_usage_fact(sweep, trial),
        Fact("Took" if trial.state.is_finished() else "Running for", duration(took)),
    )


def _resources_fact(sweep: Sweep, trial: Trial) -> Fact:
    """The resources of the trial, and its speed."""
    speed = trial.metrics.get("images_per_second")
    return Fact("Resources", resources_text(sweep), f"{number(speed, 3)} images/s" if speed else "")


def _usage_fact(sweep: Sweep, trial: Trial) -> tuple[Fact, ...]:
    """What the trial used of its machine; nothing where nothing was measured."""
    use = trial.usage
    if use.memory_megabytes is None:
        return ()
    if sweep.resources.gpus and use.gpu_hours is None:
        return (Fact("Cost", "not measured", "the card cannot be read: the log says why"),)
    return (Fact("Cost", hours_text(use), detail_text(use)),)


def _setting_fact(sweep: Sweep, trial: Trial) -> Fact:
    """The optimizer, of images, or the training; and what the point sets."""
    label, named = "Training", sweep.training
    rest = dict(trial.params)
    if sweep.training == IMAGES:
        label, named = "Optimizer", str(trial.config.get("optimizer", "–"))
        rest.pop("optimizer", None)
    settings = settings_text(rest, sweep.training)
    return Fact(
        label, named, settings or Markup("everything else as in the base config"), wide=True
    )


def _memory(about: dict[str, Any]) -> str:
    """Peak memory; of a trial that shared its card, that of all trials of its process."""
    for name, of in (("peak_memory_bytes", ""), ("host_peak_memory_bytes", " of all on the card")):
        if isinstance(value := about.get(name), int | float):
            return f"{value / 2**20:,.0f} MiB{of}"
    return "–"


def _attempt_row(sweep: Sweep, attempt: Attempt) -> AttemptRow:
    end = attempt.finished_at or datetime.now(UTC)
    about = attempt.provenance
    return AttemptRow(
        attempt=attempt,
        seconds=(end - attempt.started_at).total_seconds(),
        host=str(about.get("host", "–")),
        device=str(about.get("card") or about.get("device") or "–"),
        memory=_memory(about),
        mlflow=mlflow_run(sweep, attempt.mlflow_run_id),
    )


def _provenance(trial: Trial) -> list[tuple[str, object]]:
    """The last attempt's provenance as pairs, nested ones under a dotted name."""
    if not trial.attempts:
        return []
    return sorted(_flat("", trial.attempts[-1].provenance))


def _flat(prefix: str, values: dict[str, Any]) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        # The probe lists every layer; the match's page shows it as a table.
        if isinstance(value, dict) and len(value) <= 12:
            pairs += _flat(f"{name}.", value)
        else:
            pairs.append((name, config_value(value)))
    return pairs
