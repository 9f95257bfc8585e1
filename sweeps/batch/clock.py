"""How long runs take, and whether another one fits before the end of a batch."""

import re
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sweeps.batch.plan import BatchRefused

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: Runs of one shape differ by a little; an estimate is this much longer.
_MARGIN = 1.03


def parse_until(text: str, now: datetime) -> datetime:
    """Read "90s", "15m", "2h" from now, or "HH:MM", the next time a clock here shows it."""
    if span := _SPAN.fullmatch(text.strip()):
        return now + timedelta(seconds=float(span[1]) * _SECONDS[span[2]])
    time = _TIME.fullmatch(text.strip())
    if time is None or int(time[1]) > 23 or int(time[2]) > 59:
        raise BatchRefused(f"until must be like 90s, 15m, 2h or 17:30, got {text!r}")
    end = now.replace(hour=int(time[1]), minute=int(time[2]), second=0, microsecond=0)
    return end if end > now else end + timedelta(days=1)


@dataclass(frozen=True)
class Pace:
    """How fast runs of one shape go."""

    #: Until the first step: data, compilation.
    start_seconds: float
    #: With its share of evaluations and checkpoints.
    seconds_per_step: float

    def seconds(self, steps: int) -> float:
        """What a run of so many steps will take."""
        return (self.start_seconds + steps * self.seconds_per_step) * _MARGIN


class Stopwatch:
    """Measures the pace of one attempt from its reports."""

    def __init__(self, from_step: int) -> None:
        self._from_step = from_step
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def note(self, step: int, elapsed: float) -> None:
        """Learn that ``step`` was reported ``elapsed`` seconds after the attempt began."""
        if step <= self._from_step:
            return
        if self._first is None:
            self._first = (step, elapsed)
        self._last = (step, elapsed)

    def pace(self) -> Pace | None:
        """What is known so far; None before the first report."""
        if self._first is None or self._last is None:
            return None
        (first, first_at), (last, last_at) = self._first, self._last
        if last == first:
            return Pace(0.0, first_at / (first - self._from_step))
        per_step = (last_at - first_at) / (last - first)
        return Pace(max(0.0, first_at - (first - self._from_step) * per_step), per_step)


class Paces:
    """The pace of each shape: that of its latest run, with the slowest start."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Pace] = {}

    def learn(self, shape: Hashable, pace: Pace | None) -> None:
        if pace is None:
            return
        known = self._known.get(shape)
        start = max(pace.start_seconds, known.start_seconds) if known else pace.start_seconds
        self._known[shape] = Pace(start, pace.seconds_per_step)

    def estimate(self, shape: Hashable, steps: int) -> float | None:
        """Seconds that so many steps of a shape will take; None for one that was never seen."""
        pace = self._known.get(shape)
        return None if pace is None else pace.seconds(steps)
