"""The paper's tables and figures beside our runs, in the words of the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dashboards.paper.wording import point_name
from dashboards.web.point_cache import Kept
from sweeps.analysis.formatting import NOTHING, signed, with_interval
from sweeps.paper.balance import balance_by_layer, balance_curve, balance_note
from sweeps.paper.comparison import (
    ComparedClaim,
    ComparedEntry,
    ComparedTable,
    Measured,
    compared_claims,
    compared_tables,
)
from sweeps.paper.figures import (
    LAYER,
    MeanCurve,
    law_note,
    mean_curve,
    measured_layers,
    measured_ratios,
    setting_label,
)
from sweeps.paper.runs import Arm, PaperRun, PaperRuns, runs_of_store
from sweeps.paper.values import paper_values
from sweeps.spec.presets import read_preset
from sweeps.store.store import Store

T = TypeVar("T")

_NARROW = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper: the preset behind it and the metric that it shows."""

    id: str
    title: str
    preset: str
    metric: str
    #: What the paper's figure shows, in a sentence.
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
        "With and without BN-Softmax, which keeps the magnitude near γ_C: those lines coincide.",
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
    """Values of the template. Shared: callers must not change them."""
    return _kept(store, "page", lambda: _values_of(paper_runs(store), paper_tables(store)))


def paper_tables(store: Store) -> list[ComparedTable]:
    """Each table of the paper beside the finished runs. Shared: callers must not change it."""
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
    known, balance, ratios = paper_values(), balance_by_layer(runs), measured_ratios(runs)
    return {
        "source": known.source,
        "paper_runs": known.runs,
        "margin": known.margin,
        "tables": [_table(table) for table in tables],
        "figures": [(figure, _links(runs.arms(figure.preset))) for figure in FIGURES],
        "ratios": ratios,
        "ratio_layers": measured_layers(ratios),
        "law_note": law_note(runs),
        "balance": balance,
        "balance_note": balance_note(runs, balance),
        "claims": [_claim(found) for found in compared_claims(runs)],
        "layer": LAYER,
        "presets": {name: read_preset(name).title for name in _presets()},
    }


def _presets() -> list[str]:
    known = paper_values()
    named = [table.preset for table in known.tables] + [figure.preset for figure in FIGURES]
    return named + [claim.preset for claim in known.claims]


def _table(found: ComparedTable) -> dict[str, Any]:
    return {
        "table": found.table,
        "rows": [_row(row) for row in found.rows],
        "differences": found.differences,
        "gains": found.gains,
        "num_runs": found.num_runs,
    }


def _row(row: ComparedEntry) -> EntryRow:
    ours = row.measured
    return EntryRow(
        part=row.entry.part,
        label=row.entry.label,
        paper=_percent(row.entry.test_error),
        ours=_measured(ours),
        n=ours.n,
        difference=difference_text(row.difference, row.low, row.high),
        verdict=row.verdict,
        because=row.because,
        runs=_run_links(row.runs),
    )


def _claim(found: ComparedClaim) -> dict[str, Any]:
    return {
        "claim": found.claim,
        "metric": found.metric.replace("_", " "),
        "num_runs": found.num_runs,
        "arms": [
            {
                "name": point_name(one.arm.params),
                "error": _measured(one.measured),
                "n": one.measured.n,
                "runs": _run_links(one.arm.runs),
            }
            for one in found.arms
        ],
    }


def _run_links(runs: tuple[PaperRun, ...]) -> list[tuple[str, str]]:
    return [(run.where, f"seed {run.seed}") for run in runs if run.where.startswith("/")]


def _links(arms: list[Arm]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Label of each arm with links to its runs."""
    return [(arm_label(arm), _run_links(arm.runs)) for arm in arms]


def arm_label(arm: Arm) -> str:
    """An arm in the paper's symbols, with BN-Softmax if the preset varies it."""
    label = setting_label(arm.config)
    if arm.params.get("bn_scale") == "fixed":
        return f"{label}, γ_C = {arm.config['gamma_c']:g}, no scales"
    return label


def figure_curves(runs: PaperRuns, figure: PaperFigure) -> list[MeanCurve]:
    """A line of the figure for each arm that has runs."""
    arms = runs.arms(figure.preset)
    if figure.preset == "paper-fig1a":
        found = [balance_curve(arm, LAYER, arm_label(arm)) for arm in arms]
    else:
        found = [mean_curve(arm_label(arm), arm, figure.metric) for arm in arms]
    return [curve for curve in found if curve is not None]


def _percent(value: float) -> str:
    return f"{value:.2f}{_NARROW}%"


def _measured(ours: Measured) -> str:
    if ours.mean is None:
        return NOTHING
    if ours.high is None:
        return _percent(ours.mean)
    return f"{ours.mean:.2f} ± {ours.high - ours.mean:.2f}{_NARROW}%"


def difference_text(value: float | None, low: float | None, high: float | None) -> str:
    """A difference in points with its interval."""
    return with_interval(signed, value, low, high)


def ratio_text(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval."""
    # Three decimals always: 1.003 differs from 1, and both ends of an interval look alike.
    return with_interval("{:.3f}".format, value, low, high)
