"""What a driver computes of its sweep, beyond what any reader can: importance and rungs."""

import logging
import time
from typing import Any

from sweeps.analysis.arms import analyse
from sweeps.records import SweepState
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: While a sweep runs, the costly parts are left out beyond so many points; at its end they are not.
BUSY_POINTS = 2000


def driver_analysis(store: Store, sweep_id: str) -> dict[str, Any]:
    """The analysis of a sweep with importance and rung correlations, as JSON values."""
    from sweeps.analysis.importance import ped_anova
    from sweeps.analysis.rung_correlation import rung_correlations

    sweep = store.get_sweep(sweep_id)
    points = store.all_points(sweep_id)
    found = analyse(store, sweep_id)
    is_over = sweep.state != SweepState.RUNNING or not sweep.trials["running"]
    if len(points) > BUSY_POINTS and not is_over:
        return found | {"importance": None, "rungs": None}
    began = time.monotonic()
    found["importance"] = ped_anova(sweep.spec, points)
    found["rungs"] = rung_correlations(store, sweep_id, sweep.spec, points)
    log.debug("importance and rungs took %.2f s", time.monotonic() - began)
    return found
