"""Times the sweep engine: what a sweep costs beside training, and how fast its store and API are.

    python -m benchmarks.sweep [--only orchestration|store|http|growth] [--store sqlite|postgresql]
                               [--json FILE] [--rounds N] [--default-trials N] [--growth-trials N]

Each part starts what it needs (Ray, MLflow, a runner, the API) in a folder of its own and removes
it. The trainable reports and does nothing else, so every second is overhead. Tune alone runs on
the same cluster, in the same call; its defaults with its MLflow callback take minutes, so fewer
trials of them may be run and their time is then multiplied.
"""

import argparse
import itertools
import json
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.sweep.growth import growth
from benchmarks.sweep.http import http
from benchmarks.sweep.orchestration import orchestration
from benchmarks.sweep.parts import Figure, Options, database
from benchmarks.sweep.store import store
from sweeps.cluster.capacity import usable_cpus

Part = Callable[[Options], list[Figure]]

PARTS: dict[str, Part] = {
    "orchestration": orchestration,
    "store": store,
    "http": http,
    "growth": growth,
}
STORES = ("sqlite", "postgresql")


def measure(
    parts: list[str], stores: list[str], arguments: argparse.Namespace
) -> tuple[list[Figure], list[str]]:
    """Run the parts on each kind of store; the figures, and the parts that failed."""
    figures: list[Figure] = []
    failed: list[str] = []
    for kind, part in itertools.product(stores, parts):
        try:
            for figure in _run(part, kind, arguments):
                print(figure.line(), flush=True)
                figures.append(figure)
        except Exception:  # the other parts can be measured all the same
            traceback.print_exc()
            failed.append(f"{part} on {kind}")
    return figures, failed


def _run(part: str, kind: str, arguments: argparse.Namespace) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        database(kind, Path(folder)) as url,
    ):
        options = Options(
            Path(folder),
            kind,
            url,
            arguments.default_trials,
            arguments.growth_trials,
            arguments.rounds,
        )
        return PARTS[part](options)


def table(figures: list[Figure]) -> str:
    """The figures as Markdown."""
    rows = ["| part | store | figure | measured | target | |", "|---|---|---|---|---|---|"]
    return "\n".join([*rows, *(figure.row() for figure in figures)])


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS), help="one part")
    parser.add_argument("--store", choices=STORES, help="one kind of store; both by default")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--default-trials", type=int, default=40, help="of Tune's defaults")
    parser.add_argument("--growth-trials", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3, help="of 40 trials; the quickest counts")
    arguments = parser.parse_args()
    # Also when it is told to stop: what was started has to go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before, cores = os.getloadavg()[0], usable_cpus()
    parts = [arguments.only] if arguments.only else list(PARTS)
    stores = [arguments.store] if arguments.store else list(STORES)
    figures, failed = measure(parts, stores, arguments)
    print(table(figures))
    print(f"\nload of the machine before: {before:.1f}, cores it may use: {cores}")
    if arguments.json:
        about = {
            "load_before": before,
            "cores": cores,
            "python": platform.python_version(),
        }
        found = about | {"failed": failed, "figures": [figure.to_json() for figure in figures]}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
