"""What workers run in tests of shared cards: real training, on a CPU that stands for the card.

While a file ``strike`` lies in the home, two trials wait for each other before they train, and the
first that sees that both have reported kills their host and takes the file away.
"""

import os
import signal
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from worker import tune_trainable
from worker.card_sharing.client import hosted_batches
from worker.report import Report

#: Seconds without a guest after which a host would end by itself: longer than any test.
IDLE = 3600.0


def on_cpu(params: dict[str, Any]) -> None:
    """Train as on a card, where there is none."""
    tune_trainable.trainable({"task": params["task"] | {"device": "cpu"}})


def _hosted(task: dict[str, Any], address: Path) -> Generator[list[Report], None, None]:
    folder = Path(task["checkpoint_dir"])
    strike = folder.parents[2] / "strike"
    _meet(folder, "arrived", strike)
    with closing(hosted_batches(task, address, idle_seconds=IDLE)) as batches:
        for batch in batches:
            yield batch
            # Asked for the next ones: these have reached the driver.
            (folder / "reported").touch()
            if batch and strike.exists() and _count(folder, "reported") == 2:
                strike.unlink(missing_ok=True)
                os.kill(batch[-1].provenance["pid"], signal.SIGKILL)


def _meet(folder: Path, name: str, strike: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    while strike.exists() and _count(folder, name) < 2:
        time.sleep(0.01)


def _count(folder: Path, name: str) -> int:
    """Trials of the sweep that have left this file."""
    return len(list(folder.parent.glob(f"*/{name}")))


tune_trainable.hosted_batches = _hosted
