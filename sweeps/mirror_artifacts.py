"""What a finished sweep leaves in MLflow beside its metrics: table, figures, environment, model."""

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sweeps.analysis import Analysis, analysis
from sweeps.kept_model import kept, weights_of
from sweeps.mirror_figures import drawings, html, png
from sweeps.mirror_model import write_model
from sweeps.mirror_summary import description, match_body, summary_metrics, summary_params
from sweeps.records import MetricPoint, Sweep
from sweeps.result_table import result_table
from sweeps.store import Store

log = logging.getLogger(__name__)


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
        body = match_body(sweep) if found is None else self._body(sweep, found)
        # Each time: new notes of a sweep that has ended replaced what was said of it.
        client.set_tags(run_id, {"mlflow.note.content": description(sweep, body, self.page_url)})
        # Of the run: one that was deleted in MLflow and made anew has nothing yet.
        end = (run_id, sweep.finished_at)
        if end in self._sent:
            return
        client.log(run_id, summary_metrics(sweep), params=summary_params(sweep))
        if found is not None:
            self._send_files(client, sweep, run_id, found)
        self._sent.add(end)

    def _send_files(self, client: Client, sweep: Sweep, run_id: str, found: Analysis) -> None:
        with tempfile.TemporaryDirectory(prefix="ndsweep-") as made:
            folder = Path(made)
            self._write(sweep, found, folder)
            client.log_folder(run_id, folder)

    def _write(self, sweep: Sweep, found: Analysis, folder: Path) -> None:
        (folder / "results.md").write_text(result_table(found, "markdown"), encoding="utf-8")
        (folder / "results.csv").write_text(result_table(found, "csv"), encoding="utf-8")
        environment = json.dumps(self._environment(sweep), indent=2, sort_keys=True)
        (folder / "environment.json").write_text(environment, encoding="utf-8")
        drawn = drawings(self.store, sweep)
        figures = folder / "figures"
        figures.mkdir()
        for one in drawn:
            (figures / f"{one.name}.png").write_bytes(png(one))
        (figures / "interactive.html").write_text(html(sweep.name, drawn), encoding="utf-8")
        self._write_model(sweep, folder)

    def _write_model(self, sweep: Sweep, folder: Path) -> None:
        if self.home is None or kept(self.home, sweep.id) is None:
            return
        try:
            write_model(weights_of(self.home, sweep.id), folder / "model")
        except OSError as error:
            log.warning("sweep %s has no model in MLflow: %s", sweep.id, error)

    def _environment(self, sweep: Sweep) -> dict[str, Any]:
        """Where its best point was trained: versions, commit, card, data."""
        best = (sweep.best or {}).get("point")
        for trial in self.store.trials(sweep.id, point=best, limit=1).items:
            attempts = self.store.trial(sweep.id, trial.number).attempts
            if attempts:
                about = attempts[-1].provenance
                return {name: value for name, value in about.items() if name != "probe"}
        return {}

    def _body(self, sweep: Sweep, found: Analysis) -> str:
        """What came out of a sweep, in Markdown: its table, and that there is a model."""
        parts = [result_table(found, "markdown")]
        model = kept(self.home, sweep.id) if self.home is not None else None
        if model is not None:
            parts.append(
                f"`model` holds the trained network of trial {model['trial']}, the best one: "
                "`mlflow.pytorch.load_model`."
            )
        return "\n\n".join(parts)
