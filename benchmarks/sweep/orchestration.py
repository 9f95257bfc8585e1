"""40 trials of 10 reports: this engine, Tune alone with reused actors, Tune's defaults, MLflow."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.sweep.parts import (
    ROOT,
    Figure,
    Options,
    finish,
    mlflow,
    process,
    ray_head,
    runner_command,
    submit,
    trivial_spec,
    wait,
)
from benchmarks.sweep.workloads import REPORTS
from sweeps.store.store import Store

TRIALS = 40


def orchestration(options: Options) -> list[Figure]:
    """The three ways, on one cluster."""
    store = Store(options.url)
    ours: list[tuple[float, float]] = []
    bare: list[float] = []
    with ray_head(options.folder), mlflow(options.folder) as url:
        with process(runner_command(options, url), options.folder / "runner.log"):
            _run(store, 4)
            for _ in range(options.rounds):
                bare.append(_tune("bare", TRIALS, options.folder, url))
                ours.append(_run(store, TRIALS))
        callback = _tune("defaults", options.default_trials, options.folder, url)
    store.close()
    defaults = callback * TRIALS / options.default_trials
    seconds, behind = min(ours)

    def figure(name: str, value: float, unit: str, **target: Any) -> Figure:
        return Figure("orchestration", options.kind, name, value, unit, **target)

    return [
        figure("40 trials × 10 reports", seconds, "s"),
        figure("Tune alone, reused actors", min(bare), "s"),
        figure("beside Tune alone", seconds / min(bare), "×", target=1.6),
        figure("mirror complete after the last row", behind, "s", target=10.0),
        figure(f"Tune's defaults with MLflow, {options.default_trials} trials", callback, "s"),
        figure(
            "faster than Tune's defaults", defaults / seconds, "×", target=8.0, sense="at least"
        ),
    ]


def _run(store: Store, trials: int) -> tuple[float, float]:
    """Seconds from the first trial's start to the last row, and from there to the mirror's end.

    The start is the entry of the first trial's function, as for Tune alone; the last row is that of
    the last trial's end. The driver that takes the sweep was started ahead, as always.
    """
    wait(lambda: any(r.info.get("cluster") for r in store.runners()), "a driver is warm")
    time.sleep(20.0)
    sweep_id = submit(store, trivial_spec(trials, REPORTS))
    finish(store, sweep_id)
    # By the worker's word: the store has when a start was written, which may be later.
    first = min(attempt.provenance["began"] for attempt in store.attempts(sweep_id))
    ends = [trial.finished_at for trial in store.all_trials(sweep_id)]
    last = max(end.timestamp() for end in ends if end is not None)
    wait(lambda: not _is_pending(store, sweep_id), "the mirror is complete")
    return last - first, time.time() - last


def _is_pending(store: Store, sweep_id: str) -> bool:
    work = store.mirror_pending(1, 1, sweep_id=sweep_id)
    return bool(work.sweeps or work.attempts)


def _tune(how: str, trials: int, home: Path, url: str) -> float:
    """The same by Tune alone, in a process of its own; seconds from first start to last end."""
    command = [sys.executable, "-m", "benchmarks.sweep.tune", how, str(trials), str(home), url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])
