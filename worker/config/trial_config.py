"""What every config of a trial has, whatever it trains; and the config of trials run elsewhere.

Imports neither torch nor numpy.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FieldError(ValueError):
    """A field of the right type breaks a rule. ``field`` is its dotted path."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field

    def __reduce__(self) -> tuple[type["FieldError"], tuple[str, str]]:
        # Ray pickles exceptions of trials; Python's default would rebuild them from the text alone.
        return type(self), (self.field, str(self))


Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# Integers that a JSON reader with doubles only still represents exactly.
Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
Scalar = (
    Annotated[bool, Field(strict=True)]
    | Whole
    | Finite
    | Annotated[str, Field(strict=True, max_length=200)]
    | None
)
_Number = Whole | Finite
# A long wrong list is refused at its first wrong item.
_Row = Annotated[list[_Number], Field(fail_fast=True)]
#: A scalar, a list of numbers (betas), or a list of pairs of numbers (points of a schedule).
Value = Scalar | Annotated[list[_Number | _Row], Field(fail_fast=True, max_length=1000)]

Seed = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
#: Replicates vary the seed, so no space may.
SEED_IS_FIXED = {"seed": "replicates vary it"}


class TrialConfig(BaseModel):
    """All hyperparameters of one trial: flat, typed, frozen. Each training has a subclass."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    if TYPE_CHECKING:  # each subclass places it among its own fields
        seed: int

    #: Fields that stay the same in a whole sweep, and why.
    FIXED: ClassVar[Mapping[str, str]] = SEED_IS_FIXED
    #: The field that holds a run's length in steps, if one does.
    LENGTH: ClassVar[str | None] = None
    #: Whether any name is a field, so that the base and the space share out the names.
    IS_FREE: ClassVar[bool] = False

    @classmethod
    def has_field(cls, name: str) -> bool:
        """Whether a spec may set this field."""
        return name in cls.model_fields

    @classmethod
    def partial(cls, values: Any) -> Self:
        """Validate a spec's base: the space may set what is required."""
        return cls.model_validate(values)

    @classmethod
    def required(cls) -> Iterator[str]:
        """Names of fields without a default."""
        return iter(())

    @property
    def planned_steps(self) -> int | None:
        """Steps of the run as far as the config says so."""
        return None if self.LENGTH is None else getattr(self, self.LENGTH)

    def resolved(self) -> Self:
        """Fill every unset field that this run uses."""
        return self

    def stored(self) -> dict[str, Any]:
        """The resolved config as JSON values: what is stored, shown, hashed."""
        return self.resolved().model_dump(mode="json")

    def key(self) -> str:
        """Hash of ``stored()`` without the seed: equal for the replicates of one point."""
        return config_key(self.stored())


#: Largest number of fields of a free config.
MAX_FREE_FIELDS = 1000
_FREE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class FreeConfig(TrialConfig):
    """The config of a trial that an agent runs or that was imported: any fields, plain values."""

    model_config = ConfigDict(extra="allow")

    IS_FREE: ClassVar[bool] = True

    __pydantic_extra__: dict[str, Value]

    seed: Seed = Field(0, description="Seed of the trial.")

    @model_validator(mode="after")
    def _names_can_be_written_anywhere(self) -> Self:
        names = self.__pydantic_extra__ or {}
        if len(names) > MAX_FREE_FIELDS:
            raise FieldError(
                "", f"a config may have {MAX_FREE_FIELDS:,} fields, this one has {len(names):,}"
            )
        for name in names:
            if not self.has_field(name):
                # The path of a refusal is dotted text itself, and must stay readable.
                shown = repr(name if len(name) <= 80 else f"{name[:79]}…")
                raise FieldError(
                    shown.strip("'"),
                    "a field's name must begin with a letter or _ and hold letters, digits, _, . "
                    f"and - alone, at most 100; got {shown}",
                )
        return self

    @classmethod
    def has_field(cls, name: str) -> bool:
        return _FREE_NAME.fullmatch(name) is not None


def config_key(stored: dict[str, Any]) -> str:
    """Hash a stored config without its seed. 16 hexadecimal digits."""
    plain = {k: _without_negative_zero(v) for k, v in stored.items() if k != "seed"}
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _without_negative_zero(value: Any) -> Any:
    """Replace -0.0 by 0.0, which trains the same."""
    if isinstance(value, list | tuple):
        return [_without_negative_zero(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value
