"""What cannot be trained is refused before the first step: field, rule, value."""

import copy
import pickle

import pytest
import torch
from pydantic import ValidationError

from tests.worker.conftest import made_up_arrays
from worker import TrainConfig, train
from worker.config.train_config import FieldError
from worker.data.prepared import write_dataset

FITS = {
    "dataset": "colours",
    "depth": 10,
    "widen_factor": 1.0,
    "batch_size": 20,
    "steps": 1,
    "validation_fraction": 0.125,
    "device": "cpu",
}


def refusal(fields, home):
    """Field and sentence that ``fields`` are refused with."""
    with pytest.raises((FieldError, ValidationError)) as caught:
        train(TrainConfig.model_validate(FITS | fields), data_home=home)
    if isinstance(caught.value, FieldError):
        return caught.value.field, str(caught.value)
    (error,) = caught.value.errors()
    inner = error.get("ctx", {}).get("error")
    field = inner.field if isinstance(inner, FieldError) else ".".join(map(str, error["loc"]))
    return field, f"{error['msg']}, got {error['input']}" if error["loc"] else error["msg"]


@pytest.mark.parametrize(
    ("fields", "field", "parts"),
    [
        ({"depth": 11}, "depth", ["6n + 4", "at least 10", "got 11"]),
        ({"depth": 4}, "depth", ["6n + 4", "at least 10", "got 4"]),
        ({"depth": 22.0}, "depth", ["valid integer", "got 22.0"]),
        ({"widen_factor": 1.3}, "widen_factor", ["16 x widen_factor whole", "got 1.3"]),
        ({"widen_factor": 0}, "widen_factor", ["greater than 0", "got 0"]),
        ({"widen_factor": 65}, "widen_factor", ["less than or equal to 64", "got 65"]),
        (
            {"network": "mlp", "depth": 1, "widen_factor": 0.0078},
            "widen_factor",
            ["64 x widen_factor", "at least 1", "got 0.0078"],
        ),
        ({"gamma_c": 1e39}, "gamma_c", ["less than or equal to 1", "got 1e+39"]),
        ({"alpha_s": 1e37}, "alpha_s", ["at most 1e+38", "got 1e+37 x 1 / 0.1"]),
        (
            {"optimizer": "sgd", "lr_schedule": ((0, 1.0), (9, 1e38)), "lr": 2.0},
            "lr",
            ["largest factor", "at most 1e+38", "got 2 x 1e+38 / 1"],
        ),
        (
            {"follow": ((0, 0.1), (10**400, 0.1))},
            "follow.1.0",
            ["less than or equal to 1000000000"],
        ),
        ({"batch_size": 85}, "batch_size", ["at most the 84 training images", "got 85"]),
        ({"batch_size": 0}, "batch_size", ["greater than or equal to 1", "got 0"]),
        ({"precision": "tf32"}, "precision", ["fp32 or bf16 on a CPU", "got 'tf32'"]),
        ({"precision": "fp8"}, "precision", ["'fp32', 'tf32' or 'bf16'", "got fp8"]),
        ({"device": "cuda:1"}, "device", ["'auto', 'cpu' or 'cuda'", "got cuda:1"]),
        ({"dataset": "specks"}, "dataset", ["at least 4 x 4 pixels", "got 2 x 2"]),
    ],
)
def test_a_refusal_names_field_rule_and_value(fields, field, parts, data_home, tmp_path):
    home = data_home
    if fields.get("dataset") == "specks":
        home = tmp_path
        write_dataset("specks", home, made_up_arrays(side=2), classes=tuple("abcd"), source="")

    found, sentence = refusal(fields, home)

    assert found == field
    for part in parts:
        assert part in sentence


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_card_that_the_machine_lacks_is_refused(data_home):
    field, sentence = refusal({"device": "cuda"}, data_home)

    assert field == "device"
    assert "needs a CUDA device and this machine has none, got 'cuda'" in sentence


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_refusal_is_the_same_in_another_process(copied):
    found = copied(FieldError("depth", "depth must be 6n + 4, got 11"))

    assert (type(found), found.field) == (FieldError, "depth")
    assert str(found) == "depth must be 6n + 4, got 11"
