import numpy as np
import pytest

from worker.config.train_config import FieldError
from worker.data.split import split_validation

LABELS = np.repeat(np.arange(5), [50, 40, 30, 20, 10])


def test_every_class_gives_its_share():
    train, validation = split_validation(LABELS, 0.2, split_seed=0)

    assert np.bincount(LABELS[validation]).tolist() == [10, 8, 6, 4, 2]
    assert sorted([*train, *validation]) == list(range(150))


def test_the_total_is_exact_when_shares_are_not_whole():
    _, validation = split_validation(LABELS, 0.13, split_seed=0)

    assert len(validation) == round(150 * 0.13)


def test_the_seed_decides_which_images():
    splits = [split_validation(LABELS, 0.2, seed)[1].tolist() for seed in (0, 0, 1)]

    assert splits[0] == splits[1] != splits[2]


def test_no_fraction_holds_nothing_out():
    train, validation = split_validation(LABELS, 0.0, split_seed=0)

    assert (len(train), len(validation)) == (150, 0)


@pytest.mark.parametrize(
    ("fraction", "sentence"),
    [(0.001, "hold out at least one of 150"), (0.99, "leave a training image of every class")],
)
def test_a_fraction_that_leaves_a_side_empty_is_refused(fraction, sentence):
    with pytest.raises(FieldError, match=sentence) as caught:
        split_validation(LABELS, fraction, split_seed=0)

    assert caught.value.field == "validation_fraction"
