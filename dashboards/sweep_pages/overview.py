"""The top of a sweep's page: main facts and buttons."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from dashboards.sweep_pages.buttons import actions, retry_note
from dashboards.sweep_pages.results import best_text, standing_of_best
from dashboards.sweep_pages.usage import detail_text
from dashboards.wording.formatting import choice_word, config_value, duration, moment, number
from dashboards.wording.sweep_facts import (
    mlflow_experiment,
    objective_quantities,
    objective_quantity,
    progress,
    settings_text,
)
from sweeps.figures.quantities import quantity
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.store.database.people import acting, may_change
from sweeps.store.store import Store
from worker.config.train_config import TrainConfig
from worker.config.training import IMAGES

#: Fields of the config that the card about the data shows, and those that size a network.
_TRAINED = ("dataset", "network", "depth", "widen_factor")
_SIZE = ("depth", "widen_factor")


@dataclass(frozen=True)
class Fact:
    """A label over a value."""

    label: str
    value: str | Markup
    detail: str | Markup = ""
    chip: str = ""
    wide: bool = False


def sweep_facts(sweep: Sweep, confirmations: Sequence[Sweep] = ()) -> tuple[Fact, ...]:
    """Best so far, what confirmed it, time, cost, and how the search is set up."""
    return (
        *_front_fact(sweep),
        best_fact(sweep),
        *(_confirmation_fact(one) for one in confirmations),
        *time_facts(sweep),
        cost_fact(sweep),
        *_search_facts(sweep),
    )


def _confirmation_fact(confirming: Sweep) -> Fact:
    """Result of the confirmation on fresh seeds, or its state."""
    link = Markup('<a href="/sweeps/{}">{}</a>').format(confirming.id, confirming.name)
    best = confirming.best
    if best is None:
        return Fact("Confirmation", confirming.state.value, link, wide=True)
    return Fact(
        f"{objective_quantity(confirming).name} on fresh seeds".capitalize(),
        best_text(confirming, best),
        Markup("n = {}: {}").format(best["n"], link),
        chip="confirmed" if confirming.state == SweepState.COMPLETE else confirming.state.value,
        wide=True,
    )


def cost_text(sweep: Sweep) -> str:
    """GPU time of all trials, or CPU time if they use no GPU."""
    needs = sweep.resources
    if needs.gpus:
        return f"{duration(needs.gpus * sweep.trial_seconds)} GPU"
    return f"{duration(needs.cpus * sweep.trial_seconds)} CPU"


def resources_text(sweep: Sweep) -> str:
    """Resources of one trial: its share of a GPU, or its CPUs."""
    needs = sweep.resources
    return f"{config_value(needs.gpus)} GPU" if needs.gpus else f"{config_value(needs.cpus)} CPU"


def cost_fact(sweep: Sweep) -> Fact:
    """Cost of ended attempts."""
    ended = sum(sweep.trials[state] for state in TrialState if state.is_finished())
    value = cost_text(sweep) if sweep.trial_seconds else "–"
    on_cards = detail_text(sweep.usage) if sweep.usage.gpu_hours is not None else ""
    return Fact(
        "Cost so far" if not sweep.state.is_finished() else "Cost",
        value,
        ", ".join(filter(None, (f"{ended} trials", on_cards))),
    )


def best_fact(sweep: Sweep) -> Fact:
    """The best point by its mean, with how far that is to be trusted."""
    label = f"Best {objective_quantity(sweep).name}"
    if sweep.has_front:
        label += ", the first objective"
    best = sweep.best
    if best is None:
        return Fact(label, "–", "no point has finished", wide=True)
    standing = standing_of_best(sweep)
    seeds = f"n = {best['n']}"
    if standing == "provisional":
        seeds = f"{best['n']} of {sweep.replicates} seeds so far"
    detail = Markup("point {}, {}: {}").format(
        best["point"], seeds, settings_text(best["params"], sweep.training)
    )
    return Fact(label, best_text(sweep, best), detail, chip=standing, wide=True)


def _front_fact(sweep: Sweep) -> tuple[Fact, ...]:
    """How many points the front has, and how many of them are shown to differ."""
    if not sweep.has_front:
        return ()
    front = (sweep.result or {}).get("front")
    names = ", ".join(what.name for what in objective_quantities(sweep))
    if front is None or not front["points"]:
        return (Fact("Front", "–", names),)
    count, distinct = len(front["points"]), front["num_distinct"]
    shown = "" if distinct is None else f"; {distinct} shown to differ from all others"
    points = f"{count} of {front['num_points']} points"
    return (Fact("Front", points, f"{names}{shown}", wide=True),)


def time_facts(sweep: Sweep) -> tuple[Fact, ...]:
    """Time taken and time left."""
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


def _search_facts(sweep: Sweep) -> tuple[Fact, ...]:
    scheduler = (sweep.scheduler or {}).get("kind")
    return (
        Fact(
            "Search",
            sweep.sampler or "–",
            f"pruned by {scheduler}" if scheduler else "nothing is pruned",
        ),
        Fact("Seeds per point", number(sweep.replicates), f"{resources_text(sweep)} per trial"),
        *_data_fact(sweep),
    )


def _data_fact(sweep: Sweep) -> tuple[Fact, ...]:
    """The data set and the network of images, or the training."""
    if sweep.training != IMAGES:
        package = sweep.package
        source = f"{package['name']} {package['version']}" if package else "trials of agents"
        return (Fact("Training", sweep.training, source),)
    # A stored spec holds what was typed; the rest has the default of the config.
    base = {name: TrainConfig.model_fields[name].default for name in _TRAINED} | sweep.base
    data = _words(sweep, base, "dataset")
    network = _network(sweep, base)
    if data:
        return (Fact("Data", data, network),)
    return (Fact("Network", network),) if network else ()


def _network(sweep: Sweep, base: Mapping[str, Any]) -> str:
    """``WRN-10-1``, ``MLP, 2 × 64 units``, or a registered network's name; "" for none."""
    name = _words(sweep, base, "network")
    varied = [quantity(field).name for field in _SIZE if field in sweep.space]
    if varied:
        return f"{name}, {' and '.join(varied)} varied"
    depth, k = (base.get(field) for field in _SIZE)
    if depth is None or k is None:
        return name
    if name == "wrn":
        return f"WRN-{depth}-{config_value(k)}"
    return f"MLP, {depth} × {round(64 * k)} units" if name == "mlp" else name


def _words(sweep: Sweep, base: Mapping[str, Any], field: str) -> str:
    """A field's value, or its choices where the sweep varies it; "" where there is none."""
    if field in sweep.space:
        return " or ".join(map(choice_word, sweep.space[field].get("values", ())))
    return str(base.get(field) or "")


def mirror_problem(sweep: Sweep) -> str:
    """A sentence if MLflow is behind, else "". Training does not depend on MLflow."""
    mirror = sweep.mirror or {}
    if mirror.get("error"):
        return f"MLflow cannot be reached: {mirror['error']}. Nothing is lost; it is sent later."
    behind = mirror.get("behind_seconds") or 0
    return f"MLflow is {duration(behind)} behind." if behind > 60 else ""


def live_values(store: Store, sweep: Sweep, here: str) -> dict[str, Any]:
    """Title, live events and spec of the page of a sweep or match at the address ``here``.

    Call it before anything else is read for the page: the page then receives every event that comes
    after its values were read.
    """
    seen = store.last_event_id(sweep.id)
    return {
        "title": sweep.name,
        "section": "matches" if sweep.kind == "match" else "sweeps",
        "events": f"/api/v1{here}/events?after={seen}",
        "is_over": sweep.state.is_finished(),
        "links": store.links_of(sweep.id) if acting() and may_change(sweep.owner) else [],
        "spec": json.dumps(sweep.spec, indent=2, ensure_ascii=False),
    }


def overview_values(sweep: Sweep, here: str, facts: Sequence[Fact]) -> dict[str, Any]:
    """What ``sweep/overview.html`` shows of a sweep or match at the address ``here``."""
    return {
        "sweep": sweep,
        "here": here,
        "objective": objective_quantity(sweep),
        "progress": progress(sweep),
        "facts": facts,
        "actions": actions(sweep),
        "retry_note": retry_note(sweep),
        "mlflow": mlflow_experiment(sweep),
        "mirror_problem": mirror_problem(sweep),
    }
