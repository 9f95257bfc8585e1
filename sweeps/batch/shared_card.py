"""Runs of a batch that share a GPU: which specs ask for it, and a run in the host of its GPU.

The process that a run is handed to then trains nothing itself. It passes the run on to the one
process that trains all runs of the GPU side by side (``worker.card_sharing.process``), as a trial's
worker does under the service, and hears what becomes of it.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sweeps.batch.plan import BatchRefused
from sweeps.spec.sweep_spec import SweepSpec
from worker.checkpoints.stop_file import request_stop, withdraw_stop
from worker.report import Report

#: Seconds that a host stays without a run: from one to the next it is a fraction of one, and at
#: the end of a batch the card is wanted back.
_IDLE = 5.0
#: Seconds between two looks at the clock while a host trains.
_LOOK = 0.2


def runs_at_once(specs: Sequence[SweepSpec]) -> int:
    """How many runs share a GPU. Raises BatchRefused where specs want different numbers.

    Who gets a run is decided run by run, over all specs; a run that wants a GPU of its own could
    find it shared.
    """
    wanted = {spec.name: spec.resources.trials_per_gpu for spec in specs}
    if len(set(wanted.values())) > 1:
        each = ", ".join(f"{count} in {name}" for name, count in wanted.items())
        raise BatchRefused(
            f"resources.trials_per_gpu must be the same in all specs of a batch, got {each}; "
            "give each its own batch"
        )
    return next(iter(wanted.values()), 1)


def host_key(out: Path, place: str) -> str:
    """Runs with the same key share a host: same batch, same GPU, same code."""
    return f"batch {out} {place} {Path(__file__).parents[1]} {sys.prefix}"


def hosted_run(
    task: dict[str, Any], host: str, is_time_to_stop: Callable[[], bool]
) -> Generator[Report, None, None]:
    """Have the host of a key train a task, and yield its reports.

    A task is what ``worker.training.trial`` takes.

    Reports of earlier attempts come first. Raises HostLost when the host ends under the run, and
    what the run raised there. When it is time to stop, the run writes a checkpoint and ends.
    """
    from worker.card_sharing.client import hosted_reports
    from worker.card_sharing.protocol import host_address

    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    withdraw_stop(task["checkpoint_dir"])
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK):
            if is_time_to_stop():
                request_stop(task["checkpoint_dir"])
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        reports = hosted_reports(
            task | {"threads": threads}, host_address(host), idle_seconds=_IDLE
        )
        with closing(reports):
            yield from reports
    finally:
        is_over.set()
        watcher.join()
