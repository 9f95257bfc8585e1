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

from ndadam.statistics.blocked_means import smooth
from ndadam.theory.laws import OptimizerSetting
from ndadam.theory.prediction import NoStationaryRate, stationary_effective_lr
from sweeps.spec.model import SpecModel
from worker.config.train_config import Count, FieldError, Rate

#: As many records as a measured run keeps at most.
MOST_RECORDS = 20_000
#: Half of a curve above this is no share of a weight's length per step: percent, most likely.
_TOO_FAST = 0.3
#: Beyond this factor a curve and its optimizer's settings do not belong together. Networks out of
#: equilibrium differ from the closed form by a few; percent and degrees by 100 and 57.
_BELIEVABLE = 10.0
#: Names of the columns of a CSV file.
_STEP, _VALUE = "step", "effective_lr"
_DELIMITERS = (",", ";", "\t")


class RecordedCurve(SpecModel):
    """Effective learning rates of a whole run: at steps 0, every, 2 every, …"""

    every: Count = Field(1, description="Steps between two values.")
    values: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=MOST_RECORDS)] = Field(
        description="Root mean square over weight vectors of the distance moved in a step, as a "
        "fraction of their length."
    )

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_a_run_keeps(cls, data: Any) -> Any:
        values = data.get("values") if isinstance(data, dict) else None
        if isinstance(values, list | tuple) and len(values) > MOST_RECORDS:
            keep = math.ceil(len(values) / MOST_RECORDS)
            raise FieldError(
                "values",
                f"values must be at most {MOST_RECORDS}, got {len(values)}; keep one in {keep}, "
                f"and make every {keep} times as large",
            )
        return data

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


def refuse_other_runs(
    curve: RecordedCurve, num_steps: int, setting: OptimizerSetting, *, is_cosine: bool = False
) -> None:
    """Raise FieldError where a curve is not that of the run it is said to be.

    It must cover ``num_steps``, and no more under a cosine, whose shape belongs to its length.
    Where theory knows the optimizer's stationary rate, the curve must be of its size; schedules
    lower it, so the curve's largest stretch is compared.
    """
    covers = (
        f"source.curve covers {curve.num_steps} steps ({len(curve.values)} records, {curve.every} "
        f"apart), and base.steps is {num_steps}"
    )
    if curve.num_steps < num_steps:
        raise FieldError("source.curve", f"{covers}: match the length that was recorded")
    # A last record after the last step is no longer run.
    if is_cosine and curve.num_steps - curve.every > num_steps:
        raise FieldError(
            "source.curve",
            f"{covers}: the beginning of a longer cosine is not a shorter one; set base.steps to "
            "the length of the run that was recorded",
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

    Commas, semicolons or tabs separate the columns, whose names may be in capitals. Of more records
    than a measured run keeps, every second, third, … is taken. Raises ValueError for a file without
    these columns, for gaps and for what is no number, naming the line.
    """
    text = text.lstrip("\ufeff")
    rows = csv.reader(io.StringIO(text), delimiter=_delimiter(text))
    try:
        names = [name.strip().lower() for name in next(rows, [])]
        columns = [_column(names, name) for name in (_STEP, _VALUE)]
        records = [_record(row, columns, rows.line_num) for row in rows if any(row)]
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from error
    every = _cadence([step for step, _ in records])
    thin = math.ceil(len(records) / MOST_RECORDS)
    return RecordedCurve(every=every * thin, values=tuple(value for _, value in records[::thin]))


def _delimiter(text: str) -> str:
    """What separates the names of the two columns in the first line; a comma if nothing does."""
    first = text.partition("\n")[0].lower()
    for delimiter in _DELIMITERS:
        names = {name.strip().strip('"') for name in first.split(delimiter)}
        if {_STEP, _VALUE} <= names:
            return delimiter
    return _DELIMITERS[0]


def _column(names: list[str], name: str) -> int:
    found = [index for index, one in enumerate(names) if one == name]
    if not found:
        raise ValueError(
            f"the file must begin with a line that names the columns {_STEP} and {_VALUE}, got "
            f"{', '.join(names) or 'nothing'}; commas, semicolons or tabs separate them"
        )
    if len(found) > 1:
        raise ValueError(f"the column {name} must be there once, got it {len(found)} times")
    return found[0]


def _record(row: list[str], columns: list[int], line: int) -> tuple[int, float]:
    step, value = (
        _number(row[column] if column < len(row) else "", name, line)
        for column, name in zip(columns, (_STEP, _VALUE), strict=True)
    )
    if step != int(step):
        raise ValueError(f"line {line}: step must be whole, got {step}")
    if value < 0:
        raise ValueError(f"line {line}: effective_lr must be >= 0, got {value}")
    return int(step), value


def _number(text: str, name: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        remedy = "; write decimals with a point and thousands without a mark" * ("," in text)
        raise ValueError(
            f"line {line}: {name} must be a finite number, got {text.strip()!r}{remedy}"
        )
    return value


def _cadence(steps: list[int]) -> int:
    """Steps between two records. Refuses gaps, and records that begin after the run does."""
    if len(steps) < 2:
        raise ValueError(f"the file must hold at least two records, got {len(steps)}")
    every = steps[1] - steps[0]
    for before, after in itertools.pairwise(steps):
        if after <= before:
            raise ValueError(f"steps must increase, got {after} after {before}")
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
