"""Keeps the weights of the best trial of a sweep; those of all others go with their checkpoints."""

import json
import logging
import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from sweeps.errors import WeightsNotKept
from sweeps.records import Sweep, Trial, TrialState
from sweeps.retention.places import Places
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: As the worker names it in a trial's folder; known here without torch.
WEIGHTS = "weights.pt"


def keep_if_best(store: Store, places: Places, trial: Trial) -> bool:
    """Move a trial's weights to ``models/<sweep>`` if no kept trial is better; say whether.

    Call it before the trial's checkpoints are removed. A trial without weights or without a finite
    objective is never the best.
    """
    weights = places.checkpoints(trial.number) / WEIGHTS
    if trial.state != TrialState.COMPLETE or trial.objective is None or not weights.exists():
        return False
    folder = places.home / "models" / places.sweep_id
    known = kept(places.home, places.sweep_id)
    sign = store.get_sweep(places.sweep_id).objective.sign
    if known is not None and sign * float(known["objective"]) <= sign * trial.objective:
        return False
    about = {"trial": trial.number, "objective": trial.objective, "params": trial.params}
    half_written = folder / ".best.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(weights, folder / WEIGHTS)
        half_written.write_text(json.dumps(about))
        os.replace(half_written, folder / "best.json")
    except OSError as error:
        # The numbers are in the store; a search does not end for want of a file.
        log.warning("the weights of trial %d were not kept: %s", trial.number, error)
        return False
    return True


def kept(home: Path, sweep_id: str) -> dict[str, Any] | None:
    """What is kept of a sweep: trial, objective, params; None if nothing is."""
    folder = home / "models" / sweep_id
    try:
        about: dict[str, Any] = json.loads((folder / "best.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return about if (folder / WEIGHTS).exists() else None


@dataclass(frozen=True)
class KeptWeights:
    """Final weights of the best trial of a sweep."""

    sweep_id: str
    path: Path
    trial: int
    objective: float

    def open(self) -> BufferedReader:
        """Open the file to read it. Raises WeightsNotKept if it was removed meanwhile."""
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:
            raise WeightsNotKept(self.sweep_id, "they were removed just now") from error


def kept_weights(home: Path, sweep: Sweep) -> KeptWeights:
    """The weights that are kept of a sweep. Raises WeightsNotKept, which says why none are."""
    about = kept(home, sweep.id)
    if about is None:
        raise WeightsNotKept(sweep.id, _why_none(home, sweep))
    path = weights_of(home, sweep.id)
    return KeptWeights(sweep.id, path, int(about["trial"]), float(about["objective"]))


def _why_none(home: Path, sweep: Sweep) -> str:
    if sweep.kind == "match":
        return "the trials of a match are measured, none of them is the best"
    if sweep.reason.startswith("imported"):
        return "its results were imported, and results hold no weights"
    if not sweep.trials[TrialState.COMPLETE]:
        return f"none of its trials is complete (the sweep is {sweep.state})"
    if sweep.best is None:
        return "no complete trial has a finite objective"
    return (
        f"there are none in {home / 'models' / sweep.id} on the machine of the service; its runner "
        "has another NDSWEEP_HOME, or its training saves no weights (run.save_weights)"
    )


def weights_of(home: Path, sweep_id: str) -> Path:
    """Where the weights of the best trial lie."""
    return home / "models" / sweep_id / WEIGHTS
