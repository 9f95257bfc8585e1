"""The top of a sweep's page: what to know and what to do at a glance."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from dashboards.formatting import config_value, duration, moment, number, plus_minus
from dashboards.quantities import quantity
from dashboards.reading import objective_metric, settings_text
from dashboards.results import half_width
from sweeps.records import Sweep, SweepState


@dataclass(frozen=True)
class Fact:
    """A label over a value."""

    label: str
    value: str | Markup
    detail: str | Markup = ""
    chip: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Action:
    """A button that posts to the API."""

    verb: str
    label: str
    #: What the page says once the service has accepted it.
    done: str
    style: str = ""
    #: Question to ask first, "" for none.
    confirm: str = ""


_PAUSE = Action("pause", "Pause", "Pause asked for: running trials keep their checkpoints.")
_RESUME = Action("resume", "Resume", "Queued again: what is recorded is kept.", "primary")
_CANCEL = Action(
    "cancel",
    "Cancel",
    "Cancel asked for: running trials stop at their next report.",
    "danger",
    "Cancel for good? Finished trials are kept; the rest will never run.",
)


def actions(sweep: Sweep) -> tuple[Action, ...]:
    """The buttons that make sense in the sweep's state."""
    if sweep.state in (SweepState.COMPLETE, SweepState.CANCELLED):
        return ()
    if sweep.state == SweepState.FAILED:
        return (_RESUME,)
    if sweep.state == SweepState.PAUSED or sweep.requested == "pause":
        return (_RESUME, _CANCEL)
    return () if sweep.requested == "cancel" else (_PAUSE, _CANCEL)


def sweep_facts(sweep: Sweep) -> tuple[Fact, ...]:
    """Best so far, time, and how the search is set up."""
    return (best_fact(sweep), *time_facts(sweep), *_search_facts(sweep.spec))


def best_fact(sweep: Sweep) -> Fact:
    """The best point by its mean, marked "selected": it was chosen by the numbers it shows."""
    metric = objective_metric(sweep)
    label = f"Best {quantity(metric).name}"
    best = sweep.best
    if best is None:
        return Fact(label, "–", "no point has finished", wide=True)
    half = half_width(best["sd"], best["n"])
    detail = Markup("point {}, n = {}: {}").format(
        best["point"], best["n"], settings_text(best["params"])
    )
    return Fact(label, plus_minus(metric, best["mean"], half), detail, chip="selected", wide=True)


def time_facts(sweep: Sweep) -> tuple[Fact, ...]:
    """How long it took and how long it will."""
    end = sweep.finished_at or datetime.now(UTC)
    took = (end - sweep.started_at).total_seconds() if sweep.started_at else None
    if sweep.state.is_finished():
        return (Fact("Took", duration(took), Markup("ended {}").format(moment(sweep.finished_at))),)
    created = Markup("created {}").format(moment(sweep.created_at))
    left = "from the trials so far" if sweep.eta_seconds is not None else "after the first trial"
    return (
        Fact("Time left", duration(sweep.eta_seconds), left),
        Fact("Running for", duration(took), created),
    )


def _search_facts(spec: dict[str, Any]) -> tuple[Fact, ...]:
    scheduler = (spec.get("scheduler") or {}).get("kind")
    replicates = spec.get("replicates") or 1
    resources = spec.get("resources") or {}
    gpus, cpus = resources.get("gpus", 0), resources.get("cpus", 1)
    needs = f"{config_value(gpus)} GPU" if gpus else f"{config_value(cpus)} CPU"
    base = spec.get("base") or {}
    network = f"WRN-{base.get('depth', 22)}-{config_value(base.get('widen_factor', 7.5))}"
    return (
        Fact(
            "Search",
            str(spec.get("sampler", "–")),
            f"pruned by {scheduler}" if scheduler else "nothing is pruned",
        ),
        Fact("Seeds per point", number(replicates), f"{needs} per trial"),
        Fact("Data", str(base.get("dataset", "cifar10")), network),
    )


def mirror_problem(sweep: Sweep) -> str:
    """A sentence when MLflow is behind, "" when all is well. Training does not depend on it."""
    mirror = sweep.mirror or {}
    if mirror.get("error"):
        return f"MLflow is not reached: {mirror['error']}. Nothing is lost; it is sent later."
    behind = mirror.get("behind_seconds") or 0
    return f"MLflow is {duration(behind)} behind." if behind > 60 else ""
