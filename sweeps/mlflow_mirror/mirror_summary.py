"""The run of a sweep or match as MLflow's tables compare it: what it fixed, and what came out."""

from typing import Any

from sweeps.mlflow_mirror.match import match_curves, match_params, match_values, result_of
from sweeps.mlflow_mirror.names import MAX_PARAM, cut, mirror_name, param_text
from sweeps.mlflow_mirror.runs import milliseconds
from sweeps.records import MetricPoint, Sweep


def summary_params(sweep: Sweep) -> dict[str, str]:
    """What all of its trials share, under the names that they have there.

    MLflow never lets go of a parameter: nothing is one that an extension changes.
    """
    spec = sweep.spec
    base = spec.get("base") or {}
    varied = {"seed", *(spec.get("space") or {})}
    named = {name: value for name, value in base.items() if name not in varied}
    named |= match_params(sweep) if sweep.kind == "match" else {"sampler": spec.get("sampler")}
    return {
        mirror_name(name): cut(param_text(value), MAX_PARAM, "spec.json")
        for name, value in named.items()
        if value is not None
    }


def summary_metrics(sweep: Sweep) -> list[MetricPoint]:
    """Its best value under the objective's name, or a match's findings and curves by step."""
    if sweep.finished_at is None:
        return []
    result = result_of(sweep) if sweep.kind == "match" else None
    found = match_values(result) if sweep.kind == "match" else _best_values(sweep)
    curves = {name: [(0, value)] for name, value in found.items()} | match_curves(result)
    at = milliseconds(sweep.finished_at)
    return [
        MetricPoint(0, name, step, float(value), at)
        for name, points in curves.items()
        for step, value in points
        if value is not None
    ]


def _best_values(sweep: Sweep) -> dict[str, Any]:
    metric = (sweep.spec.get("objective") or {}).get("metric", "validation_error")
    return {metric: (sweep.best or {}).get("mean")}
