"""The run of a sweep or match as MLflow's tables compare it: what it fixed, and what came out."""

from collections.abc import Mapping
from typing import Any

from sweeps.match_result import Interval, Verdict
from sweeps.mirror_names import MAX_PARAM, cut, mirror_name, param_text
from sweeps.mirror_runs import milliseconds, page
from sweeps.records import MetricPoint, Sweep
from sweeps.table_text import table_text


def summary_params(sweep: Sweep) -> dict[str, str]:
    """What all of its trials share, under the names that they have there.

    MLflow never lets go of a parameter: nothing is one that an extension changes.
    """
    spec = sweep.spec
    base = spec.get("base") or {}
    varied = {"seed", *(spec.get("space") or {})}
    named = {name: value for name, value in base.items() if name not in varied}
    named |= {name: spec[name] for name in ("sampler", "criterion", "level") if name in spec}
    return {
        mirror_name(name): cut(param_text(value), MAX_PARAM, "spec.json")
        for name, value in named.items()
        if value is not None
    }


def summary_metrics(sweep: Sweep) -> list[MetricPoint]:
    """Its best value under the objective's name, or a match's rate and ratio; none without."""
    if sweep.finished_at is None:
        return []
    found = _match_values(sweep.result) if sweep.kind == "match" else _best_values(sweep)
    at = milliseconds(sweep.finished_at)
    return [
        MetricPoint(0, name, 0, float(value), at)
        for name, value in found.items()
        if value is not None
    ]


def _best_values(sweep: Sweep) -> dict[str, Any]:
    metric = (sweep.spec.get("objective") or {}).get("metric", "validation_error")
    return {metric: (sweep.best or {}).get("mean")}


def _match_values(result: Mapping[str, Any] | None) -> dict[str, Any]:
    verdict: Verdict | None = (result or {}).get("verdict")
    if result is None or verdict is None:
        return {}
    ratio = verdict["log_ratio"]
    return {
        result["rate_name"]: verdict["rate"],
        "log_ratio": None if ratio is None else ratio["value"],
        "fraction_inside": verdict["fraction_inside"],
    }


def description(sweep: Sweep, body: str, page_url: str) -> str:
    """The run's description in Markdown: what was asked, what came out, and where to look."""
    state = f"{sweep.state.value}: {sweep.reason}" if sweep.reason else sweep.state.value
    address = page(page_url, sweep.id, sweep.kind)
    link = f"[Page of the {sweep.kind}]({address})" if address else ""
    parts = [f"# {sweep.name}", sweep.notes, state, body, link]
    # MLflow takes 8,000 characters of a tag.
    return "\n\n".join(part for part in parts if part)[:7900]


def match_body(sweep: Sweep) -> str:
    """What came out of a match, in Markdown: its verdict, the rate by each criterion."""
    result: Mapping[str, Any] = sweep.result or {}
    parts = []
    if verdict := result.get("verdict"):
        parts.append(verdict["sentence"])
    if criteria := result.get("criteria"):
        header = ["criterion", "closed form", "predicted", "measured (95 % interval)"]
        rows = [
            [
                row["criterion"] + (" (chosen)" if row["chosen"] else ""),
                _figure(row["closed_form"]),
                _figure(row["predicted"]),
                _interval(row["measured"]),
            ]
            for row in criteria
        ]
        parts.append(f"`{result['rate_name']}` by each criterion:")
        parts.append(table_text(header, rows, "markdown").rstrip("\n"))
    return "\n\n".join(parts)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _interval(found: Interval | None) -> str:
    if found is None:
        return "–"
    text = _figure(found["value"])
    if found["low"] is None or found["high"] is None:
        return text
    return f"{text} ({found['low']:.4g} to {found['high']:.4g})"
