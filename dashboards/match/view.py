"""A match's result in the words of its page."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from markupsafe import Markup

from dashboards.sweep_pages.overview import Fact, time_facts
from dashboards.wording.formatting import config_value, duration, number, percent, ratio, symbol
from ndadam.theory.laws import rate_name
from sweeps.analysis.formatting import Write, span, with_interval
from sweeps.figures.quantities import plain, quantity
from sweeps.match.awaited import awaited_trials
from sweeps.match.result import Interval, MatchResult, Verdict, matched_rate, result_of
from sweeps.records import Side, Sweep, SweepState, Trial

#: Fields that set how a source or target trains, in reading order.
_SETTING_ORDER = ("lr", "alpha_v", "alpha_s", "momentum", "nesterov", "betas", "weight_decay")

_MEANINGS = {
    "invariant": "the loss does not depend on the vector's length",
    "jointly_invariant": "the loss does not depend on the length of its channel or group",
    "eps_limited": "invariant except for batch norm's ε",
    "neither": "the loss depends on its length: no effective learning rate",
}
_STAGES = {
    "source": "training the source and measuring its effective learning rate",
    "calibration": "training the target and correcting its rate",
    "verdict": "training on fresh seeds, which no choice was based on",
    "comparison": "training both at the matched rate on fresh seeds",
}


def match_values(sweep: Sweep, trials: Sequence[Trial] = ()) -> dict[str, Any]:
    """What the verdict and the details of a match's page show, given its trials so far."""
    result = result_of(sweep)
    rate_name = rate_name_of(sweep)
    values: dict[str, Any] = {
        "sweep": sweep,
        "here": f"/matches/{sweep.id}",
        "rate_name": rate_name,
        "source": side(sweep, "source"),
        "target": side(sweep, "target"),
        "verdict": _verdict(sweep, result, rate_name, trials),
        "comparison": "",
    }
    if result is None:
        empty = ("warnings", "criteria", "findings", "classes", "cost", "calibration")
        return values | {name: [] for name in empty}
    return values | {
        "warnings": result["warnings"],
        "criteria": result["criteria"],
        "findings": _findings(result),
        "classes": [
            {"name": name.replace("_", " "), "count": count, "meaning": _MEANINGS.get(name, "")}
            for name, count in result["classes"].items()
        ],
        # Results of older versions have no comparison.
        "comparison": str(
            (cast("dict[str, Any]", result).get("comparison") or {}).get("sentence", "")
        ),
        "cost": result["cost"],
        "calibration": [{**row, "ratio": ratio(row["log_ratio"])} for row in result["calibration"]],
    }


def rate_name_of(sweep: Sweep) -> str:
    """The field whose value the match determines: ``alpha_v`` or ``lr``."""
    result = result_of(sweep)
    if result is not None:
        return result["rate_name"]
    return rate_name(sweep.arm_setting("target").get("optimizer", "ndadam"))


def side(sweep: Sweep, which: Side) -> dict[str, Any]:
    """Source or target of the match: its optimizer, and a title with its settings."""
    fields = sweep.arm_setting(which)
    optimizer = str(fields.get("optimizer", "ndadam" if which == "target" else "sgd"))
    settings = [
        Markup("{} = {}").format(symbol(name), config_value(fields[name]))
        for name in _SETTING_ORDER
        if fields.get(name) is not None
    ]
    title = Markup(", ").join([Markup("{}").format(optimizer), *settings])
    return {"optimizer": optimizer, "title": title}


def match_facts(sweep: Sweep) -> tuple[Fact, ...]:
    """The rate with its interval, the criterion, and time."""
    result = result_of(sweep)
    rate = Markup("{}").format(symbol(rate_name_of(sweep)))
    criterion = (sweep.criterion or "").replace("_", " ")
    tolerance = f"within ±{100 * sweep.tolerance:g} %"
    if result is None:
        return (
            Fact("Rate", "–", "not measured yet", wide=True),
            Fact("Criterion", criterion or "–", tolerance),
            *time_facts(sweep),
        )
    criterion = result["criterion"].replace("_", " ")
    tolerance = (
        f"{result['level'].replace('_', ' ')} level, within ±{100 * result['tolerance']:g} %"
    )
    verdict = result["verdict"]
    inside = percent(verdict["fraction_inside"]) if verdict else "–"
    return (
        _rate_fact(result, rate),
        Fact("Criterion", criterion, tolerance),
        Fact("Inside the tolerance", inside, "of the whole run, step by step"),
        Fact("Progress", percent(result["progress"]), _STAGES.get(result["stage"], "done")),
        *time_facts(sweep)[:1],
    )


def _rate_fact(result: MatchResult, rate: Markup) -> Fact:
    measured = next((row["measured"] for row in result["criteria"] if row["chosen"]), None)
    label = f"{quantity(result['rate_name']).name} that matches".capitalize()
    if measured is not None:
        detail = Markup("{}{}").format(_between(measured), _take(result, rate, measured["value"]))
        value = Markup("{} = {}").format(rate, number(measured["value"]))
        return Fact(label, value, detail, wide=True)
    verdict = result["verdict"]
    if verdict is not None and verdict["rate"] is not None:
        return Fact(label, Markup("{} = {}").format(rate, number(verdict["rate"])), wide=True)
    chosen = next((row for row in result["criteria"] if row["chosen"]), None)
    guess = chosen and (chosen["predicted"] or chosen["closed_form"])
    if guess:
        return Fact(
            label,
            Markup("{} ≈ {}").format(rate, number(guess)),
            "predicted, not measured yet",
            wide=True,
        )
    return Fact(label, "–", "unknown until it is measured", wide=True)


def _take(result: MatchResult, rate: Markup, measured: float) -> Markup:
    """Which of two rates to take, where the verdict's runs trained at another than they found."""
    verdict = result["verdict"]
    tried = None if verdict is None else verdict["rate"]
    if verdict is None or tried is None or number(tried) == number(measured):
        return Markup("")
    off = Markup("{} = {}, {} from it").format(rate, number(tried), _off(measured, tried))
    if verdict["state"] == "matched":
        return Markup(". Take this one; the verdict's runs trained at {}").format(off)
    return Markup(". The verdict's runs trained at {}").format(off)


def _off(measured: float, tried: float) -> str:
    """How far the tried rate lies from the measured one, in percent."""
    return ratio(math.log(tried / measured))


def _between(interval: Interval) -> str:
    if interval["low"] is None or interval["high"] is None:
        return "no interval: a single seed"
    return f"95 % interval {span(number, interval['low'], interval['high'])}"


def _verdict(
    sweep: Sweep, result: MatchResult | None, rate_name: str, trials: Sequence[Trial]
) -> dict[str, str]:
    verdict = result["verdict"] if result is not None else None
    if verdict is not None:
        return {
            "style": verdict["state"].replace(" ", "-"),
            "headline": f"{verdict['state'].capitalize()}{_ratio_words(verdict)}",
            "sentence": verdict["sentence"],
            "rates": _two_rates(sweep, verdict, rate_name),
        }
    if sweep.state.is_finished():
        reason = sweep.reason or f"the match is {sweep.state.value}"
        return {
            "style": "none",
            "headline": "No verdict",
            "sentence": f"The match ended without a verdict: {reason}.",
            "rates": "",
        }
    sentence = _awaits(sweep, "" if result is None else result["stage"], trials)
    return {"style": "none", "headline": "No verdict yet", "sentence": sentence, "rates": ""}


def _awaits(sweep: Sweep, stage: str, trials: Sequence[Trial]) -> str:
    """What the match waits for, how far that is and about how long it takes."""
    if sweep.state != SweepState.RUNNING:
        return "Waiting for a runner." if sweep.state == SweepState.QUEUED else "Paused."
    awaited = awaited_trials(sweep.spec, trials, datetime.now(UTC))
    if awaited is None:
        return f"Now {_STAGES[stage]}." if stage in _STAGES else "The match begins."
    verb = "has" if awaited.planned == 1 else "have"
    parts = [f"{awaited.ended} of {_trials(awaited.planned)} {verb} ended"]
    if awaited.slowest is not None:
        of = awaited.slowest.num_steps
        total = f" of {number(of)}" if of else ""
        parts.append(
            f"trial {awaited.slowest.number} is at step {number(awaited.slowest.step)}{total}"
        )
    left = (
        "" if awaited.seconds is None else f", about {duration(awaited.seconds)} to the end of it"
    )
    then = " and ".join(f"{_trials(n, name)}" for name, n in awaited.later.items() if n)
    after = f" Then {then} follow." if then else ""
    return f"Now {_STAGES[awaited.stage]}: {', '.join(parts)}{left}.{after}"


def _trials(count: int, of: str = "") -> str:
    return f"{count} {of}{' ' if of else ''}trial{'' if count == 1 else 's'}"


def _two_rates(sweep: Sweep, verdict: Verdict, rate_name: str) -> str:
    """Why the verdict's rate is not the one above it; "" where they are the same."""
    tried, best = verdict["rate"], matched_rate(sweep)
    if tried is None or best is None or number(tried) == number(best):
        return ""
    name = plain(quantity(rate_name).short)
    take = ", so take that one" if verdict["state"] == "matched" else ""
    return (
        f"Judged at {name} = {number(tried)}, which calibration had arrived at before these runs. "
        f"What they measure, {name} = {number(best)}, is the better estimate{take}; "
        f"the two are {_off(best, tried).lstrip('+−')} apart."
    )


def _ratio_words(verdict: Verdict) -> str:
    found = verdict["log_ratio"]
    return "" if found is None else f": source over target {with_interval(ratio, **found)}"


def _findings(result: MatchResult) -> list[tuple[str, str]]:
    """Known facts about the source, as label and value."""
    source, verdict = result["source"], result["verdict"]
    rows: list[tuple[str, str | None]] = [
        ("Effective learning rate e*, closed form", _known(source["effective_lr"])),
        ("Effective learning rate, measured", _interval(source["measured"])),
        ("Relaxation time τ (steps)", _known(source["tau_steps"])),
        ("Equivalent β₂", _known(source["beta2_equivalent"])),
        ("Gain A", _interval(source["gain"])),
        ("Departure from scale invariance κ", _known(source["kappa"])),
        ("Residual of the balance law", _known(source["balance_residual"])),
    ]
    if verdict is not None:
        start, stop = verdict["window"]
        rows += [
            ("Window of the verdict", f"steps {number(start)} to {number(stop)}"),
            ("Drift within the window", _interval(verdict["drift"], ratio)),
            ("Interval taken from", verdict["interval_from"]),
            ("Fresh seeds", ", ".join(str(seed) for seed in verdict["seeds"])),
        ]
    return [(label, value) for label, value in rows if value]


def _known(value: float | None) -> str | None:
    return None if value is None else number(value)


def _interval(interval: Interval | None, write: Write = number) -> str | None:
    return None if interval is None else with_interval(write, **interval)
