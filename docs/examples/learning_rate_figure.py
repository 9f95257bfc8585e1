"""Draws the figure at the top of the README from ``ndsweep export ID --format json``.

python docs/examples/learning_rate_figure.py EXPORT.json docs/images/learning-rates.svg
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from ndadam.statistics.inference import mean_interval

#: Okabe and Ito's colours: told apart by colour-blind readers.
STYLES = {
    "sgd": (r"SGD, $\alpha_0$", "#0072B2", "o"),
    "adam": (r"Adam, $\alpha_0$", "#E69F00", "s"),
    "ndadam": (r"ND-Adam, $\alpha^v$", "#009E73", "^"),
}


def curves(trials: list[dict[str, Any]]) -> dict[str, dict[float, list[float]]]:
    """Validation errors over seeds, by optimizer and learning rate; diverged runs left out."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial["state"] == "complete":
            optimizer = trial["config.optimizer"]
            rate = trial["config.alpha_v" if optimizer == "ndadam" else "config.lr"]
            found[optimizer][rate].append(trial["objective"])
    return found


def draw(trials: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for optimizer, by_rate in curves(trials).items():
        label, colour, marker = STYLES[optimizer]
        rates = sorted(by_rate)
        means = [100 * sum(by_rate[rate]) / len(by_rate[rate]) for rate in rates]
        halves = [half_width(by_rate[rate]) for rate in rates]
        axes.errorbar(
            rates, means, halves, label=label, color=colour, marker=marker, capsize=3, lw=1.5
        )
    axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="validation error (%)")
    axes.grid(alpha=0.3, which="both", lw=0.5)
    axes.legend(frameon=False)
    axes.set_title("WRN-10-1 on scikit-learn's digits, 8 epochs, mean ± sd, 3 seeds", fontsize=10)
    figure.savefig(path)


def half_width(errors: list[float]) -> float:
    """Standard deviation over seeds, in percent."""
    if len(errors) < 2:
        return math.nan
    return 100 * mean_interval(errors).sd


if __name__ == "__main__":
    trials_file, figure_file = map(Path, sys.argv[1:])
    draw(json.loads(trials_file.read_text("utf-8"))["trials"], figure_file)
