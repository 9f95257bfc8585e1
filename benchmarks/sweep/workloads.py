"""What workers run for the benchmark of sweeps: reports, and nothing between them."""

import time
from typing import Any

from ray import tune

#: Reports of a trial.
REPORTS = 10


def trivial(params: dict[str, Any]) -> None:
    """Report as training does, as fast as it goes."""
    began = time.time()
    steps = params["task"]["config"]["steps"]
    for step in range(1, steps + 1):
        report = {
            "step": step,
            "num_steps": steps,
            "status": "complete" if step == steps else "running",
            "metrics": {"validation_error": 1.0 / step},
            "provenance": {"began": began},
        }
        tune.report({"report": report, "objective": 1.0 / step})


def bare(config: dict[str, Any]) -> None:
    """The same for Tune alone, as its manual has it: a flat dictionary of metrics."""
    began = time.time()
    for step in range(1, REPORTS + 1):
        tune.report({"validation_error": 1.0 / step, "began": began})
