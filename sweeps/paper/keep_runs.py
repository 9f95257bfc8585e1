"""Copies of the runs behind a report, small enough to keep beside it in a repository."""

from collections.abc import Iterable
from pathlib import Path

from sweeps.batch.results import Curves, RunResult, read_results, write_result
from sweeps.batch.specs import keep_specs, kept_spec, spec_paths
from sweeps.paper.runs import PaperRuns, run_of_result, what_was_trained
from sweeps.paper.values import paper_values
from sweeps.store.queries.thinning import thin

#: Points of a curve that are kept, and digits of its values: a report of each of 200 epochs.
MAX_POINTS, DIGITS = 240, 4
_PLAIN = ("test_error", "train_loss", "train_error", "logit_rms", "images_per_second")
_PER_LAYER = ("effective_lr/", "projection_ratio/")
_FIGURES = ("paper-fig1a", "paper-fig1b", "paper-fig2", "paper-fig3")


def keep_runs(folder: Path, out: Path) -> int:
    """Copy every run of ``folder`` that a report draws on into ``out``; return how many.

    Final metrics, config and provenance stay as they are. Curves are thinned, and those of single
    layers kept only for the runs of Figure 1. The copies are results like any others, with the
    specs that they belong to beside them, so that they can be imported.
    """
    results = [result for result in read_results(folder) if result.state == "complete"]
    runs = PaperRuns(run_of_result(result) for result in results)
    presets = {table.preset for table in paper_values().tables}
    presets |= {claim.preset for claim in paper_values().claims} | set(_FIGURES)
    wanted = _trained(runs, presets)
    with_layers = _trained(runs, _FIGURES[:2])
    kept = [result for result in results if what_was_trained(result.config) in wanted]
    for result in kept:
        layers = what_was_trained(result.config) in with_layers
        write_result(out, slim(result, with_layers=layers))
    named = {member.spec for result in kept for member in result.specs}
    specs = [kept_spec(path) for path in spec_paths(folder)]
    keep_specs(out, [spec for spec in specs if spec.name in named])
    return len(kept)


def _trained(runs: PaperRuns, presets: Iterable[str]) -> set[str]:
    return {what_was_trained(arm.config) for name in presets for arm in runs.arms(name)}


def slim(result: RunResult, *, with_layers: bool) -> RunResult:
    """A result with fewer and shorter curves."""
    curves = []
    for group in result.curves:
        places = thin(range(len(group.steps)), MAX_POINTS)
        values = {
            name: [float(f"{column[place]:.{DIGITS}g}") for place in places]
            for name, column in group.values.items()
            if name in _PLAIN or (with_layers and name.startswith(_PER_LAYER))
        }
        if values:
            curves.append(Curves(steps=[group.steps[place] for place in places], values=values))
    return result.model_copy(update={"curves": curves})
