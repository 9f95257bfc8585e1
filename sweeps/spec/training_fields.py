"""The fields of a spec that say what is trained: ``training``, and ``base`` by its class."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator, SerializeAsAny, ValidationInfo

from worker.config.train_config import TrainConfig
from worker.config.training import EXTERNAL, IMAGES, config_class
from worker.config.trial_config import FieldError, TrialConfig

#: Name of a training.
Training = Annotated[str, Field(strict=True, min_length=1, max_length=100)]


def known_training(training: str) -> str:
    """Return the name. Raises FieldError, for a validator of the field, if it is none."""
    try:
        config_class(training)
    except FieldError as error:
        raise FieldError("", str(error)) from error
    return training


def _config_of_training(values: Any, info: ValidationInfo) -> TrialConfig:
    """Validate ``base`` by the class of the training, which stands before it."""
    # Where the training itself is refused, one sentence about it is enough.
    training = info.data.get("training", EXTERNAL)
    return config_class(training).partial(values)


#: Of the class of the spec's training; the schema shows that of the built-in one.
BaseConfig = Annotated[
    SerializeAsAny[TrialConfig],
    PlainValidator(_config_of_training, json_schema_input_type=TrainConfig),
]


def without_unset_training(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a dumped spec what only own trainings have: older specs stay the same."""
    for name, default in (("training", IMAGES), ("metrics", {}), ("package", None)):
        if values.get(name) == default:
            values.pop(name, None)
    return values
