"""Which figures of a finished sweep MLflow gets: learning curves, and the objective by field."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.mlflow_mirror.figures import STEPS, WORDS, Drawing, Line
from sweeps.records import Point, Sweep
from sweeps.store.store import Store

#: Points whose curves are drawn, and values of each.
CURVES, SAMPLES = 6, 200


def drawings(store: Store, sweep: Sweep) -> list[Drawing]:
    """Learning curves of the best points, and the objective over each numeric field."""
    objective = sweep.spec.get("objective") or {}
    metric = str(objective.get("metric", "validation_error"))
    points = [p for p in store.all_points(sweep.id) if p.mean is not None]
    sign = -1.0 if objective.get("direction") == "maximize" else 1.0
    points.sort(key=lambda p: (sign * (p.mean or 0.0), p.number))
    found = [_curves(store, sweep, points[:CURVES], metric)]
    for field, domain in (sweep.spec.get("space") or {}).items():
        drawn = _sensitivity(field, domain, points, metric)
        if drawn.lines:
            found.append(drawn)
    return [one for one in found if one.lines]


def _scale(metric: str) -> float:
    return 100.0 if metric.endswith("_error") else 1.0


def _axis(metric: str) -> str:
    words = metric.replace("_", " ")
    return f"{words} (%)" if metric.endswith("_error") else words


def _curves(store: Store, sweep: Sweep, best: Sequence[Point], metric: str) -> Drawing:
    scale = _scale(metric)
    name_of = {p.number: _label(p) for p in best}
    curves = store.point_curves(sweep.id, metric, list(name_of), SAMPLES)
    lines = [
        Line(
            name_of[c.point],
            [float(step) for step in c.steps],
            [scale * value for value in c.mean],
            low=[scale * (mean - (sd or 0.0)) for mean, sd in zip(c.mean, c.sd, strict=True)],
            high=[scale * (mean + (sd or 0.0)) for mean, sd in zip(c.mean, c.sd, strict=True)],
        )
        for c in curves
    ]
    title = f"{sweep.name}: best {len(lines)} points, mean ± sd over seeds"
    return Drawing("learning-curves", title, STEPS, _axis(metric), lines)


def _label(point: Point) -> str:
    settings = [str(point.params["optimizer"])] if "optimizer" in point.params else []
    for name in ("alpha_v", "lr"):
        if isinstance(rate := point.params.get(name), int | float):
            settings.append(f"{WORDS[name].split()[0]} {rate:.3g}")
    return ": ".join(part for part in (f"point {point.number}", ", ".join(settings)) if part)


def _sensitivity(
    field: str, domain: Mapping[str, Any], points: Sequence[Point], metric: str
) -> Drawing:
    scale = _scale(metric)
    having = [
        p
        for p in points
        if isinstance(p.params.get(field), int | float) and not isinstance(p.params[field], bool)
    ]
    lines = []
    for optimizer in sorted({str(p.params.get("optimizer", "all")) for p in having}):
        mine = [p for p in having if str(p.params.get("optimizer", "all")) == optimizer]
        lines.append(
            Line(
                optimizer,
                [float(p.params[field]) for p in mine],
                [scale * (p.mean or 0.0) for p in mine],
                low=[scale * ((p.mean or 0.0) - (p.sd or 0.0)) for p in mine],
                high=[scale * ((p.mean or 0.0) + (p.sd or 0.0)) for p in mine],
                is_curve=False,
            )
        )
    log_x = bool(domain.get("log")) and all(float(value) > 0 for line in lines for value in line.x)
    words = WORDS.get(field, field)
    title = f"{metric.replace('_', ' ')} over {words}, mean ± sd over seeds"
    return Drawing(f"sensitivity-{field}", title, words, _axis(metric), lines, log_x=log_x)
