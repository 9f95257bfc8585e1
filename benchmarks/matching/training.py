"""Trains what matches and grids ask for, run by run in files, so that a part can be gone on with.

Each run leaves ``OUT/runs/KEY.json``: what lies there is not trained again. A run is written when
it ends, so one that is killed leaves nothing behind. Needs torch, numpy and pydantic only; no Ray,
no store.
"""

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.lockstep import TrainedRun
from benchmarks.matching.jobs import Job, SeenRun, clock_for, write_whole
from sweeps.search.protocol import Proposal
from worker.config.train_config import TrainConfig
from worker.report import Measurement

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue


Work = TypeVar("Work")
Result = TypeVar("Result")


class StopTime(Exception):
    """The time to stop has come; what has ended is kept."""


@dataclass(frozen=True)
class Workshop:
    """Where runs are kept, and how many are trained at once."""

    out: Path
    data_home: Path
    processes: int = 1
    #: Cards by the names that CUDA_VISIBLE_DEVICES takes; processes take them in turn. Empty: all
    #: processes see what this one sees.
    gpus: tuple[str, ...] = ()
    #: Unix time from which on no run is begun and a run ends at its next report; None: never.
    until: float | None = None
    #: Runs that each process trains side by side in one thread; more than one pays off on a card.
    together: int = 1

    def train(self, wanted: Sequence[tuple[int, Proposal]]) -> list[TrainedRun]:
        """Runs of proposals, in order; trained only where no file holds them."""
        return self.runs([(p.config, p.measurement) for _, p in wanted])

    def has(self, wanted: Sequence[tuple[TrainConfig, Measurement | None]]) -> bool:
        """Whether all of these runs were trained before."""
        return all(self._path(config, measurement).is_file() for config, measurement in wanted)

    def runs(self, wanted: Sequence[tuple[TrainConfig, Measurement | None]]) -> list[TrainedRun]:
        """These runs, in order; trained only where no file holds them. Raises StopTime."""
        paths = [self._path(config, measurement) for config, measurement in wanted]
        missing = {
            path: (config, measurement)
            for path, (config, measurement) in zip(paths, wanted, strict=True)
            if not path.is_file()
        }
        jobs: list[Job] = [
            (
                str(path),
                str(self.data_home),
                config.model_dump_json(exclude_unset=True),
                measurement.model_dump_json() if measurement else None,
                self.until,
            )
            for path, (config, measurement) in missing.items()
        ]
        (self.out / "runs").mkdir(parents=True, exist_ok=True)
        for i, done in enumerate(self._finished(jobs), 1):
            if done is None:
                raise StopTime(f"{i - 1} of {len(jobs)} runs of this stage have ended")
            print(f"  {i} of {len(jobs)} runs: {Path(done).name}", flush=True)
        return [TrainedRun(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]

    def _finished(self, jobs: Sequence[Job]) -> Iterator[str | None]:
        """The file of each job, in any order; one None at the end where the time to stop came."""
        if self.together == 1:
            yield from self.spread(_job, jobs)
            return
        lots = [jobs[i :: self.processes] for i in range(min(self.processes, len(jobs)))]
        stopped = False
        for found in self.spread(partial(_jobs_beside, self.together), lots):
            yield from (path for path in found if path is not None)
            stopped = stopped or None in found
        if stopped:
            yield None

    def spread(self, function: Callable[[Work], Result], jobs: Sequence[Work]) -> Iterator[Result]:
        """What a function of a module returns of each job, in order, from processes of their own.

        By custom None for a job that the time to stop kept from ending.
        """
        # A single job, too: this process may see another card than it is to have.
        if jobs and (self.gpus or min(len(jobs), self.processes) > 1):
            context = multiprocessing.get_context("spawn")
            cards = context.SimpleQueue()
            for i in range(self.processes):
                cards.put(self.gpus[i % len(self.gpus)] if self.gpus else None)
            with ProcessPoolExecutor(
                self.processes, mp_context=context, initializer=_see_one_card, initargs=(cards,)
            ) as pool:
                yield from pool.map(function, jobs)
        else:
            yield from map(function, jobs)

    def _path(self, config: TrainConfig, measurement: Measurement | None) -> Path:
        what = json.dumps(
            [config.stored(), measurement.model_dump(mode="json") if measurement else None],
            sort_keys=True,
        )
        return self.out / "runs" / f"{sha256(what.encode()).hexdigest()[:20]}.json"


def _see_one_card(cards: "SimpleQueue[str | None]") -> None:
    """First thing in a process: take a card, before anything has looked for one."""
    card = cards.get()
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card


def _job(job: Job) -> str | None:
    """Train one run and write its file; None where ``until`` comes first.

    In a process of its own where several are at work.
    """
    path, home, config_json, measured, until = job
    config = TrainConfig.model_validate_json(config_json)
    measurement = Measurement.model_validate_json(measured) if measured else None
    run = train_one(config, measurement, home, until)
    if run is None:
        return None
    write_whole(path, asdict(run))
    return path


def _jobs_beside(together: int, jobs: Sequence[Job]) -> list[str | None]:
    """The same for several jobs in one thread, so many of them at any time."""
    # Not earlier: the process that only hands out jobs loads no torch.
    from benchmarks.matching.side_by_side import train_beside

    return train_beside(jobs, together)


def train_one(
    config: TrainConfig, measurement: Measurement | None, home: str, until: float | None
) -> TrainedRun | None:
    """Train on one thread of this process; None where ``until`` comes first."""
    if until is not None and time.time() >= until:
        return None
    import torch

    from worker import train

    torch.set_num_threads(1)
    clock = clock_for(config.device)
    began = clock()
    seen = SeenRun(measurement)
    for report in train(config, data_home=home, measurement=measurement):
        seen.add(report)
        if until is not None and time.time() >= until and report.step < report.num_steps:
            return None
    return seen.trained(clock() - began)
