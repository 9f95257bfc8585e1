"""How good matches are, beside what they cost: noise model, real networks, the paper's setting.

    python -m benchmarks.matching --only noise,mlp --out out/matching [--processes 4]

Each part writes OUT/PART.json; runs are kept under OUT/runs, and what is there is not trained
again, so a part that was stopped goes on; ``--until HH:MM`` stops it. ``--rehearse`` trains three
steps of each kind of run and invents the rest, to see in seconds that a machine has all that the
parts want; nothing of it is kept. ``--only table`` prints the table of the parts that are
there, and every call ends with it. Needs torch, numpy and pydantic; no Ray, no installation.

Parts: predict (milliseconds of a prediction), noise (300 matches on a noise model), digits and mlp
(a WRN and a perceptron on the digits, CPU), cifar-gpu (WRN-10-1 on CIFAR-10, several processes on a
card), worth-digits, worth-mlp, worth-cifar-gpu (is it worth it?), coverage-mlp (300 matches on a
real network), paper (WRN-22-7.5, 80,000 steps).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.matching.coverage import benchmark_coverage
from benchmarks.matching.nets import NETWORKS, STEPS, benchmark_nets
from benchmarks.matching.noise import MATCHES, benchmark_noise
from benchmarks.matching.paper import benchmark_paper
from benchmarks.matching.rehearsal import Rehearsal
from benchmarks.matching.table import table
from benchmarks.matching.training import StopTime, Workshop
from benchmarks.matching.worth import benchmark_worth
from ndadam.theory.prediction import OptimizerSetting, predict
from worker.data.prepared import default_home, list_datasets

PARTS = (
    "predict",
    "noise",
    *NETWORKS,
    *(f"worth-{name}" for name in NETWORKS),
    *(f"coverage-{name}" for name in NETWORKS),
    "paper",
    "table",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="predict,noise", help="parts, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("out/matching"))
    parser.add_argument("--data", type=Path, default=None, help="folder of prepared data sets")
    parser.add_argument("--processes", type=_count, default=1, help="runs at once")
    parser.add_argument("--together", type=_count, default=1, help="runs that share a process")
    parser.add_argument("--matches", type=int, default=MATCHES, help="of noise and coverage")
    parser.add_argument("--gpus", default="", help="cards that processes take in turn, as 0,1,2,3")
    parser.add_argument("--until", type=_clock, default=None, help="stop at this time, HH:MM")
    parser.add_argument("--rehearse", action="store_true", help="go through parts in seconds")
    parser.add_argument("--plots", type=Path, default=None, help="folder to draw plots into")
    parser.add_argument("--steps", type=int, default=None, help="of real runs, to try it out")
    arguments = parser.parse_args()
    wanted = [part.strip() for part in arguments.only.split(",") if part.strip()]
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    if arguments.rehearse:  # invented figures lie nowhere that real ones may
        with tempfile.TemporaryDirectory() as folder:
            arguments.out = Path(folder)
            _go_through(wanted, Rehearsal, arguments)
            table(arguments.out)
        print(f"rehearsed: {', '.join(wanted)}; its figures were invented and are gone")
        return
    _go_through(wanted, Workshop, arguments)
    print(table(arguments.out))
    if arguments.plots is not None:
        from benchmarks.matching.plots import write_plots  # wants matplotlib

        print("\n".join(f"wrote {path}" for path in write_plots(arguments.out, arguments.plots)))


def _go_through(wanted: Sequence[str], kind: type[Workshop], arguments: argparse.Namespace) -> None:
    shop = kind(
        arguments.out,
        arguments.data or default_home(),
        arguments.processes,
        tuple(card for card in arguments.gpus.split(",") if card),
        arguments.until,
        arguments.together,
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        for part in wanted:
            if part != "table":
                found = _part(part, shop, arguments)()
                path = arguments.out / f"{part}.json"
                path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                if "stopped" in found:
                    raise StopTime(found["stopped"])
    except StopTime as stop:
        print(f"stopped in {part}: {stop}. The same command goes on.", flush=True)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _clock(text: str) -> float:
    """The next time that the clock shows HH:MM, as a Unix time."""
    try:
        wanted = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise argparse.ArgumentTypeError(f"a time must look like 18:30, got {text!r}") from None
    now = datetime.now()
    found = datetime.combine(now.date(), wanted)
    return (found if found > now else found + timedelta(days=1)).timestamp()


def _part(part: str, shop: Workshop, asked: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    if part == "predict":
        return benchmark_predict
    if part == "noise":
        return lambda: benchmark_noise(shop, asked.matches)
    if part == "paper":
        return lambda: benchmark_paper(shop, **({"steps": asked.steps} if asked.steps else {}))
    network = part.removeprefix("worth-").removeprefix("coverage-")
    if NETWORKS[network]["dataset"] == "digits" and not asked.rehearse:
        _prepare_digits(shop.data_home)
    if part.startswith("worth-"):
        return lambda: benchmark_worth(network, shop, asked.steps)
    if part.startswith("coverage-"):
        return lambda: benchmark_coverage(network, shop, 1 if asked.rehearse else asked.matches)
    return lambda: benchmark_nets(network, shop, asked.steps or STEPS)


def _prepare_digits(home: Path) -> None:
    if "digits" not in [info.name for info in list_datasets(home)]:
        from worker.data.fetch import prepare_digits  # wants scikit-learn

        prepare_digits(home)


def benchmark_predict(times: int = 50) -> dict[str, Any]:
    """Milliseconds of a closed-form match over 80,000 steps of a cosine, for every target."""
    import math

    source = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3)
    targets = {
        "ndadam": OptimizerSetting("ndadam"),
        "adamw": OptimizerSetting("adamw", weight_decay=0.5),
        "sgd": OptimizerSetting("sgd", momentum=0.9, weight_decay=5e-4),
        "sgdw": OptimizerSetting("sgdw", momentum=0.9, weight_decay=0.01),
    }
    found = {}
    for name, target in targets.items():
        seconds = []
        for _ in range(times):
            began = time.thread_time()
            predict(
                source,
                target,
                num_steps=80_000,
                factor=lambda step: 0.5 * (1 + math.cos(math.pi * step / 80_000)),
            )
            seconds.append(time.thread_time() - began)
        found[name] = 1000 * statistics.median(seconds)
    return {"part": "predict", "milliseconds": found}


if __name__ == "__main__":
    main()
