"""What a trial used of its machine, over time."""

from collections.abc import Mapping, Sequence

from dashboards.plots.answers import Plot, Row
from dashboards.plots.views import time_unit
from sweeps.figures.chart import Axis, Chart, Line
from sweeps.figures.colours import colour, dash
from sweeps.figures.plotly_values import LEGEND_BELOW, figure_of

#: (seconds since the trial's first start, value).
Curve = Sequence[tuple[float, float]]

#: Key of a panel -> caption, axis, unit, and the names that it shows: as they are, or of each card.
PANELS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "load": (
        "Load of the card",
        "kernels running (%)",
        "%",
        ("utilization_percentage",),
    ),
    "memory": (
        "Memory of the card",
        "memory (GB)",
        "GB",
        ("memory_usage_megabytes", "process_memory_usage_megabytes"),
    ),
    "power": ("Power of the card", "power (W)", "W", ("power_usage_watts",)),
    "cpu": (
        "Processor",
        "CPU time (% of one core)",
        "%",
        ("process_cpu_utilization_percentage",),
    ),
    "ram": ("Main memory", "resident memory (GB)", "GB", ("process_memory_usage_megabytes",)),
}
_OF_CARDS = ("load", "memory", "power")
_PROCESS = "process_"


def panels_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Key and caption of each panel that has something to show."""
    return [(key, panel[0]) for key, panel in PANELS.items() if names_of(key, names)]


def names_of(panel: str, names: Sequence[str]) -> list[str]:
    """The names that a panel shows, of those there are."""
    if panel not in PANELS:
        return []
    wanted = PANELS[panel][3]
    found = []
    for name in sorted(names):
        of_card = name.startswith("gpu_")
        stem = name.split("_", 2)[2] if of_card else name
        if of_card == (panel in _OF_CARDS) and stem in wanted:
            found.append(name)
    return found


def usage_plot(panel: str, curves: Mapping[str, Curve]) -> Plot:
    """One panel; ``curves`` has the names of ``names_of``."""
    _, title, unit, _ = PANELS[panel]
    scale = 1e-3 if unit == "GB" else 1.0  # measured in MB, as the CSV has it
    longest = max((at for curve in curves.values() for at, _ in curve), default=0.0)
    word, size = time_unit(longest)
    lines = []
    for index, (name, curve) in enumerate(curves.items()):
        x, y = [at / size for at, _ in curve], [value * scale for _, value in curve]
        lines.append(Line(_words(name), colour(index), x, y, dash=dash(index)))
    hover = [
        {"hovertemplate": f"{line.name}<br>%{{x:.4g}} {word}<br>%{{y:.4g}} {unit}<extra></extra>"}
        for line in lines
    ]
    legend = LEGEND_BELOW if len(lines) > 1 else {}
    chart = Chart(
        f"usage-{panel}", Axis(f"time since the first start ({word})"), Axis(title), lines
    )
    drawn = figure_of(chart, hover=hover, height=260, **legend)
    for axis in ("xaxis", "yaxis"):
        drawn["layout"][axis]["rangemode"] = "tozero"
    rows: list[Row] = [(name, *sample) for name, curve in curves.items() for sample in curve]
    return Plot(drawn, ("name", "seconds", "value"), rows)


def _words(name: str) -> str:
    if not name.startswith("gpu_"):
        return "process"
    _, number, stem = name.split("_", 2)
    return f"card {number}, {'this process' if stem.startswith(_PROCESS) else 'all processes'}"
