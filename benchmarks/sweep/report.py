"""Times ``run.report`` of a training function: what a call costs, while its reports are received.

    python -m benchmarks.sweep.report [--reports 10000] [--metrics 5] [--json FILE]

A function reports as fast as it can; each report is checked, appended to the journal on the disk
and handed over, as in a trial. The receiver takes a batch and then works for 2 ms, about what Ray
Tune takes for one. Every report must come back from the journal.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.train import describe_machine
from worker.checkpoints.report_journal import ReportJournal
from worker.training.handle import Run
from worker.training.in_thread import Reports

#: Seconds that the receiver works for a batch.
RECEIVER_SECONDS = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reports", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=5, help="numbers in a report")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.reports, arguments.metrics)
    machine = describe_machine("cpu")
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(
        f"{arguments.reports:,} reports of {arguments.metrics} metrics: median "
        f"{1e3 * found['median']:.3f} ms, 99 % within {1e3 * found['p99']:.3f} ms, longest "
        f"{1e3 * found['longest']:.1f} ms; {found['batches']:,.0f} batches"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine, **found}, indent=2) + "\n")


def measure(folder: Path, num_reports: int, num_metrics: int) -> dict[str, float]:
    """Seconds of a call of ``report``: median, 99th percentile, longest; batches received."""
    took: list[float] = []

    def function(config: Any, run: Run) -> None:
        for step in range(num_reports):
            metrics = {f"metric_{i}": 1 / (step + i + 1) for i in range(num_metrics)}
            began = time.perf_counter()
            run.report(step=step, metrics=metrics)
            took.append(time.perf_counter() - began)

    journal, reports, batches = ReportJournal(folder), Reports(), 0
    run = Run(
        seed=0,
        device="cpu",
        folder=folder,
        config_key="",
        journal=journal,
        stop=lambda: False,
        send=reports.send,
    )
    for _ in reports.batches(function, None, run):
        batches += 1
        time.sleep(RECEIVER_SECONDS)
    # The last one says that the function is complete.
    assert sum(1 for _ in journal.replay()) == num_reports + 1
    took.sort()
    return {
        "median": statistics.median(took),
        "p99": took[int(0.99 * len(took))],
        "longest": took[-1],
        "batches": float(batches),
    }


if __name__ == "__main__":
    main()
