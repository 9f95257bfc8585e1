"""Reads what trials of a match recorded step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sweeps.search.protocol import TrialReader

HEADLINE = "effective_lr"
#: The step that ND-Adam would take at alpha^v = 1 on the gradients of another optimizer.
SHADOW = "shadow_step"


class IncompleteSeries(ValueError):
    """A trial's series has a gap, another cadence, or ends before the run does."""


@dataclass(frozen=True)
class Recorded:
    """One quantity of a run at steps 0, every, 2 every, …"""

    every: int
    values: tuple[float, ...]

    def window(self, start: int, stop: int) -> "Recorded":
        """Records of the steps start <= step < stop."""
        first, end = -(-start // self.every), -(-stop // self.every)
        return Recorded(self.every, self.values[first:end])


def read_series(
    reader: TrialReader, trial: int, name: str, *, every: int, num_steps: int
) -> Recorded:
    """A whole run's records. Raises IncompleteSeries, which says where they break off."""
    values: list[float] = []
    for piece in reader.series(trial, name):
        expected = len(values) * every
        if piece.every != every or piece.start != expected:
            raise IncompleteSeries(
                f"trial {trial}: {name} should go on at step {expected} with a record every "
                f"{every} steps, but goes on at {piece.start} with one every {piece.every}"
            )
        values.extend(piece.values)
    complete = -(-num_steps // every)
    if len(values) != complete:
        raise IncompleteSeries(
            f"trial {trial}: {name} has {len(values)} records, and a run of {num_steps} steps has "
            f"{complete}"
        )
    return Recorded(every, tuple(values))


def rms_over(runs: Sequence[Recorded]) -> Recorded:
    """Root mean square over runs, step by step."""
    columns = zip(*(run.values for run in runs), strict=True)
    return Recorded(runs[0].every, tuple(fmean(v * v for v in column) ** 0.5 for column in columns))
