"""Removes sweeps for good: their rows and what lies below ``NDSWEEP_HOME`` of them."""

import logging
import shutil
from pathlib import Path

from sweeps.errors import SweepNotFound, SweepStateConflict
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: Folders of the home with one below for each sweep.
_FOLDERS = ("logs", "checkpoints", "models", "images")


def remove(store: Store, home: Path, sweep_id: str) -> None:
    """Remove a sweep that has ended, with everything recorded of it, its logs and checkpoints.

    Raises SweepNotFound, and SweepStateConflict while it has not ended.
    """
    store.delete_sweep(sweep_id)
    for kind in _FOLDERS:
        shutil.rmtree(home / kind / sweep_id, ignore_errors=True)


def remove_marked(store: Store, home: Path) -> None:
    """Remove every sweep that somebody asked to delete and whose trials have stopped since."""
    for sweep_id in store.to_be_deleted():
        try:
            remove(store, home, sweep_id)
            log.info("sweep %s: deleted", sweep_id)
        except (SweepNotFound, SweepStateConflict):
            # Somebody was faster, or let it go on.
            continue
