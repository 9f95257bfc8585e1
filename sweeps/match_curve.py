"""A recorded curve as the source of a match: somebody else's training, or a trial that is over.

What cannot be such a curve is refused with a sentence: gaps, other units, too few steps.
"""

import csv
import io
import itertools
import math
from statistics import median
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ndadam.matching import smooth
from ndadam.optimizer_laws import OptimizerSetting
from ndadam.theory import NoStationaryRate, stationary_effective_lr
from sweeps.spec_model import SpecModel
from worker.config import Count, FieldError, Rate

#: As many records as a measured run keeps at most.
MOST_RECORDS = 20_000
#: Half of a curve above this is no share of a weight's length per step: percent, most likely.
_TOO_FAST = 0.3
#: Beyond this factor a curve and its optimizer's settings do not belong together. Networks out of
#: equilibrium differ from the closed form by a few; percent and degrees by 100 and 57.
_BELIEVABLE = 10.0
#: Names of the columns of a CSV file.
_STEP, _VALUE = "step", "effective_lr"


class RecordedCurve(SpecModel):
    """Effective learning rates of a whole run: at steps 0, every, 2 every, …"""

    every: Count = Field(1, description="Steps between two values.")
    values: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=MOST_RECORDS)] = Field(
        description="Root mean square over weight vectors of the distance moved in a step, as a "
        "fraction of their length."
    )

    @model_validator(mode="after")
    def _units_are_fractions(self) -> Self:
        middle = median(self.values)
        if middle == 0:
            raise FieldError("values", "values must move: half of them or more are 0")
        if middle > _TOO_FAST:
            raise FieldError(
                "values",
                "values must be fractions of the weights' length per step (0.01 is a hundredth), "
                f"and half of these are above {middle:.3g}; divide percents by 100",
            )
        return self

    @property
    def num_steps(self) -> int:
        """Steps that the curve covers."""
        return len(self.values) * self.every


def refuse_other_runs(curve: RecordedCurve, num_steps: int, setting: OptimizerSetting) -> None:
    """Raise FieldError where a curve is not that of the run it is said to be.

    It must cover ``num_steps``. Where theory knows the optimizer's stationary rate, the curve must
    be of its size; schedules lower it, so the curve's largest stretch is compared.
    """
    if curve.num_steps < num_steps:
        raise FieldError(
            "source.curve",
            f"source.curve covers {curve.num_steps} steps ({len(curve.values)} records, "
            f"{curve.every} apart), and base.steps is {num_steps}: match the length that was "
            "recorded",
        )
    try:
        e = stationary_effective_lr(setting)
    except NoStationaryRate:
        return
    largest = max(smooth(curve.values, max(1, len(curve.values) // 10)))
    ratio = largest / e
    if not 1 / _BELIEVABLE < ratio < _BELIEVABLE:
        raise FieldError(
            "source.curve",
            f"source.curve runs at {largest:.3g} per step, {ratio:.3g} times the {e:.3g} of the "
            "source's settings: its units are others (percent, degrees, per epoch?), or the "
            "settings are",
        )


def read_curve_csv(text: str) -> RecordedCurve:
    """A curve from a CSV file with the columns ``step`` and ``effective_lr``; others are ignored.

    Raises ValueError for a file without them, for gaps and for what is no number, naming the line.
    """
    rows = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    names = [name.strip() for name in rows.fieldnames or []]
    if _STEP not in names or _VALUE not in names:
        raise ValueError(
            f"the file must begin with a line that names the columns {_STEP} and {_VALUE}, got "
            f"{', '.join(names) or 'nothing'}"
        )
    rows.fieldnames = names
    steps: list[int] = []
    values: list[float] = []
    for row in rows:
        step, value = (_number(row, name, rows.line_num) for name in (_STEP, _VALUE))
        if step != int(step):
            raise ValueError(f"line {rows.line_num}: step must be whole, got {step}")
        if value < 0:
            raise ValueError(f"line {rows.line_num}: effective_lr must be >= 0, got {value}")
        steps.append(int(step))
        values.append(value)
    every = _cadence(steps)
    return RecordedCurve(every=every, values=tuple(values))


def _number(row: dict[str, Any], name: str, line: int) -> float:
    text = (row.get(name) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"line {line}: {name} must be a finite number, got {text!r}")
    return value


def _cadence(steps: list[int]) -> int:
    """Steps between two records. Refuses gaps, and records that begin after the run does."""
    if len(steps) < 2:
        raise ValueError(f"the file must hold at least two records, got {len(steps)}")
    every = steps[1] - steps[0]
    if every < 1:
        raise ValueError(f"steps must increase, got {steps[1]} after {steps[0]}")
    for before, after in itertools.pairwise(steps):
        if after - before != every:
            raise ValueError(
                f"the records have a gap: step {before} is followed by {after}, and all before it "
                f"are {every} apart; fill it in, or cut the run there"
            )
    if steps[0] > every:
        raise ValueError(
            f"the records begin at step {steps[0]} and are {every} apart: the run's beginning is "
            "missing, and a curve must cover it"
        )
    return every
