"""What MLflow gets of a match: its parameters, its values, its curves, its tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.analysis.formatting import NOTHING, figures, log_ratio_percent, with_interval
from sweeps.analysis.table import Table, to_csv, to_markdown
from sweeps.match.result import CriterionRow, Interval, LayerRow, MatchResult
from sweeps.records import SIDES, Sweep


def match_params(sweep: Sweep) -> dict[str, Any]:
    """What was asked beside the config that both sides share, ``source.lr`` and the like."""
    spec, found = sweep.spec, sweep.result or {}
    asked = {name: found.get(name) or spec.get(name) for name in ("criterion", "level")}
    asked["tolerance"] = spec.get("tolerance")
    for side in SIDES:
        # A recorded curve is data, not a setting; it is in spec.json.
        fields = sweep.arm_setting(side).items()
        asked |= {f"{side}.{name}": value for name, value in fields if name != "curve"}
    return asked


def match_values(result: MatchResult | None) -> dict[str, float | None]:
    """The verdict's rate, ratio and share of the run, and the rate that matches, with its ends."""
    verdict = result["verdict"] if result is not None else None
    if result is None or verdict is None:
        return {}
    ratio = verdict["log_ratio"]
    rate = result["rate_name"]
    found: dict[str, float | None] = {
        rate: verdict["rate"],
        "log_ratio": None if ratio is None else ratio["value"],
        "fraction_inside": verdict["fraction_inside"],
    }
    measured = next((row["measured"] for row in result["criteria"] if row["chosen"]), None)
    if measured is not None:
        found |= {
            f"{rate}_matched": measured["value"],
            f"{rate}_matched_low": measured["low"],
            f"{rate}_matched_high": measured["high"],
        }
    return found


def match_curves(result: MatchResult | None) -> dict[str, list[tuple[int, float]]]:
    """Effective learning rates of source and target by step, as far as they are known."""
    curves = result["curves"] if result is not None else None
    if curves is None:
        return {}
    return {
        f"effective_lr_{side}": list(zip(curves["steps"], values, strict=True))
        for side, values in (("source", curves["source"]), ("target", curves["target"]))
        if values
    }


# --- Words and tables ---------------------------------------------------------------------------


def match_body(result: MatchResult | None) -> str:
    """What came out of a match, in Markdown: its verdict, the rate by each criterion."""
    if result is None:
        return ""
    parts = [] if result["verdict"] is None else [result["verdict"]["sentence"]]
    if result["criteria"]:
        parts.append(f"`{result['rate_name']}` by each criterion:")
        parts.append(_criteria_table(result["criteria"]))
    return "\n\n".join(parts)


def match_tables(result: MatchResult) -> dict[str, str]:
    """Files with the tables of a match: for people in Markdown, with all digits as CSV."""
    head = ("criterion", "chosen", "closed_form", "predicted", "measured", "low", "high")
    criteria = []
    for row in result["criteria"]:
        found: Mapping[str, Any] = row["measured"] or {}
        known = [row["criterion"], row["chosen"], row["closed_form"], row["predicted"]]
        criteria.append([*known, *(found.get(name) for name in ("value", "low", "high"))])
    names = ("layer", "kind", "log_ratio", "implied_rate", "implied_low", "implied_high")
    layers = [[row.get(name) for name in names] for row in result["layers"]]
    files = {"results.md": _results(result), "results.csv": _csv(head, criteria)}
    return files | ({"layers.csv": _csv(names, layers)} if layers else {})


def _csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = (tuple("" if value is None else str(value) for value in row) for row in rows)
    return to_csv(Table(tuple(head), tuple(cells)))


def _results(result: MatchResult) -> str:
    parts = [match_body(result)]
    if result["warnings"]:
        parts.append("\n".join(f"- {warning}" for warning in result["warnings"]))
    if (comparison := result.get("comparison")) is not None:
        parts.append(comparison["sentence"])
    if result["layers"]:
        parts += ["What each layer alone would ask for:", _layer_table(result["layers"])]
    if result["calibration"]:
        head = ["trial", result["rate_name"], "source over target", f"next {result['rate_name']}"]
        rows = [
            [
                str(r["trial"]),
                figures(r["rate"]),
                log_ratio_percent(r["log_ratio"]),
                figures(r["next_rate"]),
            ]
            for r in result["calibration"]
        ]
        parts += ["Calibration:", _table(head, rows)]
    head = ["stage", "trials", "steps", "seconds"]
    cost = [
        [r["stage"], str(r["trials"]), str(r["steps"]), f"{r['seconds']:.1f}"]
        for r in result["cost"]
    ]
    return "\n\n".join([*parts, "Cost:", _table(head, cost)]) + "\n"


def _criteria_table(criteria: Sequence[CriterionRow]) -> str:
    rows = [
        [
            row["criterion"] + (" (chosen)" if row["chosen"] else ""),
            figures(row["closed_form"]),
            figures(row["predicted"]),
            _interval(row["measured"]),
        ]
        for row in criteria
    ]
    return _table(["criterion", "closed form", "predicted", "measured (95 % interval)"], rows)


def _layer_table(layers: Sequence[LayerRow]) -> str:
    rows = [
        [row["layer"], row["kind"], _interval(implied(row)), log_ratio_percent(row["log_ratio"])]
        for row in layers
    ]
    return _table(["layer", "kind", "rate (95 % interval)", "source over target"], rows)


def implied(row: LayerRow) -> Interval:
    """The rate that a layer alone would ask for; results of before it had one lack the interval."""
    low, high = row.get("implied_low"), row.get("implied_high")
    return Interval(value=row["implied_rate"], low=low, high=high)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_markdown(Table(tuple(head), tuple(map(tuple, rows)))).rstrip("\n")


def _interval(found: Interval | None) -> str:
    return NOTHING if found is None else with_interval(figures, **found)
