"""The paper's tables and figures beside our runs, in the words of the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dashboards.formatting import number
from dashboards.point_cache import Kept
from sweeps.paper import ComparedEntry, ComparedTable, compared_tables
from sweeps.paper_figures import (
    LAYER,
    MeanCurve,
    balance_by_layer,
    law_note,
    mean_curve,
    measured_ratios,
    setting_label,
)
from sweeps.paper_runs import Arm, PaperRun, PaperRuns, runs_of_store
from sweeps.paper_values import paper_values
from sweeps.presets import read_preset
from sweeps.store import Store

T = TypeVar("T")

_NARROW = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper: the preset behind it and the metric that it shows."""

    id: str
    title: str
    preset: str
    metric: str
    #: What the paper shows there, in a sentence.
    paper: str


FIGURES = (
    PaperFigure(
        "fig1a",
        "Figure 1 (a): weight decay against the growth of weight vectors",
        "paper-fig1a",
        f"projection_ratio/{LAYER}",
        "Layer 5 under SGD: decay dominates at first and at the end; between, both nearly cancel.",
    ),
    PaperFigure(
        "fig1b",
        "Figure 1 (b): effective learning rates",
        "paper-fig1b",
        f"effective_lr/{LAYER}",
        "Layer 5: SGD's curves overlap where αλ is equal; ND-Adam's follow αᵛ.",
    ),
    PaperFigure(
        "fig2",
        "Figure 2: test error while training",
        "paper-fig2",
        "test_error",
        "One network with SGD, Adam and ND-Adam on CIFAR-10; dotted: the paper's final errors.",
    ),
    PaperFigure(
        "fig3",
        "Figure 3: magnitude of the logits",
        "paper-fig3",
        "logit_rms",
        "With and without BN-Softmax, which keeps the magnitude near γ_C.",
    ),
)

#: Of the last two looks at a store: its runs, tables, what the page says of them, and each figure's
#: curves. Another look reads every finished trial, and the curves of every layer.
_LOOKS = Kept(2 * (3 + len(FIGURES)))


@dataclass(frozen=True)
class EntryRow:
    """A number of the paper beside ours."""

    part: str
    label: str
    paper: str
    ours: str
    n: int
    difference: str
    verdict: str
    because: str
    runs: list[tuple[str, str]]


def paper_runs(store: Store) -> PaperRuns:
    """Every run of the store that may be the paper's, read again when a trial has ended."""
    return _kept(store, "runs", lambda: PaperRuns(runs_of_store(store)))


def paper_values_of(store: Store) -> dict[str, Any]:
    """What the template shows. Not to be changed: it is shared."""
    return _kept(store, "page", lambda: _values_of(paper_runs(store), paper_tables(store)))


def paper_tables(store: Store) -> list[ComparedTable]:
    """Each table of the paper beside the runs that ended. Not to be changed: it is shared."""
    return _kept(store, "tables", lambda: compared_tables(paper_runs(store)))


def paper_curves(store: Store, figure: PaperFigure) -> list[MeanCurve]:
    """A line of the figure for each arm that has runs."""
    return _kept(store, figure.id, lambda: figure_curves(paper_runs(store), figure))


def _kept(store: Store, what: str, look: Callable[[], T]) -> T:
    moment = tuple(
        (one.kind, one.state, one.sweeps, tuple(sorted(one.trials.items())))
        for one in store.counts()
    )
    return _LOOKS.get((id(store), what, moment), look)


def _values_of(runs: PaperRuns, tables: Sequence[ComparedTable]) -> dict[str, Any]:
    known = paper_values()
    return {
        "source": known.source,
        "paper_runs": known.runs,
        "margin": known.margin,
        "tables": [_table(table) for table in tables],
        "figures": [(figure, _links(runs.arms(figure.preset))) for figure in FIGURES],
        "ratios": measured_ratios(runs),
        "law_note": law_note(runs),
        "balance": balance_by_layer(runs),
        "layer": LAYER,
        "presets": {name: read_preset(name).title for name in _presets()},
    }


def _presets() -> list[str]:
    return [table.preset for table in paper_values().tables] + [f.preset for f in FIGURES]


def _table(found: ComparedTable) -> dict[str, Any]:
    return {
        "table": found.table,
        "rows": [_row(row) for row in found.rows],
        "differences": found.differences,
        "num_runs": found.num_runs,
    }


def _row(row: ComparedEntry) -> EntryRow:
    ours = row.measured
    return EntryRow(
        part=row.entry.part,
        label=row.entry.label,
        paper=_percent(row.entry.test_error),
        ours=_with_half(ours.mean, None if ours.high is None else ours.high - (ours.mean or 0.0)),
        n=ours.n,
        difference=_signed(row.difference, row.low, row.high),
        verdict=row.verdict,
        because=row.because,
        runs=_run_links(row.runs),
    )


def _run_links(runs: tuple[PaperRun, ...]) -> list[tuple[str, str]]:
    return [(run.where, f"seed {run.seed}") for run in runs if run.where.startswith("/")]


def _links(arms: list[Arm]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Label of each arm with links to its runs."""
    return [(arm_label(arm), _run_links(arm.runs)) for arm in arms]


def arm_label(arm: Arm) -> str:
    """An arm in the paper's symbols; whether it has BN-Softmax where the preset varies that."""
    label = setting_label(arm.config)
    if arm.params.get("bn_scale") == "fixed":
        return f"{label}, γ_C = {arm.config['gamma_c']:g}, no scales"
    return label


def figure_curves(runs: PaperRuns, figure: PaperFigure) -> list[MeanCurve]:
    """A line of the figure for each arm that has runs."""
    found = (mean_curve(arm_label(a), a, figure.metric) for a in runs.arms(figure.preset))
    return [curve for curve in found if curve is not None]


def _percent(value: float) -> str:
    return f"{value:.2f}{_NARROW}%"


def _with_half(mean: float | None, half: float | None) -> str:
    if mean is None:
        return "–"
    return _percent(mean) if half is None else f"{mean:.2f} ± {half:.2f}{_NARROW}%"


def _signed(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:+.2f}"
    if low is not None and high is not None:
        text += f" ({low:+.2f} to {high:+.2f})"
    return text.replace("-", "\N{MINUS SIGN}")


def ratio_text(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval."""
    if value is None:
        return "–"
    text = number(value, 3)
    return text if low is None or high is None else f"{text} ({low:.3g} to {high:.3g})"
