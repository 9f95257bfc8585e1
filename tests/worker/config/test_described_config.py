"""A training that another process described: its config checks like the class that it was."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt, Interval
from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator

from tests.worker.training.installed import on_path, write_package
from worker.config.declared_config import config_model
from worker.config.described_config import describe, described
from worker.config.registry import Registered
from worker.config.train_config import TrainConfig
from worker.config.training import Metric, Training, find_training, load_training
from worker.config.trial_config import TrialConfig


class Kind(Enum):
    TREE = "tree"
    NET = "net"


@dataclass(frozen=True)
class Fields:
    rate: Annotated[float, Gt(0), Field(description="Per step.")]
    layers: Annotated[int, Field(ge=1, le=9, multiple_of=1)] = 2
    share: Annotated[float, Interval(ge=0, lt=1)] = 0.5
    name: Annotated[str, Field(min_length=1, max_length=5, pattern="^[a-z]+$")] = "a"
    kind: Kind = Kind.TREE
    loss: Literal["l1", "l2"] = "l2"
    depth: int | None = None
    scale: Annotated[float, Gt(0)] | None = 1.0
    betas: tuple[float, float] = (0.9, 0.99)
    widths: Annotated[list[int], Field(max_length=3)] = field(default_factory=lambda: [8, 8])
    points: list[tuple[float, float]] = field(default_factory=list)
    size: Literal[16, 32] = 16
    fast: bool = False


@dataclass(frozen=True)
class Checked(Fields):
    def __post_init__(self) -> None: ...


@dataclass
class Halved:
    rate: Annotated[float, AfterValidator(lambda rate: rate / 2)] = 1.0


@dataclass
class InUnion:
    rate: Annotated[float, AfterValidator(abs)] | None = 1.0


class Plain(BaseModel):
    rate: Annotated[float, Gt(0)] = 0.1


class Ruled(Plain):
    @field_validator("rate")
    @classmethod
    def _small(cls, rate: float) -> float:
        return rate


class After(Plain):
    def model_post_init(self, context: Any) -> None: ...


def _pair(declared: Any) -> tuple[type[TrialConfig], Training]:
    config = config_model(declared)
    metrics = {"loss": Metric("minimize", unit="mm"), "test_x": Metric(test=True)}
    training = Training("mine", print, config, metrics, package="p", version="1")
    found = Registered(find_training("images").entry, "p", "1")
    return config, described(found, json.loads(json.dumps(describe(training))))


GOOD: list[dict[str, Any]] = [
    {"rate": 1},
    {"rate": 0.1, "layers": 9, "name": "abcde", "kind": "net", "loss": "l1", "depth": 3},
    {"rate": 0.1, "scale": None, "betas": [0.1, 0.2], "widths": [], "points": [[1, 2], [3, 4.5]]},
    {"rate": 0.1, "seed": 7, "size": 32, "fast": True, "share": 0.0},
]
BAD: list[dict[str, Any]] = [
    {},
    {"rate": 0.0},
    {"rate": "0.1"},
    {"rate": float("nan")},
    {"rate": 1.0, "tree": 1},
    {"rate": 1.0, "seed": -1},
    {"rate": 1.0, "seed": True},
    *(
        {"rate": 1.0, name: value}
        for name, value in [
            ("layers", 0),
            ("layers", 10),
            ("layers", 2.5),
            ("layers", "2"),
            ("layers", True),
            ("share", 1.0),
            ("name", ""),
            ("name", "A"),
            ("name", "abcdef"),
            ("name", 3),
            ("kind", "other"),
            ("loss", "l3"),
            ("depth", "3"),
            ("scale", 0.0),
            ("betas", [0.1]),
            ("betas", [0.1, 0.2, 0.3]),
            ("widths", [1, 2, 3, 4]),
            ("widths", ["x"]),
            ("points", [[1]]),
            ("size", 17),
            ("fast", 1),
        ]
    ),
]


def _messages(config: type[TrialConfig], values: dict[str, Any]) -> list[tuple[Any, str]]:
    with pytest.raises(ValidationError) as caught:
        config.model_validate(values)
    return [(one["loc"], one["msg"]) for one in caught.value.errors()]


def test_configs_are_accepted_refused_and_stored_alike():
    config, training = _pair(Fields)

    for values in GOOD:
        first, second = config.model_validate(values), training.config.model_validate(values)
        assert first.stored() == second.stored()
        assert first.key() == second.key()
    for values in BAD:
        assert _messages(config, values) == _messages(training.config, values), values
    assert set(training.config.required()) == {"rate"}
    assert training.config.partial({"layers": 3}).model_fields_set == {"layers"}
    assert training.config.model_fields["rate"].description == "Per step."
    assert training.metrics == {"loss": Metric("minimize", unit="mm"), "test_x": Metric(test=True)}
    with pytest.raises(RuntimeError, match="was described, not imported"):
        training.function()


@pytest.mark.parametrize(
    ("declared", "has_rules"),
    [
        (Fields, False),
        (Plain, False),
        (Checked, True),
        (Halved, True),
        (InUnion, True),
        (Ruled, True),
        (After, True),
    ],
)
def test_rules_that_are_code_are_known(declared, has_rules):
    training = Training("mine", print, config_model(declared), {}, package="p", version="1")

    assert describe(training)["has_rules"] is has_rules


def test_a_training_that_takes_the_config_of_images_keeps_it(tmp_path):
    source = """
        import ndsweep
        from worker.config.train_config import TrainConfig

        @ndsweep.training()
        def train(config: TrainConfig, run: ndsweep.Run) -> None: ...
    """
    with on_path(write_package(tmp_path, source)):
        training = load_training("mine")
        again = described(find_training("mine"), describe(training))

    assert again.config is TrainConfig
