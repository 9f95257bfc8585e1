"""A long sweep through real Ray: what its driver's memory and the time per trial do meanwhile."""

import time

import psutil

from benchmarks.sweep.parts import (
    Figure,
    Options,
    finish,
    process,
    ray_head,
    runner_command,
    submit,
    trivial_spec,
    wait,
)
from benchmarks.sweep.workloads import REPORTS
from sweeps.store.store import Store

#: Share of the trials at either end whose time is compared; workers start in the first hundredth.
EDGE, WARM_UP = 0.1, 0.01


def growth(options: Options) -> list[Figure]:
    """Memory of the driver from its first trials to its last; time per trial at both ends."""
    store = Store(options.url)
    count = options.growth_trials
    with (
        ray_head(options.folder),
        process(runner_command(options, None), options.folder / "runner.log"),
    ):
        wait(lambda: any(r.info.get("cluster") for r in store.runners()), "a driver is warm")
        sweep_id = submit(store, trivial_spec(count, REPORTS))
        wait(lambda: store.get_sweep(sweep_id).trials["complete"] > WARM_UP * count, "it runs")
        driver = _driver(store, sweep_id)
        first = driver.memory_info().rss
        most = settled = first
        while not store.get_sweep(sweep_id).state.is_finished():
            try:
                most = max(most, driver.memory_info().rss)
                if store.get_sweep(sweep_id).trials["complete"] < EDGE * count:
                    settled = most
            except psutil.NoSuchProcess:
                break
            time.sleep(0.5)
        finish(store, sweep_id)
    ends = sorted(
        trial.finished_at.timestamp()
        for trial in store.all_trials(sweep_id)
        if trial.finished_at is not None
    )
    store.close()
    edge, skipped = int(EDGE * count), int(WARM_UP * count)
    at_start = (ends[skipped + edge] - ends[skipped]) / edge
    at_end = (ends[-1] - ends[-1 - edge]) / edge
    grown = (most - first) / 2**20
    return [
        Figure("growth", options.kind, f"{count} trials", ends[-1] - ends[0], "s"),
        Figure("growth", options.kind, "driver memory, growth", grown, "MB", target=150.0),
        Figure(
            "growth",
            options.kind,
            "of it after the first tenth of the trials",
            (most - settled) / 2**20,
            "MB",
        ),
        Figure("growth", options.kind, "time per trial at the start", at_start * 1000, "ms"),
        Figure("growth", options.kind, "time per trial at the end", at_end * 1000, "ms"),
        Figure("growth", options.kind, "end beside start", at_end / at_start, "×", target=1.2),
    ]


def _driver(store: Store, sweep_id: str) -> psutil.Process:
    def pids() -> list[int]:
        drivers = [d for runner in store.runners() for d in runner.info["drivers"]]
        return [driver["pid"] for driver in drivers if driver["sweep"] == sweep_id]

    wait(pids, "the runner names its driver")
    return psutil.Process(pids()[0])
