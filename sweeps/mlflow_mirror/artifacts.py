"""What a finished sweep or match leaves in MLflow: tables, figures, environment, model.

Its run carries what the sweep fixed as params and what came out as metrics, so that MLflow's own
tables compare it.
"""

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sweeps.analysis.arms import Analysis, analysis
from sweeps.analysis.result_tables import result_table
from sweeps.match.result import result_of
from sweeps.mlflow_mirror.figures import (
    match_charts,
    sweep_charts,
    write_figures,
)
from sweeps.mlflow_mirror.match import (
    match_body,
    match_curves,
    match_params,
    match_tables,
    match_values,
)
from sweeps.mlflow_mirror.model import write_model
from sweeps.mlflow_mirror.names import MAX_PARAM, cut, mirror_name, param_text
from sweeps.mlflow_mirror.run_fields import description, milliseconds
from sweeps.records import MetricPoint, Sweep
from sweeps.retention.best_weights import kept, weights_of
from sweeps.store.store import Store
from worker.config.training import IMAGES


def summary_params(sweep: Sweep) -> dict[str, str]:
    """What all of its trials share, under the names that they have there.

    MLflow never lets go of a parameter: nothing is one that an extension changes.
    """
    varied = {"seed", *sweep.space}
    named = {name: value for name, value in sweep.base.items() if name not in varied}
    named |= match_params(sweep) if sweep.kind == "match" else {"sampler": sweep.sampler}
    return {
        mirror_name(name): cut(param_text(value), MAX_PARAM, "spec.json")
        for name, value in named.items()
        if value is not None
    }


def summary_metrics(sweep: Sweep) -> list[MetricPoint]:
    """Its best value under the objective's name, or a match's findings and curves by step."""
    if sweep.finished_at is None:
        return []
    result = result_of(sweep) if sweep.kind == "match" else None
    found = match_values(result) if sweep.kind == "match" else _best_values(sweep)
    curves = {name: [(0, value)] for name, value in found.items()} | match_curves(result)
    at = milliseconds(sweep.finished_at)
    return [
        MetricPoint(0, name, step, float(value), at)
        for name, points in curves.items()
        for step, value in points
        if value is not None
    ]


def _best_values(sweep: Sweep) -> dict[str, Any]:
    return {sweep.objective.metric: (sweep.best or {}).get("mean")}


log = logging.getLogger(__name__)

#: Trials that are asked where they ran; one that failed early may not know.
_ASKED = 20


class Client(Protocol):
    """What is asked of MLflow's client."""

    def log(
        self,
        run_id: str,
        metrics: Sequence[MetricPoint] = (),
        *,
        params: Mapping[str, str] | None = None,
    ) -> None: ...

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None: ...

    def log_folder(self, run_id: str, folder: Path, artifact: str = "") -> None: ...


@dataclass
class SweepArtifacts:
    """Makes and sends them, once for each end of a sweep."""

    store: Store
    #: NDSWEEP_HOME, where the weights of best trials lie; None = no models.
    home: Path | None = None
    #: Where the service's pages are, for links back.
    page_url: str = ""

    def __post_init__(self) -> None:
        self._sent: set[tuple[str, object]] = set()

    def send(self, client: Client, sweep: Sweep, run_id: str) -> None:
        """Send what is not sent yet. What cannot be made is logged and left out."""
        found = analysis(self.store, sweep.id) if sweep.kind == "sweep" else None
        body = match_body(result_of(sweep)) if found is None else self._body(sweep, found)
        # Each time: new notes of a sweep that has ended replaced what was said of it.
        client.set_tags(run_id, {"mlflow.note.content": description(sweep, self.page_url, body)})
        # Of the run: one that was deleted in MLflow and made anew has nothing yet.
        end = (run_id, sweep.finished_at)
        if end in self._sent:
            return
        client.log(run_id, summary_metrics(sweep), params=summary_params(sweep))
        with tempfile.TemporaryDirectory(prefix="ndsweep-") as made:
            folder = Path(made)
            self._write(sweep, found, folder)
            client.log_folder(run_id, folder)
        self._sent.add(end)

    def _write(self, sweep: Sweep, found: Analysis | None, folder: Path) -> None:
        for name, text in self._texts(sweep, found).items():
            (folder / name).write_text(text, encoding="utf-8")
        drawn = match_charts(sweep) if found is None else sweep_charts(self.store, sweep)
        if drawn:
            write_figures(sweep.name, drawn, folder / "figures")
        if found is not None:
            self._write_model(sweep, folder)

    def _texts(self, sweep: Sweep, found: Analysis | None) -> dict[str, str]:
        """The tables of results, and where it was trained."""
        environment = json.dumps(self._environment(sweep), indent=2, sort_keys=True)
        texts = {"environment.json": environment}
        if found is not None:
            return texts | {
                "results.md": result_table(found, "markdown", sweep.metrics),
                "results.csv": result_table(found, "csv", sweep.metrics),
            }
        result = result_of(sweep)
        return texts if result is None else texts | match_tables(result)

    def _write_model(self, sweep: Sweep, folder: Path) -> None:
        if self._model_of(sweep) is None or self.home is None:
            return
        try:
            write_model(weights_of(self.home, sweep.id), folder / "model")
        except OSError as error:
            log.warning("sweep %s has no model in MLflow: %s", sweep.id, error)

    def _model_of(self, sweep: Sweep) -> dict[str, Any] | None:
        """What is kept of a network that can be built here: other trainings build theirs."""
        is_built_here = sweep.spec.get("training", IMAGES) == IMAGES
        return kept(self.home, sweep.id) if is_built_here and self.home is not None else None

    def _environment(self, sweep: Sweep) -> dict[str, Any]:
        """Where its best point, or the first of a match, was trained: versions, commit, card."""
        best = (sweep.best or {}).get("point")
        for trial in self.store.trials(sweep.id, point=best, limit=_ASKED).items:
            attempts = self.store.trial(sweep.id, trial.number).attempts
            if attempts and (about := attempts[-1].provenance):
                return {name: value for name, value in about.items() if name != "probe"}
        return {}

    def _body(self, sweep: Sweep, found: Analysis) -> str:
        """What came out of a sweep, in Markdown: its table, and that there is a model."""
        parts = [result_table(found, "markdown", sweep.metrics)]
        model = self._model_of(sweep)
        if model is not None:
            parts.append(
                f"`model` holds the trained network of trial {model['trial']}, the best one: "
                "`mlflow.pytorch.load_model`."
            )
        return "\n\n".join(parts)
