"""Ray Tune alone: ``python -m benchmarks.sweep.tune bare|defaults TRIALS HOME MLFLOW``.

``bare`` reuses actors and has no logger at all; ``defaults`` is what one gets from the manuals,
with Tune's MLflow callback. How results are reported and buffered is Tune's default in both. Prints
the seconds from the entry of the first trial's function to the last ``on_trial_complete``.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

from benchmarks.sweep.workloads import bare
from sweeps.cluster import head as cluster


class Watch(tune.Callback):  # type: ignore[misc]
    """Notes the first start, by the word of the trials, and the last end."""

    def __init__(self) -> None:
        self.first = float("inf")
        self.last = 0.0
        self.complete = 0

    def on_trial_complete(self, *, trial: Any, **_: Any) -> None:
        self.last = time.time()
        self.first = min(self.first, trial.last_result["began"])
        self.complete += 1


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
    if watch.complete != int(trials):
        raise RuntimeError(f"{watch.complete} of {trials} trials ended well")
    print(json.dumps({"seconds": watch.last - watch.first}), flush=True)


if __name__ == "__main__":
    main()
