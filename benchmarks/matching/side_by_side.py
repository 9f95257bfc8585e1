"""Trains runs of matches and grids side by side in one thread, as a card's trials share it."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict

from benchmarks.matching.jobs import Job, SeenRun, clock_for, write_whole
from worker.card_sharing.round_robin import RoundRobin, Turns
from worker.config.train_config import TrainConfig
from worker.report import Measurement, Report
from worker.steps.device import choose_device
from worker.training.train import train_in_turns


def train_beside(jobs: Sequence[Job], together: int) -> list[str | None]:
    """Train and file every job, ``together`` at any time, all on one device.

    Returns the files of those that ended, then None where the time to stop came before the last.
    Seconds of a run are its share of the time, as if each had the device for itself in its turns.
    """
    bench = _Bench(jobs)
    until = jobs[0][-1]
    waiting = list(range(len(jobs)))[::-1]
    while waiting or bench.runs.keys:
        if until is not None and time.time() >= until:
            for key in bench.runs.keys:
                bench.runs.remove(key)
            return [*bench.filed, None]
        while waiting and len(bench.runs.keys) < together:
            bench.start(waiting.pop())
        if not bench.turn():
            time.sleep(1e-4)
    return [*bench.filed]


class _Bench:
    """Runs under way, and what they have reported and cost."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        device = choose_device(TrainConfig.model_validate_json(jobs[0][2]).resolved())
        self._clock = clock_for(device.type)
        self.runs = RoundRobin(device, on_report=self._report, on_end=self._end)
        self.filed: list[str] = []
        self._seen: dict[Hashable, SeenRun] = {}
        self._seconds: dict[Hashable, float] = {}
        self._last = self._clock()

    def start(self, number: int) -> None:
        """Take a job in."""
        _, home, config_json, measured, _ = self._jobs[number]
        config = TrainConfig.model_validate_json(config_json)
        measurement = Measurement.model_validate_json(measured) if measured else None

        def turns() -> Turns:
            return train_in_turns(config, data_home=home, measurement=measurement, threads=1)

        self._share_time()
        self._seen[number], self._seconds[number] = SeenRun(measurement), 0.0
        self.runs.add(number, turns)

    def turn(self) -> bool:
        """Give one run its turn; False when all wait for the card. Raises what a run raised."""
        went = self.runs.turn()
        self._share_time()
        return went

    def _share_time(self) -> None:
        """Count the time since the last call for all runs under way alike."""
        now = self._clock()
        for key in self._seconds:
            self._seconds[key] += (now - self._last) / len(self._seconds)
        self._last = now

    def _report(self, key: Hashable, report: Report) -> None:
        self._seen[key].add(report)

    def _end(self, key: Hashable, error: Exception | None) -> None:
        if error is not None:
            raise error
        assert isinstance(key, int)
        self._share_time()  # its last turn is its own as well
        path = self._jobs[key][0]
        write_whole(path, asdict(self._seen.pop(key).trained(self._seconds.pop(key))))
        self.filed.append(path)
