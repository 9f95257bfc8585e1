"""Sweeps on a full cluster take turns: whoever has least and waited longest starts the next trial.

Each driver decides for itself, by what the store says of the others. What is left after everybody
has an even part goes round: a sweep starts no trial there while another with fewer running waits
for what this one holds. Idle workers are put away then, so that the cluster has room.
Imports no ray.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeps.cluster.capacity import ClusterShape
from sweeps.records import Demand

log = logging.getLogger(__name__)

# Seconds.
_PERIOD = 1.0
#: Seconds that idle workers are kept: while others wait for them, while nobody does.
IDLE_WANTED, IDLE = 0.5, 30.0
#: What a turn lasts at least: a worker takes seconds to start.
TURN = 10.0
#: How long free room is left to a sweep that wants it. Ray asks again for what it could not place
#: with pauses, and would give the room to whoever comes first; a sweep that has not taken it by
#: then cannot, for a reason that is not seen from here.
LEFT = 30.0


@dataclass(frozen=True)
class View:
    """The cluster and the sweeps on it at one moment."""

    #: Every machine, busy or not, and what is free of each.
    shape: ClusterShape
    free: ClusterShape
    #: Of every sweep that is driven, this one's included.
    demands: Sequence[Demand]


class Share:
    """How much of the cluster one sweep may use now. ``look`` from one thread, the rest from any.

    Before the first look everything is allowed.
    """

    def __init__(
        self,
        sweep_id: str,
        cpus: float,
        gpus: float,
        concurrency: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``cpus`` and ``gpus`` are a trial's; ``concurrency`` is what the spec asks for."""
        self._sweep_id = sweep_id
        self._cpus, self._gpus = cpus, gpus
        self._concurrency = concurrency
        self._clock = clock
        self._lock = threading.Lock()
        self._limit = concurrency
        #: Trials that this sweep may run whoever else waits.
        self._even_part = 0
        self._turn_began = -math.inf
        self._begins_turn = True
        self._waiting: list[Demand] = []
        #: Sweep -> since when there is free room that it wants.
        self._room_since: dict[str, float] = {}
        self._last_start = 0

    def look(self, view: View) -> None:
        """Take in how things are."""
        fits = max(1, view.shape.fits(self._cpus, self._gpus))
        waiting = [demand for demand in view.demands if self._waits_for_us(demand, view)]
        own = [d.last_start for d in view.demands if d.sweep_id == self._sweep_id]
        with self._lock:
            self._limit = fits if self._concurrency is None else min(self._concurrency, fits)
            self._waiting = waiting
            self._even_part = fits // (1 + len(waiting))
            self._last_start = max([self._last_start, *own])

    def started(self) -> None:
        """A trial of this sweep has found a worker."""
        with self._lock:
            self._last_start = time.time_ns() // 1000
            if self._begins_turn:
                self._turn_began, self._begins_turn = self._clock(), False

    def allows(self, running: int) -> bool:
        """Whether a sweep with so many trials running or on their way may start another."""
        with self._lock:
            if self._limit is not None and running >= self._limit:
                return False
            if self._waiting:
                if running < self._even_part or self._clock() - self._turn_began < TURN:
                    return True
            self._begins_turn = not any(self._precedes(d, running) for d in self._waiting)
            return self._begins_turn

    @property
    def idle_seconds(self) -> float:
        """How long a worker without a trial is kept for the next."""
        return IDLE_WANTED if self._waiting else IDLE

    def _precedes(self, other: Demand, running: int) -> bool:
        theirs = other.running * _size(other.cpus, other.gpus, self._gpus)
        ours = running * _size(self._cpus, self._gpus, other.gpus)
        return (theirs, other.last_start, other.sweep_id) < (
            ours,
            self._last_start,
            self._sweep_id,
        )

    def _waits_for_us(self, other: Demand, view: View) -> bool:
        """Whether another sweep could run more if this one gave something back, or took no more."""
        if other.sweep_id == self._sweep_id or (other.gpus > 0 and self._gpus == 0):
            return False
        fits = view.shape.fits(other.cpus, other.gpus)
        most = fits if other.concurrency is None else min(fits, other.concurrency)
        could_run = min(other.waiting, most - other.running)
        room = view.free.fits(other.cpus, other.gpus)
        if room == 0 or could_run <= 0:
            self._room_since.pop(other.sweep_id, None)
            return could_run > 0
        now = self._clock()
        since = self._room_since.setdefault(other.sweep_id, now)
        return room <= could_run and now - since < LEFT


def keep_looking(share: Share, view: Callable[[], View], over: threading.Event) -> None:
    """Let a share look about once a second, from a thread of its own: a cluster may not answer."""

    def run() -> None:
        while not over.wait(_PERIOD):
            try:
                share.look(view())
            except Exception as error:
                # The store or the cluster is away: others notice, and say so.
                log.debug("no view of the cluster: %s", error)

    threading.Thread(target=run, name="share", daemon=True).start()


def _size(cpus: float, gpus: float, others_gpus: float) -> float:
    """What a trial takes of that which both sweeps need."""
    return gpus if gpus > 0 and others_gpus > 0 else cpus
