"""Plots of a folder of parts: answers beside the grid, errors along alpha^v, the paper's curves."""

import json
from pathlib import Path
from typing import Any

from benchmarks.matching.paper import curves_by_law, middles
from benchmarks.matching.table import kind_of


def write_plots(out: Path, folder: Path) -> list[Path]:
    """One SVG for each part that has something to draw; needs matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(out.glob("*.json")):
        part = json.loads(path.read_text(encoding="utf-8"))
        draw = _DRAWN.get(kind_of(part))
        if draw is not None:
            written.append(folder / f"matching-{path.stem}.svg")
            _save(draw(part), written[-1])
    return written


def _figure(title: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes


def _legend_below(figure: Any) -> None:
    """Where it hides no point."""
    figure.legend(loc="outside lower center", ncols=4, fontsize="small", frameon=False)


def _worth(part: dict[str, Any]) -> Any:
    figure, axes = _figure(f"{part['problem']}: error against α$^v$")
    rates = [row["alpha_v"] for row in part["curve"]]
    errors = [100 * row["validation_error"] for row in part["curve"]]
    axes.semilogx(rates, errors, marker="o", label="ND-Adam, validation")
    matched, tuned = part["matched alpha_v"], part["tuned alpha_v"]
    axes.axvline(matched, color="tab:green", label=f"matched to tuned SGD, {matched:.3g}")
    axes.axvline(tuned, color="tab:red", linestyle="--", label=f"best of 16, {tuned:.3g}")
    axes.set_xlabel("α$^v$")
    axes.set_ylabel("validation error %")
    _legend_below(figure)
    return figure


def _nets(part: dict[str, Any]) -> Any:
    """Each answer against the grid's, in percent, with the band that was wanted."""
    figure, axes = _figure(f"{part['part']}: α$^v$ against the grid's")
    rows = [row for row in part["rows"] if row["grid"] is not None]
    axes.axvspan(-4, 4, color="tab:green", alpha=0.12, label="±4 %")
    places = range(len(rows))
    for name, label, marker in (
        ("match off", "match, 95 %", "o"),
        ("closed form off", "closed form with A", "s"),
        ("rival off", "two short runs", "x"),
    ):
        known = [
            (place, row) for place, row in zip(places, rows, strict=True) if row[name] is not None
        ]
        axes.scatter(
            [100 * r[name] for _, r in known], [p for p, _ in known], marker=marker, label=label
        )
    for place, row in zip(places, rows, strict=True):
        if row["interval"] is not None:
            ends = [100 * (end / row["grid"] - 1) for end in row["interval"]]
            axes.plot(ends, [place, place], color="tab:blue", linewidth=1)
    labels = [row["cell"].removeprefix(f"{part['part']} ") for row in rows]
    axes.set_yticks(
        list(places), [label.replace("lambda", "λ").replace("beta2", "β₂") for label in labels]
    )
    axes.invert_yaxis()  # the order of the table
    axes.set_xlabel("off the grid's answer, %")
    _legend_below(figure)
    return figure


def _paper(part: dict[str, Any]) -> Any:
    """Both curves with every layer's, and below their ratio beside what the laws say."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    above.set_title(f"SGD and ND-Adam at α$^v$ {part['by hand']['alpha_v']}")
    headline = part["curves"]["effective_lr"]
    steps = middles(part)
    for name, label, colour in (("sgd", "SGD", "tab:blue"), ("ndadam", "ND-Adam", "tab:orange")):
        for layer, curves in part["curves"].items():
            if "/" in layer:
                above.semilogy(steps, curves[name], color=colour, alpha=0.35, linewidth=0.6)
        above.semilogy(steps, headline[name], label=label, color=colour, linewidth=2)
    above.set_ylabel("effective learning rate; layers thin")
    above.legend()
    below.axhspan(1 / 1.05, 1.05, color="tab:green", alpha=0.2, label="±5 %")
    measured = zip(headline["sgd"], headline["ndadam"], strict=True)
    by_law = zip(*curves_by_law(part), strict=True)
    below.semilogy(steps, [a / b for a, b in measured], color="black", label="measured")
    below.semilogy(steps, [a / b for a, b in by_law], "--", color="tab:red", label="by the laws")
    below.set_ylabel("SGD over ND-Adam")
    below.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
    below.minorticks_off()
    below.set_xlabel("step")
    below.legend()
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
    return figure


def _save(figure: Any, path: Path) -> None:
    # Without a date the same figures give the same file.
    figure.savefig(path, metadata={"Date": None})


_DRAWN = {"nets": _nets, "worth": _worth, "paper": _paper}
