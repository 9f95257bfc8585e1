"""Plots of a folder of parts: answers beside the grid, errors along alpha^v, the paper's curves."""

import json
from pathlib import Path
from typing import Any

from benchmarks.matching_table import kind_of


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


def _worth(part: dict[str, Any]) -> Any:
    figure, axes = _figure(f"{part['problem']}: error against α$^v$")
    rates = [row["alpha_v"] for row in part["curve"]]
    errors = [100 * row["validation_error"] for row in part["curve"]]
    axes.semilogx(rates, errors, marker="o", label="ND-Adam, validation")
    axes.axvline(part["matched alpha_v"], color="tab:green", label="matched to tuned SGD")
    axes.axvline(part["tuned alpha_v"], color="tab:red", linestyle="--", label="best of 16")
    axes.set_xlabel("α$^v$")
    axes.set_ylabel("validation error %")
    axes.legend()
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
    axes.set_xlabel("off the grid's answer, %")
    axes.legend()
    return figure


def _paper(part: dict[str, Any]) -> Any:
    figure, axes = _figure(f"SGD and ND-Adam at α$^v$ {part['by hand']['alpha_v']}")
    for name, label in (("sgd", "SGD"), ("ndadam", "ND-Adam")):
        layers = [n for n in part["curves"] if "/" in n]
        for layer in layers:
            values = part["curves"][layer][name]
            steps = [i * part["stretch"] for i in range(len(values))]
            colour = "tab:blue" if name == "sgd" else "tab:orange"
            axes.semilogy(steps, values, color=colour, alpha=0.2, linewidth=0.7)
        values = part["curves"]["effective_lr"][name]
        steps = [i * part["stretch"] for i in range(len(values))]
        axes.semilogy(steps, values, label=label, linewidth=2)
    axes.set_xlabel("step")
    axes.set_ylabel("effective learning rate; layers thin")
    axes.legend()
    return figure


def _save(figure: Any, path: Path) -> None:
    # Without a date the same figures give the same file.
    figure.savefig(path, metadata={"Date": None})


_DRAWN = {"nets": _nets, "worth": _worth, "paper": _paper}
