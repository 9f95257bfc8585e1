"""What the page that compares sweeps, points and trials shows, and the curves of each arm."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from dashboards.web.point_cache import all_points
from dashboards.wording.differing_fields import Differing, differing_fields
from dashboards.wording.formatting import (
    config_value,
    difference_with_interval,
    mean_text,
    number,
    with_unit,
)
from dashboards.wording.pair_note import pair_note
from dashboards.wording.sweep_facts import objective_metric, settings_text, training_of
from sweeps.analysis.compared_arms import ArmRef
from sweeps.analysis.comparison import MAX_ARMS, ComparisonSpec, compare
from sweeps.analysis.formatting import NOTHING
from sweeps.errors import SweepsError, SweepStateConflict
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import MAX_SAMPLES, Curve, optimizer_of
from sweeps.records import Point, Sweep, Trial
from sweeps.store.store import Store
from worker.config.train_config import FieldError

_REF = re.compile(r"^(?P<sweep>[A-Za-z0-9_-]{1,64})(?::(?P<kind>[pt])(?P<number>[0-9]{1,9}))?$")


@dataclass(frozen=True)
class Ref:
    """One thing to compare, as an address writes it: ``ID``, ``ID:p3`` or ``ID:t7``."""

    text: str
    sweep: str
    point: int | None
    trial: int | None

    def arm(self) -> ArmRef:
        return ArmRef(
            sweep=self.sweep,
            point=self.point,
            trials=None if self.trial is None else [self.trial],
        )


@dataclass(frozen=True)
class ArmLine:
    """One arm as a row of the table."""

    label: str
    address: str
    value: str
    n: int
    selected: bool
    settings: Any
    lost: str


@dataclass(frozen=True)
class Difference:
    """Two arms and what can be said about them. The ends are numbers, for the plot."""

    arms: str
    text: str
    method: str
    p_value: str
    verdict: str
    middle: float
    low: float
    high: float


def refs_of(texts: Iterable[str]) -> list[Ref]:
    """Read the things to compare, each once; what is not one is left out."""
    found = []
    for text in dict.fromkeys(texts):
        match = _REF.match(text.strip())
        if match is None:
            continue
        number_of = None if match["number"] is None else int(match["number"])
        kind = match["kind"]
        found.append(
            Ref(
                text.strip(),
                match["sweep"],
                number_of if kind == "p" else None,
                number_of if kind == "t" else None,
            )
        )
    return found[:MAX_ARMS]


def compare_values(store: Store, refs: Sequence[Ref], metric: str) -> dict[str, Any]:
    """What the templates show. Raises NotFound for things that are not there."""
    sweeps = {ref.sweep: store.get_sweep(ref.sweep) for ref in refs}
    values: dict[str, Any] = {
        "refs": [(ref, sweeps[ref.sweep], _address([r for r in refs if r != ref])) for ref in refs],
        "arms": [],
        "differences": [],
        "unlike": [],
        "differing": None,
        "origins": None,
        "pair_note": "",
        "notes": [],
        "problem": "",
        "metric": metric or (objective_metric(sweeps[refs[0].sweep]) if refs else ""),
        "metrics": _metrics(store, sweeps),
        "detectable": "",
    }
    if not refs:
        return values
    try:
        found = compare(store, ComparisonSpec(arms=[ref.arm() for ref in refs]))
    except (SweepStateConflict, FieldError, ValueError) as error:
        return values | {"problem": str(error)}
    return values | _found(found, compared_quantity(store, refs, found["metric"]), sweeps)


def compared_quantity(store: Store, refs: Sequence[Ref], metric: str) -> Quantity:
    """A metric with the unit that the things to compare declare, if it is the same for all."""
    found: dict[str, dict[str, Any]] = {}
    unlike, sweeps = set(), list[Sweep]()
    for one in dict.fromkeys(ref.sweep for ref in refs):
        try:
            sweeps.append(store.get_sweep(one))
        except SweepsError:
            # Deleted since the page was opened.
            continue
        for name, about in sweeps[-1].metrics.items():
            if found.setdefault(name, about).get("unit") != about.get("unit"):
                unlike.add(name)
    declared = {name: about for name, about in found.items() if name not in unlike}
    return quantity(metric, declared, training_of(sweeps))


def _found(found: dict[str, Any], metric: Quantity, sweeps: Mapping[str, Sweep]) -> dict[str, Any]:
    labels = [arm["label"] for arm in found["arms"]]
    differing = Differing(
        labels,
        [
            (row["field"], [config_value(row["values"][label]) for label in labels])
            for row in found["differing_fields"]
        ],
        training_of(sweeps.values()),
    )
    mixed = [
        (row["what"], [", ".join(row["values"][label]) or NOTHING for label in labels])
        for row in found["mixed_provenance"]
    ]
    smallest = found["detectable_difference"]
    return {
        "compared": metric,
        "arms": [_arm_line(metric, arm, sweeps[arm["sweep"]].training) for arm in found["arms"]],
        "differences": [difference(metric, row) for row in found["differences"]],
        "unlike": [(f"{r['a']} − {r['b']}", r["reason"]) for r in found["not_comparable"]],
        "differing": differing,
        "origins": Differing(labels, mixed),
        "pair_note": pair_note(len(found["differences"])),
        "notes": found["notes"],
        "detectable": "" if smallest is None else _points(metric, smallest),
    }


def _arm_line(metric: Quantity, arm: dict[str, Any], training: str) -> ArmLine:
    lost = ", ".join(f"{count} {state}" for state, count in sorted(arm["lost"].items()))
    point = "" if arm["point"] is None else f"?point={arm['point']}#trials-title"
    return ArmLine(
        label=arm["label"],
        address=f"/sweeps/{arm['sweep']}{point}",
        value=mean_text(metric, arm["mean"], arm["low"], arm["high"]),
        n=arm["n"],
        selected=arm["selected"],
        settings=settings_text(arm["params"], training),
        lost=lost,
    )


def difference(metric: str | Quantity, row: dict[str, Any]) -> Difference:
    """One row of the comparison in words and in the unit of the metric."""
    what = quantity(metric)
    low, middle, high = (what.shown(row[key]) for key in ("low", "difference", "high"))
    return Difference(
        arms=f"{row['a']} − {row['b']}",
        text=difference_with_interval(metric, row["difference"], row["low"], row["high"]),
        method=row["method"],
        p_value=number(row["p_holm"], 2),
        verdict=_verdict(row),
        middle=middle,
        low=low,
        high=high,
    )


def _verdict(row: dict[str, Any]) -> str:
    if row["non_inferior"] is None:
        return str(row["verdict"])
    return f"{row['verdict']}, {'non-inferior' if row['non_inferior'] else 'not non-inferior'}"


def _points(what: Quantity, value: float) -> str:
    if what.is_fraction:
        return f"{number(what.shown(value), 2)} points"
    return with_unit(what, number(value, 2))


def _metrics(store: Store, sweeps: Mapping[str, Sweep]) -> list[tuple[str, str]]:
    names = dict.fromkeys(name for one in sweeps for name in store.metric_names(one))
    training = training_of(sweeps.values())
    ordered = sorted(names, key=lambda name: ("/" in name, name))
    return [(name, quantity(name, training=training).name) for name in ordered]


def _address(refs: Sequence[Ref]) -> str:
    return f"/compare?{urlencode([('arm', ref.text) for ref in refs])}"


def _best_points(store: Store, sweep: Sweep) -> dict[int, str]:
    """The best point of each optimizer: its number, and the optimizer's name."""
    sign = sweep.objective.sign
    best: dict[str, Point] = {}
    for point in all_points(store, sweep):
        if point.mean is None:
            continue
        name = optimizer_of(sweep, point.params)
        if name not in best or sign * point.mean < sign * (best[name].mean or 0.0):
            best[name] = point
    return {point.number: name for name, point in best.items()}


def arm_curves(store: Store, refs: Sequence[Ref], metric: str) -> list[Curve]:
    """One curve per thing: of a sweep the best point of each optimizer, of a trial itself."""
    curves = []
    for ref in refs:
        try:
            sweep = store.get_sweep(ref.sweep)
            if ref.trial is not None:
                samples = store.metrics(sweep.id, ref.trial, [metric], MAX_SAMPLES).get(metric, [])
                label = f"{sweep.name} · trial {ref.trial}"
                steps, mean = [s for s, _ in samples], [v for _, v in samples]
                curves.append(Curve(label, steps, mean, [None] * len(mean), [1] * len(mean)))
                continue
            points = {ref.point: ""} if ref.point is not None else _best_points(store, sweep)
            for c in store.point_curves(sweep.id, metric, list(points), MAX_SAMPLES):
                optimizer = points[c.point]
                label = " · ".join(filter(None, (sweep.name, optimizer, f"point {c.point}")))
                curves.append(Curve(label, c.steps, c.mean, c.sd, c.n, optimizer))
        except SweepsError:
            # Deleted since the page was opened: the others are still drawn.
            continue
    return [curve for curve in curves if curve.steps]


def config_values(store: Store, refs: Sequence[Ref]) -> dict[str, Any]:
    """What the page of configs side by side shows. Raises NotFound for things that are not there.

    A point, or the best point of a sweep, stands for itself with the config of its first trial.
    """
    configs: dict[str, dict[str, Any]] = {}
    sweeps: list[Sweep] = []
    links: list[tuple[str, str]] = []
    for ref in refs:
        sweep = store.get_sweep(ref.sweep)
        trial = _trial_of(store, sweep, ref)
        if trial is None:
            continue
        name = f"{sweep.name}, trial {trial.number} (point {trial.point}, seed {trial.seed})"
        if name not in configs:
            configs[name] = trial.config
            sweeps.append(sweep)
            links.append((name, f"/sweeps/{sweep.id}/trials/{trial.number}"))
    differing = differing_fields(configs, training_of(sweeps))
    first, *others = configs.values() or [{}]
    alike = [f for f, v in first.items() if all(f in one and one[f] == v for one in others)]
    return {
        "links": links,
        "differing": differing,
        "alike": sorted((field, config_value(first[field])) for field in alike),
    }


def _trial_of(store: Store, sweep: Sweep, ref: Ref) -> Trial | None:
    if ref.trial is not None:
        return store.trial(sweep.id, ref.trial)
    point = ref.point if ref.point is not None else (sweep.best or {}).get("point", 0)
    return next(iter(store.trials(sweep.id, point=point, limit=1).items), None)
