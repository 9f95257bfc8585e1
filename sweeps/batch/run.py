"""Runs sweep specs on a machine without a service, Ray or a network: ``python -m sweeps.batch``.

One long-lived process per GPU trains run after run; each finished run leaves one small JSON file
in a folder. What lies there is not run again, and an unfinished run goes on from its checkpoint,
so the same command started again goes on where it ended. Needs torch, numpy and pydantic only.
"""

import argparse
import fcntl
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sweeps.batch.clock import Pace, Paces, parse_until
from sweeps.batch.loop import BatchLoop, Limits, Places
from sweeps.batch.plan import BatchRefused, PlannedRun, plan_runs, read_specs
from sweeps.batch.results import (
    ResultRefused,
    RunResult,
    read_result,
    read_results,
    result_path,
    result_paths,
    write_result,
)
from sweeps.batch.shared_card import host_key, runs_at_once
from sweeps.batch.slot import Arrival, Slot, cpu_threads, gpu_names
from sweeps.batch.specs import keep_specs
from sweeps.batch.table import outcome_table
from sweeps.spec.step_shape import exact_shape
from worker.data.prepared import default_home
from worker.process.stop_signal import handled

#: Exit codes: all runs are done; some of them failed; refused or nothing can start; some are left.
DONE, SOME_FAILED, REFUSED, SOME_LEFT = 0, 1, 2, 3


@dataclass(frozen=True)
class BatchOptions:
    """What a person asks of a batch."""

    specs: tuple[Path, ...]
    out: Path
    gpus: int = 0
    #: Processes that train, in all; None = one per GPU, or one on the CPU.
    processes: int | None = None
    #: "15m", "17:30"; None = until everything is done.
    until: str | None = None
    #: Instead of each spec's own.
    replicates: int | None = None
    #: Added to the first seed of each spec.
    seed_offset: int = 0
    #: Run again what failed before.
    retry_failed: bool = False
    data_home: Path | None = None
    #: None = ``out``/checkpoints.
    checkpoints: Path | None = None
    checkpoint_seconds: float = 120.0
    progress_seconds: float = 10.0
    #: Written with each run where the code itself cannot tell.
    git_commit: str | None = None


@dataclass(frozen=True)
class BatchOutcome:
    """How a batch ended."""

    exit_code: int
    #: For a person: what was done and what is left.
    table: str


def run_batch(options: BatchOptions, say: Callable[[str], None]) -> BatchOutcome:
    """Run what is not done yet. ``say`` gets a line of progress at a time.

    SIGTERM and Ctrl-C stop it as the end of its time does. Raises BatchRefused before anything is
    started where the specs, the data or the folder do not allow it.
    """
    until = _until(options)
    places = _places(options)
    specs = read_specs(
        options.specs, replicates=options.replicates, seed_offset=options.seed_offset
    )
    sharing = runs_at_once(specs)
    runs = plan_runs(specs, places.data_home)
    with _alone(places.out):
        keep_specs(places.out, specs)
        pending = [run for run in runs if not _is_done(run, places.out, options.retry_failed)]
        say(f"{len(runs)} runs, {len(runs) - len(pending)} of them done before")
        arrivals: queue.Queue[Arrival] = queue.Queue()
        loop = BatchLoop(
            slots=_slots(options, places.out, arrivals, sharing),
            pending=pending,
            places=places,
            limits=Limits(until, options.checkpoint_seconds, options.progress_seconds),
            paces=Paces(),
            arrivals=arrivals,
            say=say,
            git_commit=options.git_commit or os.environ.get("NDSWEEP_GIT_COMMIT"),
            learn_from=lambda paces, machine: _learn(paces, machine, places.out),
        )
        with handled(lambda *_: loop.stop()):
            loop.run()
        return _outcome(runs, places.out, loop)


def _until(options: BatchOptions) -> float | None:
    if options.until is None:
        return None
    return parse_until(options.until, datetime.now().astimezone()).timestamp()


def _places(options: BatchOptions) -> Places:
    out = options.out.absolute()
    return Places(
        out=out,
        checkpoints=(options.checkpoints or out / "checkpoints").absolute(),
        data_home=(options.data_home or default_home()).absolute(),
    )


def _slots(
    options: BatchOptions, out: Path, arrivals: "queue.Queue[Arrival]", sharing: int
) -> list[Slot]:
    count = options.processes or max(1, options.gpus)
    gpus = gpu_names(options.gpus)
    if len(gpus) < options.gpus:
        raise BatchRefused(
            f"gpus must be at most the {len(gpus)} of CUDA_VISIBLE_DEVICES, got {options.gpus}"
        )
    if count < options.gpus:
        raise BatchRefused(
            f"processes must be at least gpus = {options.gpus}, or cards are idle; got {count}"
        )
    places = [gpus[index % len(gpus)] if gpus else None for index in range(count)]
    # Processes one after the other: the first runs go to different ones.
    return [
        Slot(
            index,
            gpu=places[index % count],
            threads=cpu_threads(count),
            log=out / "logs" / f"process-{index}.log",
            arrivals=arrivals,
            host=host_key(out, f"{places[index % count]} {index % count}") if sharing > 1 else "",
            sharing=sharing,
        )
        for index in range(count * sharing)
    ]


def _is_done(run: PlannedRun, out: Path, retry_failed: bool) -> bool:
    """Whether a run's result is there; it then learns of specs that ask for it anew."""
    path = result_path(out, run.config_key, run.config.seed)
    if not path.exists():
        return False
    try:
        result = read_result(path)
    except ResultRefused:
        return False  # run again: its file is replaced
    if result.state == "failed" and retry_failed:
        return False
    known = {member.spec for member in result.specs}
    new = [member for member in run.specs if member.spec not in known]
    if new:
        write_result(out, result.model_copy(update={"specs": [*result.specs, *new]}))
    return True


def _learn(paces: Paces, machine: str, out: Path) -> None:
    """Paces of results that came from the same card, or the same host for a CPU."""
    for result in read_results(out):
        where = "card" if result.provenance.get("device") == "cuda" else "host"
        if result.provenance.get(where) == machine and result.seconds_per_step is not None:
            pace = Pace(result.start_seconds or 0.0, result.seconds_per_step)
            paces.learn(exact_shape(result.config), pace)


def _outcome(runs: Sequence[PlannedRun], out: Path, loop: BatchLoop) -> BatchOutcome:
    results: dict[str, RunResult] = {}
    # What was to be run again and was not is left, whatever it was before.
    left, broken = {run.name for run in loop.pending}, loop.broken
    for path in result_paths(out):
        if path.stem in left:
            continue
        try:
            results[path.stem] = read_result(path)
        except ResultRefused:
            continue
    table = outcome_table(runs, results)
    if broken:
        return BatchOutcome(REFUSED, f"{table}\nended: {broken}")
    if any(run.name not in results for run in runs):
        return BatchOutcome(SOME_LEFT, table)
    failed = any(results[run.name].state == "failed" for run in runs)
    return BatchOutcome(SOME_FAILED if failed else DONE, table)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold a folder: two batches in one would run everything twice."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "batch.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BatchRefused(
                f"another batch runs in {out}; wait for it, or give this one a folder of its own"
            ) from error
        yield


def say_on_stderr(line: str) -> None:
    """One line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sweeps.batch", description=__doc__)
    add = parser.add_argument
    add("specs", nargs="+", type=Path, metavar="SPEC", help="sweep specs, JSON (or YAML)")
    add("--gpus", type=int, default=0, help="GPUs to use; 0 = train on the CPU")
    add("--out", type=Path, required=True, help="folder of the results")
    add("--processes", type=int, help="processes in all; default: one per GPU, or one")
    add("--until", help="end then: 90s, 15m, 2h from now, or HH:MM")
    add("--replicates", type=int, help="seeds per point, instead of each spec's own")
    add("--seed-offset", type=int, default=0, help="added to the first seed of each spec")
    add("--retry-failed", action="store_true", help="run again what failed before")
    add("--data-home", type=Path, help="prepared data sets; default: NDSWEEP_DATA or the cache")
    add("--checkpoints", type=Path, help="folder of checkpoints; default: OUT/checkpoints")
    add("--checkpoint-seconds", type=float, default=120.0, help="between two checkpoints of a run")
    add("--progress-seconds", type=float, default=10.0, help="between two lines of a process")
    add("--git-commit", help="to note with the results where the code cannot tell")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a batch from the command line; the exit code says how it ended."""
    given = vars(_parser().parse_args(arguments))
    try:
        outcome = run_batch(
            BatchOptions(**{**given, "specs": tuple(given["specs"])}), say_on_stderr
        )
    except (BatchRefused, OSError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    print(outcome.table)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
