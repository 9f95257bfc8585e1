import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from worker import TrainConfig
from worker.data.device_data import load_run_data
from worker.data.fetch import prepare_digits
from worker.data.prepared import dataset_info, dataset_path, list_datasets, load, write_dataset
from worker.errors import DatasetNotFound, DatasetRefused


@pytest.fixture
def prepared(tmp_path, made_up_cifar):
    classes = tuple("abcdefghij")
    write_dataset("made-up", tmp_path, made_up_cifar, classes=classes, source="made up")
    return tmp_path


def test_a_prepared_set_comes_back_as_it_was_written(prepared, made_up_cifar):
    found = load("made-up", prepared, verify=True)

    for mapped, written in zip(found.arrays.parts(), made_up_cifar.parts(), strict=True):
        np.testing.assert_array_equal(mapped, written)
    assert found.info.shape == (32, 32, 3)
    assert found.info.num_classes == 10
    assert found.info.train_counts == (6,) * 10
    assert found.info.test_counts == (2,) * 10


def test_the_arrays_are_mapped_and_cannot_be_written_to(prepared):
    images = load("made-up", prepared).arrays.x_train

    assert isinstance(images, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0


def test_channel_statistics_are_those_of_the_training_pixels(prepared, made_up_cifar):
    info = dataset_info("made-up", prepared)

    pixels = made_up_cifar.x_train.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(info.channel_means, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(info.channel_deviations, pixels.std(0), rtol=1e-12)


def test_a_changed_pixel_is_noticed(prepared):
    path = dataset_path("made-up", prepared)
    data = bytearray(path.read_bytes())
    data[-5000] ^= 1
    path.write_bytes(data)

    with pytest.raises(DatasetRefused, match=r"damaged.*checksum"):
        load("made-up", prepared, verify=True)
    config = TrainConfig(dataset="made-up").resolved()
    with pytest.raises(DatasetRefused, match=r"damaged.*checksum"):
        load_run_data(config, prepared, torch.device("cpu"))


def test_a_renamed_file_is_no_other_set(prepared):
    """What is known of a name, such as CIFAR-10's channel means, would be taken for it."""
    dataset_path("made-up", prepared).rename(dataset_path("cifar10", prepared))

    with pytest.raises(DatasetRefused, match=r"holds the set 'made-up': call it made-up.ndset"):
        dataset_info("cifar10", prepared)
    assert list_datasets(prepared) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data[:-1], "must have .* bytes"),
        (lambda data: data + b"x", "must have .* bytes"),
        (lambda data: b"PK" + data[2:], "not a prepared data set"),
        (lambda data: data[:20], "damaged header"),
        (lambda data: b"", "not a prepared data set"),
        (lambda data: data[:8] + b"\xff" * 8 + data[16:], "not a prepared data set"),
    ],
)
def test_a_damaged_file_is_refused_with_a_sentence(prepared, change, sentence):
    path = dataset_path("made-up", prepared)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(DatasetRefused, match=sentence):
        load("made-up", prepared)


def test_the_list_passes_over_a_damaged_file(prepared):
    dataset_path("broken", prepared).write_bytes(b"nothing")

    assert [info.name for info in list_datasets(prepared)] == ["made-up"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("cifar100", "`ndsweep data fetch cifar100` or `ndsweep data import cifar100 PATH`"),
        ("digits", "`ndsweep data fetch digits` or `ndsweep data import digits PATH`"),
        ("mine", "`ndsweep data import mine PATH`"),
    ],
)
def test_a_missing_set_is_named_with_those_that_exist_and_how_to_have_it(prepared, name, remedy):
    with pytest.raises(DatasetNotFound) as refused:
        dataset_info(name, prepared)

    sentence = f"dataset {name!r} is not prepared in {prepared} (prepared: made-up); run {remedy}"
    assert str(refused.value) == sentence


@pytest.mark.parametrize("name", ["", "../up", "A", "a b", "a/b", "a.b", "x" * 64, "-a"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    with pytest.raises(DatasetRefused, match="name must be lower-case"):
        dataset_info(name, tmp_path)


def test_writing_that_fails_leaves_the_old_set_and_no_litter(prepared, made_up_cifar, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("worker.data.prepared.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_dataset("made-up", prepared, made_up_cifar, classes=("a",) * 10, source="second")

    assert [path.name for path in prepared.iterdir()] == ["made-up.ndset"]
    assert load("made-up", prepared, verify=True).info.source == "made up"


def test_digits_are_all_there_with_a_fixed_stratified_test_split(tmp_path):
    info = prepare_digits(tmp_path)

    assert info.num_train + info.num_test == 1797
    assert (info.num_train, info.num_test, info.shape) == (1442, 355, (8, 8, 1))
    for train, test in zip(info.train_counts, info.test_counts, strict=True):
        assert test == (train + test) // 5
    assert info.checksum == "63daf32daaf11261ad216726cb2d532f5b7e75bd89672e6003e09d74f5ac4822"


def test_listing_needs_neither_torch_nor_numpy(prepared):
    code = (
        "import sys; from worker.data.prepared import list_datasets;"
        "from worker.data.run_length import *;"
        "from worker import TrainConfig, Report; import worker.checkpoints.stop_file;"
        f"infos = list_datasets({str(prepared)!r});"
        "print(sorted({'torch', 'numpy', 'ray'} & set(sys.modules)), len(infos))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stdout == "[] 1\n"


def test_the_header_is_json_that_any_program_reads(prepared):
    data = dataset_path("made-up", prepared).read_bytes()
    length = int.from_bytes(data[8:16], "little")

    header = json.loads(data[16 : 16 + length])

    assert header["num_train"] == 60
    assert header["classes"] == list("abcdefghij")


def test_a_header_that_is_no_object_is_a_damaged_file(tmp_path):
    (tmp_path / "odd.ndset").write_bytes(b"NDSWEEP1" + (2).to_bytes(8, "little") + b"[]")

    assert list_datasets(tmp_path) == []
    with pytest.raises(DatasetRefused, match="damaged header"):
        dataset_info("odd", tmp_path)
