"""The top of a sweep's page: what to know and what to do at a glance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from dashboards.formatting import config_value, duration, moment, number, plus_minus
from dashboards.quantities import quantity
from dashboards.reading import objective_metric, settings_text
from dashboards.results import half_width
from sweeps.records import Sweep, SweepState, Trial, TrialState
from sweeps.spec_model import MAX_TRIALS


@dataclass(frozen=True)
class Fact:
    """A label over a value."""

    label: str
    value: str | Markup
    detail: str | Markup = ""
    chip: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Number:
    """A number that an action asks for. Sent to the API under ``name``."""

    name: str
    label: str
    value: int
    least: int
    most: int


@dataclass(frozen=True)
class Action:
    """A button that posts to the API."""

    verb: str
    label: str
    #: What the page says once the service has accepted it.
    done: str
    style: str = ""
    #: What the action needs to know.
    numbers: tuple[Number, ...] = ()
    #: What to know before it is sent: the button then opens, and shows it beside another.
    about: str = ""
    #: Label of that other button, where it is not the action's own.
    sure: str = ""


_PAUSE = Action("pause", "Pause", "Pause asked for: running trials keep their checkpoints.")
_RESUME = Action("resume", "Resume", "Queued again: what is recorded is kept.", "primary")
_CANCEL = Action(
    "cancel",
    "Cancel",
    "Cancel asked for: running trials stop at their next report.",
    "danger",
    about="Finished trials are kept; the rest will never run. Pause instead to go on later.",
    sure="Cancel for good",
)


def actions(sweep: Sweep) -> tuple[Action, ...]:
    """The buttons that make sense in the sweep's state."""
    is_sweep = sweep.kind == "sweep"
    found = [*_steering(sweep)]
    if sweep.trials[TrialState.FAILED] and _may_go_on(sweep):
        found.append(_retry(sweep.trials[TrialState.FAILED]))
    if is_sweep and _may_go_on(sweep):
        found.append(_extend(sweep.spec))
    if is_sweep and sweep.state.is_finished() and sweep.best is not None:
        found.append(_CONFIRM)
    return tuple(found)


def retry_note(sweep: Sweep) -> str:
    """Why there is nothing to retry, or why some of what ended badly is not; "" if all is well."""
    failed, diverged = sweep.trials[TrialState.FAILED], sweep.trials[TrialState.DIVERGED]
    notes = []
    if failed and not _may_go_on(sweep):
        what = "is being cancelled" if _is_ending(sweep) else "is cancelled"
        notes.append(f"Failed trials cannot be retried: the sweep {what}. Clone it to run them.")
    if diverged:
        notes.append(
            "Diverged trials are not retried: the same settings and seed would diverge again."
        )
    return " ".join(notes)


def retry_of_trial(sweep: Sweep, trial: Trial) -> Action | None:
    """The button of a failed trial's page: it retries every failed trial of the sweep."""
    if trial.state != TrialState.FAILED or not _may_go_on(sweep):
        return None
    return _retry(sweep.trials[TrialState.FAILED])


def trial_note(sweep: Sweep, trial: Trial) -> str:
    """Why a trial that ended without a result is not retried, "" for all others."""
    if trial.state == TrialState.FAILED and not _may_go_on(sweep):
        return retry_note(replace(sweep, trials={**sweep.trials, TrialState.DIVERGED: 0}))
    return {
        TrialState.DIVERGED: "Not retried: the same settings and seed would diverge again.",
        TrialState.PRUNED: "Not retried: the scheduler stopped this point for being behind others.",
        TrialState.CANCELLED: "Not retried: it was cancelled with its sweep.",
    }.get(trial.state, "")


def _may_go_on(sweep: Sweep) -> bool:
    return sweep.state != SweepState.CANCELLED and not _is_ending(sweep)


def _is_ending(sweep: Sweep) -> bool:
    return sweep.requested in ("cancel", "delete")


def _steering(sweep: Sweep) -> tuple[Action, ...]:
    if sweep.state in (SweepState.COMPLETE, SweepState.CANCELLED):
        return ()
    if sweep.state == SweepState.FAILED:
        return (_RESUME,)
    if sweep.state == SweepState.PAUSED or sweep.requested == "pause":
        return (_RESUME, _CANCEL)
    return () if _is_ending(sweep) else (_PAUSE, _CANCEL)


def _retry(failed: int) -> Action:
    words = "1 failed trial" if failed == 1 else f"{failed} failed trials"
    return Action("retry", f"Retry {words}", f"Queued again: {words} will run once more.")


def _extend(spec: dict[str, Any]) -> Action:
    replicates = spec.get("replicates") or 1
    numbers = [Number("replicates", "seeds per point", replicates, replicates, 1000)]
    points = spec.get("num_points")
    if points:
        numbers.insert(0, Number("num_points", "points in all", points + 10, points, MAX_TRIALS))
    return Action(
        "extend",
        "Extend",
        "Extended: what is recorded is kept, and the rest is trained.",
        numbers=tuple(numbers),
        about="The numbers are totals. What is recorded is kept.",
    )


_CONFIRM = Action(
    "confirm",
    "Confirm",
    "Queued: the best points train on fresh seeds.",
    "primary",
    numbers=(
        Number("points", "best points, of each optimizer", 1, 1, 50),
        Number("replicates", "fresh seeds of each", 5, 2, 1000),
    ),
    about="The best of many is partly luck. A new sweep trains it again on seeds that had no part "
    "in choosing it.",
)


def sweep_facts(sweep: Sweep, confirmations: Sequence[Sweep] = ()) -> tuple[Fact, ...]:
    """Best so far, what confirmed it, time, cost, and how the search is set up."""
    return (
        best_fact(sweep),
        *(_confirmation_fact(one) for one in confirmations),
        *time_facts(sweep),
        cost_fact(sweep),
        *_search_facts(sweep.spec),
    )


def _confirmation_fact(confirming: Sweep) -> Fact:
    """What fresh seeds say of the best points, or how far they are."""
    link = Markup('<a href="/sweeps/{}">{}</a>').format(confirming.id, confirming.name)
    best = confirming.best
    if best is None:
        return Fact("Confirmation", confirming.state.value, link, wide=True)
    metric = objective_metric(confirming)
    return Fact(
        f"{quantity(metric).name} on fresh seeds".capitalize(),
        plus_minus(metric, best["mean"], half_width(best["sd"], best["n"])),
        Markup("n = {}: {}").format(best["n"], link),
        chip="confirmed" if confirming.state == SweepState.COMPLETE else confirming.state.value,
        wide=True,
    )


def cost_text(sweep: Sweep) -> str:
    """Time that trials took on what each of them occupied: GPU time, else CPU time."""
    resources = sweep.spec.get("resources") or {}
    gpus = float(resources.get("gpus") or 0.0)
    if gpus:
        return f"{duration(gpus * sweep.trial_seconds)} GPU"
    return f"{duration(float(resources.get('cpus') or 1.0) * sweep.trial_seconds)} CPU"


def cost_fact(sweep: Sweep) -> Fact:
    """What ended attempts have cost."""
    ended = sum(sweep.trials[state] for state in TrialState if state.is_finished())
    value = cost_text(sweep) if sweep.trial_seconds else "–"
    return Fact(
        "Cost so far" if not sweep.state.is_finished() else "Cost", value, f"{ended} trials"
    )


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
    # A confirmation's points were chosen elsewhere, on other seeds.
    chip = "on fresh seeds" if sweep.spec.get("confirms") else "selected"
    return Fact(label, plus_minus(metric, best["mean"], half), detail, chip=chip, wide=True)


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
