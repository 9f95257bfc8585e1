"""A config's class made from a declared one: types it takes, what it refuses, what it stores."""

import dataclasses
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Le
from pydantic import BaseModel, Field, ValidationError, field_validator

from worker.config.declared_config import DeclaredConfig, UntypedConfig, config_model
from worker.config.trial_config import FieldError


class Kernel(StrEnum):
    RBF = "rbf"
    LINEAR = "linear"


class Number(Enum):
    ONE = 1


@dataclass(frozen=True)
class Everything:
    flag: bool = False
    trees: int = 100
    rate: Annotated[float, Ge(0), Le(1), Field(description="Step length.")] = 0.1
    name: str = "a"
    loss: Literal["log", "square"] = "log"
    kernel: Kernel = Kernel.RBF
    depth: int | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    layers: list[int] = field(default_factory=lambda: [8])
    points: tuple[tuple[int, float], ...] = ()


class Model(BaseModel):
    trees: int = Field(100, ge=1, description="How many.")
    model_name: str = "a"

    @field_validator("trees")
    @classmethod
    def _is_even(cls, trees: int) -> int:
        if trees % 2:
            raise ValueError("trees must be even")
        return trees


def reason(cls: type[DeclaredConfig], **values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        cls.model_validate(values)
    (error,) = caught.value.errors()
    inner = error.get("ctx", {}).get("error")
    where = inner.field if isinstance(inner, FieldError) else ".".join(map(str, error["loc"]))
    return f"{where}: {inner or error['msg']}"


def test_defaults_are_those_of_the_declared_class() -> None:
    config = config_model(Everything)()

    assert config.declared() == Everything()
    assert config.stored() == {
        "flag": False,
        "trees": 100,
        "rate": 0.1,
        "name": "a",
        "loss": "log",
        "kernel": "rbf",
        "depth": None,
        "betas": [0.9, 0.999],
        "layers": [8],
        "points": [],
        "seed": 0,
    }


def test_a_stored_config_makes_the_instance_that_was_submitted() -> None:
    made = config_model(Everything)
    values = {"kernel": "linear", "betas": [0.5, 0.6], "points": [[0, 1.0], [5, 0.5]], "seed": 7}
    config = made.model_validate(made.model_validate(values).stored())

    assert config.declared() == Everything(
        kernel=Kernel.LINEAR, betas=(0.5, 0.6), points=((0, 1.0), (5, 0.5))
    )
    assert config.seed == 7
    assert config.key() == made.model_validate(values | {"seed": 8}).key()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"trees": "100"}, "trees: Input should be a valid integer"),
        ({"trees": 1.0}, "trees: Input should be a valid integer"),
        ({"rate": "0.1"}, "rate: Input should be a valid number"),
        ({"rate": 2}, "rate: Input should be less than or equal to 1"),
        ({"rate": float("nan")}, "rate: Input should be a finite number"),
        ({"flag": 1}, "flag: Input should be a valid boolean"),
        ({"loss": "mse"}, "loss: Input should be 'log' or 'square'"),
        ({"kernel": "poly"}, "kernel: Input should be 'rbf' or 'linear'"),
        ({"leaves": 3}, "leaves: Extra inputs are not permitted"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
    ],
)
def test_values_are_checked_as_a_spec_s_are(values: dict[str, Any], sentence: str) -> None:
    assert reason(config_model(Everything), **values) == sentence


def test_rules_of_a_pydantic_model_hold() -> None:
    made = config_model(Model)

    assert made.model_validate({"trees": 4}).declared() == Model(trees=4)
    assert reason(made, trees=0) == "trees: Input should be greater than or equal to 1"
    assert reason(made, trees=3) == "trees: trees must be even, got 3"
    assert made.model_fields["trees"].description == "How many."


def test_what_a_dataclass_refuses_is_refused() -> None:
    @dataclass
    class Ordered:
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low must not be above high")

    assert reason(config_model(Ordered), low=2) == (
        ": Ordered refuses these values: low must not be above high"
    )


def test_the_seed_goes_to_a_field_of_that_name() -> None:
    @dataclass
    class Seeded:
        seed: int = 3
        rate: float = 0.1

    made = config_model(Seeded)

    assert made().seed == 3
    assert made.model_validate({"seed": 5}).declared() == Seeded(seed=5)
    assert list(made.model_fields) == ["seed", "rate"]


def test_a_base_may_leave_out_what_is_required() -> None:
    @dataclass
    class Required:
        trees: int
        betas: tuple[float, float]
        rate: float = 0.1

    made = config_model(Required)
    base = made.partial({"betas": [0.9, 0.99], "seed": 2})

    assert list(made.required()) == ["trees", "betas"]
    assert base.seed == 2
    assert base.model_dump(mode="json", exclude_unset=True) == {"betas": [0.9, 0.99], "seed": 2}
    assert reason(made, betas=[0.9, 0.99]) == "trees: Field required"
    with pytest.raises(ValidationError, match="valid number"):
        made.partial({"betas": ["a", 0.99]})


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Any, "got Any"),
        (Path, "got Path"),
        (dict[str, int], "got dict[str, int]"),
        (list[str], "got list[str]"),
        (Number, "is an Enum whose values are not text: Number"),
        ("Unknown", "cannot be read: name 'Unknown' is not defined"),
    ],
)
def test_a_field_that_no_spec_can_hold_is_refused_by_name(kind: Any, sentence: str) -> None:
    declared = dataclasses.make_dataclass("Odd", [("thing", kind)])

    with pytest.raises(UntypedConfig) as caught:
        config_model(declared)
    assert sentence in str(caught.value)


class Untyped:
    rate = 0.1


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (Untyped, "Untyped must be a dataclass or a pydantic model, with a type for each field"),
        (dict, "dict must be a dataclass or a pydantic model"),
        (dict[str, int], "it must be a dataclass or a pydantic model, got dict[str, int]"),
        (dataclasses.make_dataclass("Named", [("key", int)]), "field 'key' of Named has a name"),
        (
            dataclasses.make_dataclass("Sown", [("seed", str)]),
            "field 'seed' of Sown gets",
        ),
    ],
)
def test_a_class_that_is_no_config_is_refused(declared: Any, sentence: str) -> None:
    with pytest.raises(UntypedConfig) as caught:
        config_model(declared)
    assert sentence in str(caught.value)
