"""The table of a folder of parts, as Markdown."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.matching.paper import curves_by_law, without_ends
from ndadam.matching.verdict import Pair, log_ratio

#: Where the paper's run is cut, in percent of it.
_CUTS = (0, 5, 25, 50, 60, 75, 85, 95, 100)


def table(out: Path) -> str:
    """Every part that is in the folder."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    return "\n\n".join(_SHOWN[kind_of(part)](part) for part in parts if kind_of(part) in _SHOWN)


def kind_of(part: dict[str, Any]) -> str:
    """What a part is: those of networks have their rows in common."""
    return "nets" if "rows" in part else str(part.get("part"))


def _predict(part: dict[str, Any]) -> str:
    shown = ", ".join(f"{name} {ms:.1f}" for name, ms in part["milliseconds"].items())
    return (
        "## Prediction\n\nMilliseconds of CPU time over 80,000 steps of a cosine, by target: "
        f"{shown}."
    )


def _noise(part: dict[str, Any]) -> str:
    where = f"The real network {part['network']}" if "network" in part else "Noise model"
    lines = [
        f"## {where}, {part['matches']} whole matches of {part['steps']} steps, 3 seeds",
        "",
        "| what | found |",
        "|---|---|",
        f"| coverage of the 95 % interval | {_percent(part['coverage'])} |",
        f"| bias of the rate | {100 * part['bias']:+z.2f} ± "
        f"{196 * part['bias standard error']:.2f} % |",
        f"| half width of the interval | {_percent(part['half width'])} |",
        f"| verdicts “matched” | {_percent(part['matched'])} |",
    ]
    lines += [
        f"| “matched” at a mismatch of exactly {off} | {_percent(share)} |"
        for off, share in part["matched said at"].items()
    ]
    return "\n".join(lines)


def _nets(part: dict[str, Any]) -> str:
    rows, all_cells = part["rows"], part.get("cells", len(part["rows"]))
    complete = sum(row["grid"] is not None for row in rows)
    some = "" if complete == all_cells else f", grids of {complete} of {all_cells} cells"
    lines = [
        f"## {part['part']}, {part['steps']} steps{some}",
        "",
        "| cell | criterion | A | grid α^v | match α^v | match off | closed form with A off "
        "| rival off | s: match, grid, rival | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(row) for row in rows),
        "",
        *_largest(rows),
        *_control(part["control"]),
    ]
    return "\n".join(lines)


def _largest(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for name in ("match off", "closed form off", "rival off"):
        if known := [row[name] for row in rows if row[name] is not None]:
            inside = sum(abs(off) <= 0.04 for off in known)
            yield (
                f"- {name}: at most {_signed(max(known, key=abs))}, within 4 % in {inside} of "
                f"{len(known)} cells"
            )
    yield ""


def _row(row: dict[str, Any]) -> str:
    grid = "–"
    if row["grid"] is not None:
        grid = f"{row['grid']:.4f} ± {196 * row['grid error']:.1f} %"
    return (
        f"| {row['cell']} | {row['criterion'].replace('_', ' ')} | {_number(row['gain'], 3)} "
        f"| {grid} | {_number(row['match'], 4)} "
        f"| {_signed(row['match off'])} | {_signed(row['closed form off'])} "
        f"| {_signed(row['rival off'])} "
        f"| {', '.join(_number(row['seconds'][of], 0) for of in ('match', 'grid', 'rival'))} "
        f"| {row['verdict'].partition(' (')[0].lower()} |"
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _control(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "Over a whole cosine, against SGD's curve, 3 seeds together:"
    yield ""
    yield "| cell | how | RMS in logs, 5 to 95 % of the run | target over source, first 5 % |"
    yield "|---|---|---|---|"
    for one in found:
        for name in ("schedule", "closed loop"):
            rms, first = one[f"{name} rms log"], one[f"{name} first 5 %"]
            yield f"| {one['cell']} | {name} | {_percent(rms)} | {first:.3f} |"


def _worth(part: dict[str, Any]) -> str:
    lines = [
        f"## Is it worth it? {part['problem']}, {part['steps']} steps, "
        f"margin {100 * part['margin']:.1f} points, fresh seeds",
        "",
        "| arm | test error % [95 %] | n |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {100 * arm['mean']:.2f} [{100 * arm['low']:.2f}, {100 * arm['high']:.2f}] "
        f"| {arm['n']} |"
        for name, arm in part["arms"].items()
    ]
    lines += ["", *(_sentence(name, found) for name, found in part["comparisons"].items())]
    lines += [
        "",
        f"Matched α^v {part['matched alpha_v']:.4f}, tuned {part['tuned alpha_v']:.4f}. Seconds: "
        + ", ".join(f"{name} {value:.0f}" for name, value in part["seconds"].items())
        + ".",
        "",
        "| α^v | validation error % |",
        "|---|---|",
        *(f"| {r['alpha_v']:g} | {100 * r['validation_error']:.2f} |" for r in part["curve"]),
    ]
    return "\n".join(lines)


def _sentence(name: str, found: dict[str, Any]) -> str:
    verdict = "not inferior" if found["non_inferior"] else "non-inferiority not shown"
    return (
        f"- {name}: {100 * found['difference']:+z.2f} points "
        f"[{100 * found['low']:+z.2f}, {100 * found['high']:+z.2f}], {verdict}"
    )


def _paper(part: dict[str, Any]) -> str:
    lines = [
        f"## The paper's setting, {part['steps']} steps",
        "",
        "| criterion | predicted, whole run | predicted, 5 to 95 % of it | measured, 5 to 95 % |",
        "|---|---|---|---|",
        *_rates(part),
        "",
    ]
    for name in ("by hand", "matched"):
        found, what = part[name], "not trained"
        if "rms log" in found:
            what = (
                f"SGD over ND-Adam {found['source over target']:.3f}, inside ±5 % for "
                f"{found['inside 5 %']:.2f} of the run, {_percent(found['rms log'])} RMS in logs"
            )
        lines.append(f"- α^v {found['alpha_v']:g}, {name}: {what}")
    lines += ["", *_along(part), "", _layers(part)]
    errors = ", ".join(f"{100 * e:.2f} %" if e is not None else "–" for e in part["test_error"])
    seconds = ", ".join(f"{value:.0f}" for value in part["seconds"])
    lines += ["", f"Test errors of SGD, ND-Adam by hand, matched: {errors}; seconds: {seconds}."]
    return "\n".join(lines)


def _rates(part: dict[str, Any]) -> Iterator[str]:
    """Each criterion's alpha^v; beside the measured one the laws' over the same steps."""
    laws = Pair(*map(without_ends, curves_by_law(part)))
    for criterion, found in part["rates"].items():
        cells = [f"{found['predicted']:.4f}", "–", "–"]
        if found["measured"] is not None:
            inside = part["by hand"]["alpha_v"] * math.exp(log_ratio(criterion, laws))
            cells[1:] = [f"{inside:.4f}", f"{found['measured']:.4f}"]
        yield f"| {criterion.replace('_', ' ')} | {' | '.join(cells)} |"


def _along(part: dict[str, Any]) -> Iterator[str]:
    """SGD over ND-Adam in parts of the run, measured and by the laws."""
    curves, stretch = part["curves"]["effective_lr"], part["stretch"]
    measured = _logs(curves["sgd"], curves["ndadam"])
    by_law = _logs(*curves_by_law(part))
    yield (
        "| steps | SGD over ND-Adam at α^v "
        f"{part['by hand']['alpha_v']:g} | least to most | by the laws with A | RMS in logs |"
    )
    yield "|---|---|---|---|---|"
    for cuts in pairwise(_CUTS):
        start, stop = (cut * part["steps"] // 100 for cut in cuts)
        inside = slice(math.ceil(start / stretch), math.ceil(stop / stretch))
        if logs := measured[inside]:
            yield (
                f"| {start:,} to {stop:,} | {math.exp(fmean(logs)):.2f} "
                f"| {math.exp(min(logs)):.2f} to {math.exp(max(logs)):.2f} "
                f"| {math.exp(fmean(by_law[inside])):.2f} "
                f"| {_percent(math.sqrt(fmean(x * x for x in logs)))} |"
            )


def _logs(source: Sequence[float], target: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(source, target, strict=True)]


def _layers(part: dict[str, Any]) -> str:
    """What each layer alone would ask for, by least squares between 5 and 95 % of the run."""
    asked = []
    for name, curves in part["curves"].items():
        if "/" in name:
            pair = Pair(without_ends(curves["sgd"]), without_ends(curves["ndadam"]))
            rate = part["by hand"]["alpha_v"] * math.exp(log_ratio("least_squares", pair))
            asked.append(f"{name.partition('/')[2]} {rate:.4f}")
    return f"By least squares layers ask for: {', '.join(asked)}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(off: float | None) -> str:
    return "–" if off is None else f"{100 * off:+z.1f} %"


_SHOWN = {
    "predict": _predict,
    "noise": _noise,
    "coverage": _noise,
    "nets": _nets,
    "worth": _worth,
    "paper": _paper,
}
