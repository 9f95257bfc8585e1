"""Published sets are checked to the last byte, fetched, and keep their names."""

from dataclasses import replace

import numpy as np
import pytest

from tests.worker.data.source_files import (
    CLASSES,
    cifar100_files,
    python_files,
    write_folder,
    write_npz,
)
from worker.data import import_set as imports
from worker.data.fetch import fetch
from worker.data.import_set import check_known, import_dataset
from worker.data.known_sets import KNOWN_SETS, KnownSet
from worker.data.prepared import dataset_path, default_home, load
from worker.errors import DatasetRefused


def test_a_cifar_100_archive_must_be_the_published_one(tmp_path, made_up_cifar):
    path = write_folder(cifar100_files(made_up_cifar), tmp_path / "c")

    with pytest.raises(DatasetRefused, match="train is not the published file: its md5 must be"):
        import_dataset("cifar100", path, tmp_path)
    assert import_dataset("mine", path, tmp_path).num_classes == 10


def test_the_checksums_of_cifar_100_are_those_of_torchvision():
    from torchvision.datasets import CIFAR100

    published = dict([*CIFAR100.train_list, *CIFAR100.test_list])
    published["meta"] = CIFAR100.meta["md5"]
    assert dict(KNOWN_SETS["cifar100"].python_md5) == published


@pytest.mark.parametrize("num_classes", [10, 3])
def test_the_name_of_a_known_set_is_kept_for_it(tmp_path, made_up_cifar, num_classes):
    y_train, y_test = (y % num_classes for y in (made_up_cifar.y_train, made_up_cifar.y_test))
    arrays = replace(made_up_cifar, y_train=y_train, y_test=y_test)
    path = write_npz(tmp_path / "set.npz", arrays)

    with pytest.raises(DatasetRefused, match=r"cifar10 must have 50000 training .* got 60"):
        import_dataset("cifar10", path, tmp_path)


def small_cifar(arrays, **changes):
    import hashlib

    pixels = arrays.x_train.reshape(-1, 3).astype(np.float64)
    fields = {
        "classes": tuple(CLASSES),
        "num_train": 60,
        "num_test": 20,
        "shape": (32, 32, 3),
        "means": tuple(pixels.mean(0).round(1)),
        "deviations": tuple(pixels.std(0).round(1)),
        "sha256": tuple(
            hashlib.sha256(part.astype(np.uint8).tobytes()).hexdigest() for part in arrays.parts()
        ),
    }
    return KnownSet(**fields | changes)


@pytest.mark.parametrize(
    ("known", "spoil", "sentence"),
    [
        ({}, {}, None),
        ({}, {"y_test": lambda y: y[::-1]}, "y_test is not that of cifar10: its sha256 must be"),
        ({"sha256": ()}, {"x_train": lambda x: x[..., ::-1]}, "channel means must be"),
        ({"sha256": ()}, {"y_train": lambda y: np.r_[y[:-1], 0]}, "as many training images"),
    ],
)
def test_a_known_set_is_checked_to_the_last_byte(
    known, spoil, sentence, tmp_path, made_up_cifar, monkeypatch
):
    known_sets = {"cifar10": small_cifar(made_up_cifar, **known)}
    monkeypatch.setattr("worker.data.known_sets.KNOWN_SETS", known_sets)
    monkeypatch.setattr(imports, "KNOWN_SETS", known_sets)
    changes = {name: change(getattr(made_up_cifar, name)) for name, change in spoil.items()}
    path = write_npz(tmp_path / "set.npz", made_up_cifar, **changes)

    if sentence is None:
        assert import_dataset("cifar10", path, tmp_path).classes == tuple(CLASSES)
    else:
        with pytest.raises(DatasetRefused, match=sentence):
            import_dataset("cifar10", path, tmp_path)


@pytest.mark.parametrize(
    ("spoil", "is_it"),
    [(lambda x, y: (x[::-1], y[::-1]), True), (lambda x, y: (x, y[::-1]), False)],
    ids=["another order", "other labels"],
)
def test_a_test_set_may_come_in_any_order_where_sources_differ(
    spoil, is_it, tmp_path, made_up_cifar, monkeypatch
):
    known = small_cifar(made_up_cifar)
    unordered = imports.unordered_sha256(made_up_cifar.x_test, made_up_cifar.y_test)
    parts = (*known.sha256[:2], None, None)
    known = replace(known, sha256=parts, unordered_test_sha256=unordered)
    monkeypatch.setattr(imports, "KNOWN_SETS", {"cifar10": known})
    x, y = spoil(made_up_cifar.x_test, made_up_cifar.y_test)
    path = write_npz(tmp_path / "set.npz", made_up_cifar, x_test=x, y_test=y)

    if is_it:
        assert import_dataset("cifar10", path, tmp_path).num_test == 20
    else:
        with pytest.raises(DatasetRefused, match="the test set is not that of cifar10"):
            import_dataset("cifar10", path, tmp_path)


def test_only_published_sets_can_be_fetched(tmp_path):
    with pytest.raises(DatasetRefused, match="only cifar10, cifar100 can be fetched, got 'mnist'"):
        fetch("mnist", tmp_path)


def test_fetching_prepares_what_torchvision_downloaded(tmp_path, made_up_cifar, monkeypatch):
    from torchvision import datasets

    class FakeCIFAR10:
        base_folder = "cifar-10-batches-py"

        def __init__(self, root, train, download):
            write_folder(python_files(made_up_cifar), tmp_path.__class__(root) / self.base_folder)

    known_sets = {"cifar10": small_cifar(made_up_cifar)}
    monkeypatch.setattr("worker.data.import_set.KNOWN_SETS", known_sets)
    monkeypatch.setattr(datasets, "CIFAR10", FakeCIFAR10)

    info = fetch("cifar10", tmp_path / "home")

    assert info.num_train == 60
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["cifar10.ndset"]


def test_a_download_that_fails_names_the_other_way(tmp_path, monkeypatch):
    from torchvision import datasets

    class Unreachable:
        base_folder = ""

        def __init__(self, root, train, download):
            raise OSError("Network is unreachable")

    monkeypatch.setattr(datasets, "CIFAR100", Unreachable)

    with pytest.raises(DatasetRefused, match="could not be downloaded: Network is unreachable"):
        fetch("cifar100", tmp_path)


@pytest.mark.cifar10
def test_the_prepared_cifar10_is_the_published_one():
    if not dataset_path("cifar10", default_home()).is_file():
        # 170 MB that continuous integration does not download.
        pytest.skip("CIFAR-10 is not prepared in NDSWEEP_DATA")

    found = load("cifar10", default_home(), verify=True)

    check_known("cifar10", found.arrays)
    assert found.info.train_counts == (5000,) * 10
