import numpy as np
import pytest

from worker import TrainConfig, train
from worker.config.train_config import FieldError
from worker.data.prepared import Arrays, DatasetInfo, write_dataset
from worker.data.run_length import check_fits, run_length


def config(**fields):
    return TrainConfig(dataset="set", depth=10, widen_factor=1.0, **fields).resolved()


def info(num_train=50_000, shape=(32, 32, 3)):
    return DatasetInfo(
        "set",
        num_train,
        10,
        shape,
        ("a", "b"),
        (num_train - num_train // 2, num_train // 2),
        (5, 5),
        (1.0,),
        (1.0,),
        "",
        "",
    )


@pytest.mark.parametrize(
    ("fields", "per_epoch", "steps"),
    [
        ({"recipe": "paper-tf"}, 390, 80_000),
        ({"recipe": "paper-wrn"}, 391, 78_200),
        ({"recipe": "paper-wrn", "last_batch": "drop"}, 390, 78_000),
        ({"epochs": 3}, 390, 1170),
        ({"steps": 5}, 390, 5),
        ({"validation_fraction": 0.1, "epochs": 1}, 351, 351),
    ],
)
def test_a_run_is_as_long_as_the_recipe_says(fields, per_epoch, steps):
    length = check_fits(config(**{"validation_fraction": 0.0} | fields), info())

    assert (length.steps_per_epoch, length.num_steps) == (per_epoch, steps)


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"validation_fraction": 1e-3}, "validation_fraction", "hold out at least one of 100"),
        ({"validation_fraction": 0.99}, "validation_fraction", "a training image of every class"),
        ({"batch_size": 91}, "batch_size", "at most the 90 training images .* got 91"),
        ({"batch_size": 89, "last_batch": "keep", "gamma_c": 2.5}, "batch_size", "batch of one"),
        ({"batch_size": 1, "gamma_c": 2.5}, "batch_size", "batch of one image"),
        ({"widen_factor": 0.5}, "widen_factor", "at least 1 with shortcut 'pool_pad'"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(fields, field, sentence):
    base = {"dataset": "set", "depth": 10, "widen_factor": 1.0}
    with pytest.raises(FieldError, match=sentence) as caught:
        check_fits(TrainConfig(**base | fields), info(num_train=100))

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "shape", "reason"),
    [
        ({"network": "mlp", "depth": 1}, (32, 32, 3), "network 'mlp'"),
        ({}, (4, 4, 1), "images of 4 x 4 pixels"),
        ({}, (5, 4, 1), None),
        ({"bn_scale": "fixed"}, (32, 32, 3), None),
    ],
)
@pytest.mark.parametrize("lengths", [{"batch_size": 1}, {"batch_size": 9, "last_batch": "keep"}])
def test_one_image_is_a_batch_where_there_is_more_than_one_value_to_normalise(
    fields, shape, reason, lengths, tmp_path
):
    fields = {"optimizer": "sgd", "steps": 3, "device": "cpu", "validation_fraction": 0.0} | fields
    asked = TrainConfig(
        dataset="set", depth=fields.pop("depth", 10), widen_factor=1.0, **lengths, **fields
    )
    images = np.random.default_rng(0).integers(0, 256, (19, *shape), np.uint8)
    labels = np.arange(19).astype(np.uint16) % 2
    arrays = Arrays(images, labels, images, labels)
    write_dataset("set", tmp_path, arrays, classes=("a", "b"), source="made up")

    if reason is None:
        assert list(train(asked, data_home=tmp_path))[-1].status == "complete"
        return
    with pytest.raises(FieldError, match=f"no batch of one image with {reason}.* over 19"):
        list(train(asked, data_home=tmp_path))


def test_images_too_small_for_the_network_are_refused():
    with pytest.raises(FieldError, match=r"at least 4 x 4 pixels.* got 3 x 32"):
        check_fits(config(), info(shape=(3, 32, 1)))


def test_a_batch_as_large_as_the_set_is_allowed():
    assert run_length(config(batch_size=90, epochs=2), 90).num_steps == 2
