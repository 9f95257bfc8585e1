"""Ray Tune alone: ``python -m benchmarks.sweep_tune bare|defaults TRIALS HOME MLFLOW``.

``bare`` reuses actors and has no logger at all; ``defaults`` is what one gets from the manuals,
with Tune's MLflow callback. Prints the seconds from the first trial's start to the last one's end.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

from benchmarks.sweep_workloads import bare
from sweeps import cluster


class Watch(tune.Callback):  # type: ignore[misc]
    """Notes the first start and the last end."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0

    def on_trial_start(self, **_: Any) -> None:
        self.first = self.first or time.monotonic()

    def on_trial_complete(self, **_: Any) -> None:
        self.last = time.monotonic()


def main() -> None:
    """Run the trials and print the time."""
    how, trials, home, url = sys.argv[1:5]
    is_bare = how == "bare"
    if is_bare:
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    cluster.connect(Path(home))
    watch = Watch()
    callbacks: list[tune.Callback] = [watch]
    if not is_bare:
        callbacks.append(MLflowLoggerCallback(tracking_uri=url, experiment_name="defaults"))
    space = {"alpha_v": tune.loguniform(0.001, 1.0), "alpha_s": tune.loguniform(0.0001, 0.1)}
    tune.Tuner(
        tune.with_resources(bare, {"CPU": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=int(trials), reuse_actors=is_bare),
        run_config=tune.RunConfig(
            name=how, storage_path=str(Path(home) / "bare"), callbacks=callbacks, verbose=0
        ),
    ).fit()
    assert watch.first is not None
    print(json.dumps({"seconds": watch.last - watch.first}), flush=True)


if __name__ == "__main__":
    main()
