"""Base of every part of a spec: a strict, frozen model and its types of numbers."""

from typing import Annotated
from unicodedata import category

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sweeps.spec.domains import Finite

#: Largest number of trials of one sweep.
MAX_TRIALS = 10_000_000

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_TRIALS)]
Positive = Annotated[Finite, Field(gt=0)]
#: Optimizer steps: of one run at most a thousand million, of a whole sweep many times that.
Steps = Annotated[int, Field(strict=True, ge=1, le=10**15)]
SweepRef = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{12}$")]


class SpecModel(BaseModel):
    """Frozen model that refuses unknown fields, NaN and infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def one_line(text: str) -> str:
    """Return a name, which stands in lists, titles and logs. Raises ValueError for other text."""
    bad = (at for at, c in enumerate(text) if not c.isprintable())
    _refuse(text, next(bad, None), "one line of ")
    if text and not text.strip():
        raise ValueError("must be more than spaces")
    return text


def free_text(text: str) -> str:
    """Return text of any script, its lines ended by LF. Raises ValueError for control characters.

    Spaces of every kind, joiners of emoji and soft hyphens are text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    bad = (at for at, c in enumerate(text) if c not in "\n\t" and category(c) in ("Cc", "Cs"))
    _refuse(text, next(bad, None), "")
    return text


def _refuse(text: str, at: int | None, form: str) -> None:
    if at is not None:
        sign = f"U+{ord(text[at]):04X}"
        raise ValueError(f"must be {form}printable text, and character {at + 1} is {sign}")


#: A name that people give.
Label = Annotated[str, Field(strict=True, min_length=1, max_length=100), AfterValidator(one_line)]
#: What people write about a sweep, in Markdown.
Notes = Annotated[str, Field(strict=True, max_length=20_000), AfterValidator(free_text)]
