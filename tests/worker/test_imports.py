import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from worker import imports
from worker.datasets import Arrays, dataset_path, default_home, list_datasets, load
from worker.errors import DatasetRefused
from worker.fetch import fetch
from worker.imports import import_dataset
from worker.known_sets import KNOWN_SETS, KnownSet, check_known

CLASSES = [f"kind-{i}" for i in range(10)]


def as_planes(images):
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def python_files(arrays, labels="labels", meta="batches.meta", names="label_names"):
    """The official layout: two training batches, pickled by Python 2 with bytes as keys."""
    halves = np.array_split(np.arange(len(arrays.y_train)), 2)
    parts = {
        f"data_batch_{number}": (arrays.x_train[half], arrays.y_train[half])
        for number, half in enumerate(halves, 1)
    }
    parts["test_batch"] = (arrays.x_test, arrays.y_test)
    files = {
        name: {b"data": as_planes(x), labels.encode(): y.tolist(), b"batch_label": b"x"}
        for name, (x, y) in parts.items()
    }
    files[meta] = {names.encode(): [name.encode() for name in CLASSES]}
    return {name: pickle.dumps(content, protocol=2) for name, content in files.items()}


def cifar100_files(arrays):
    def part(x, y):
        fields = {b"data": as_planes(x), b"fine_labels": y.tolist(), b"coarse_labels": [0] * len(y)}
        return pickle.dumps(fields, protocol=2)

    return {
        "train": part(arrays.x_train, arrays.y_train),
        "test": part(arrays.x_test, arrays.y_test),
        "meta": pickle.dumps({b"fine_label_names": [n.encode() for n in CLASSES]}, protocol=2),
    }


def binary_files(arrays):
    def rows(x, y):
        return np.concatenate([y.astype(np.uint8)[:, None], as_planes(x)], 1).tobytes()

    halves = np.array_split(np.arange(len(arrays.y_train)), 2)
    files = {
        f"data_batch_{number}.bin": rows(arrays.x_train[half], arrays.y_train[half])
        for number, half in enumerate(halves, 1)
    }
    files["test_batch.bin"] = rows(arrays.x_test, arrays.y_test)
    files["batches.meta.txt"] = "\n".join(CLASSES).encode()
    return files


def binary100_files(arrays):
    def rows(x, y):
        fine = y.astype(np.uint8)[:, None]
        return np.concatenate([fine * 0 + 7, fine, as_planes(x)], 1).tobytes()

    return {
        "train.bin": rows(arrays.x_train, arrays.y_train),
        "test.bin": rows(arrays.x_test, arrays.y_test),
        "fine_label_names.txt": "\n".join(CLASSES).encode(),
    }


def write_folder(files, folder):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_tar(files, path):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar-batches/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_images(arrays, folder):
    parts = {"train": (arrays.x_train, arrays.y_train), "test": (arrays.x_test, arrays.y_test)}
    for part, (images, labels) in parts.items():
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            target = folder / part / CLASSES[label]
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(target / f"{number:04d}.png")
    return folder


def write_npz(path, arrays, **changes):
    names = ("x_train", "y_train", "x_test", "y_test")
    fields = dict(zip(names, arrays.parts(), strict=True)) | changes
    np.savez(path, **{name: value for name, value in fields.items() if value is not None})
    return path


SOURCES = {
    "npz": lambda arrays, tmp: write_npz(tmp / "set.npz", arrays),
    "python archive": lambda arrays, tmp: write_tar(python_files(arrays), tmp / "c.tar.gz"),
    "python folder": lambda arrays, tmp: write_folder(python_files(arrays), tmp / "cifar"),
    "python folder, one level up": lambda arrays, tmp: (
        write_folder(python_files(arrays), tmp / "up" / "cifar").parent
    ),
    "cifar-100 for python": lambda arrays, tmp: write_folder(cifar100_files(arrays), tmp / "c"),
    "binary archive": lambda arrays, tmp: write_tar(binary_files(arrays), tmp / "b.tar.gz"),
    "binary folder": lambda arrays, tmp: write_folder(binary_files(arrays), tmp / "bin"),
    "cifar-100 binary": lambda arrays, tmp: write_folder(binary100_files(arrays), tmp / "bin"),
    "folder of images": lambda arrays, tmp: write_images(arrays, tmp / "images"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_prepared_set(source, tmp_path, made_up_cifar):
    path = SOURCES[source](made_up_cifar, tmp_path)
    info = import_dataset("mine", path, tmp_path / "home")

    found = load("mine", tmp_path / "home", verify=True).arrays
    expected = made_up_cifar
    if source == "folder of images":  # sorted by class, then by name
        found, expected = sort_by_label(found), sort_by_label(expected)
    for mapped, written in zip(found.parts(), expected.parts(), strict=True):
        np.testing.assert_array_equal(mapped, written)
    assert info.classes == (tuple(map(str, range(10))) if source == "npz" else tuple(CLASSES))


def sort_by_label(arrays):
    train, test = (np.argsort(y, kind="stable") for y in (arrays.y_train, arrays.y_test))
    return type(arrays)(
        arrays.x_train[train], arrays.y_train[train], arrays.x_test[test], arrays.y_test[test]
    )


def test_grey_images_keep_one_channel(tmp_path, made_up_cifar):
    grey = write_npz(
        tmp_path / "grey.npz",
        made_up_cifar,
        x_train=made_up_cifar.x_train[..., 0],
        x_test=made_up_cifar.x_test[..., 0],
    )

    assert import_dataset("grey", grey, tmp_path).shape == (32, 32, 1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y_test": None}, "y_test missing"),
        ({"x_train": np.zeros((60, 32, 32, 3))}, "x_train must be uint8 .* got float64"),
        ({"x_train": np.zeros((60, 32), np.uint8)}, "x_train must have the shape"),
        ({"x_test": np.zeros((20, 28, 28, 3), np.uint8)}, "images of one shape"),
        ({"x_test": np.zeros((0, 32, 32, 3), np.uint8)}, "x_test must have the shape"),
        ({"y_train": np.zeros(59, int)}, "one label for each of 60 images, got the shape"),
        ({"y_train": np.full(60, -1)}, "y_train must lie between 0 and 999, got -1 to -1"),
        ({"y_train": np.arange(60) * 50}, "y_train must lie between 0 and 999"),
        ({"y_train": np.zeros(60, int)}, "y_test must lie between 0 and 0"),
        ({"y_train": np.zeros(60, int), "y_test": np.zeros(20, int)}, "2 to 1000 classes, got 1"),
        ({"y_train": np.arange(60) % 9 + 1}, "class 0 has no image"),
        ({"y_test": np.full(20, 10)}, "y_test must lie between 0 and 9, got 10 to 10"),
        ({"y_train": np.zeros(60)}, "y_train must be integers, got float64"),
        (
            {"y_train": np.array([{}] * 60)},
            "y_train must be an array of numbers, got one of Python",
        ),
    ],
)
def test_wrong_arrays_are_refused_and_nothing_is_prepared(
    changes, sentence, tmp_path, made_up_cifar
):
    path = write_npz(tmp_path / "bad.npz", made_up_cifar, **changes)

    with pytest.raises(DatasetRefused, match=sentence):
        import_dataset("bad", path, tmp_path / "home")

    assert list_datasets(tmp_path / "home") == []


def spoil_python(files, name, **fields):
    batch = pickle.loads(files[name])
    batch |= {key.encode(): value for key, value in fields.items()}
    return files | {name: pickle.dumps(batch, protocol=2)}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda f: spoil_python(f, "data_batch_2", data=np.zeros((30, 99), np.uint8)),
            r"data_batch_2 must hold uint8 data .* got \(30, 99\)",
        ),
        (lambda f: spoil_python(f, "test_batch", labels=[0] * 19), "one label for each of 20"),
        (lambda f: spoil_python(f, "test_batch", labels=[77] * 20), "between 0 and 9"),
        (lambda f: f | {"test_batch": f["test_batch"][:100]}, "test_batch is not a CIFAR batch"),
        (lambda f: f | {"test_batch": pickle.dumps({b"data": 1})}, "must hold uint8 data"),
        (lambda f: f | {"test_batch": pickle.dumps([1])}, "must hold an entry 'data'"),
        (
            lambda f: spoil_python(f, "data_batch_1", labels=[[0], [1, 2]]),
            "data_batch_1 must hold a flat list of labels",
        ),
        (
            lambda f: f | {"batches.meta": pickle.dumps({b"label_names": 3}, protocol=2)},
            "batches.meta must hold a list of class names, got int",
        ),
        (
            lambda f: f | {"test_batch": b"cos\nsystem\n(S'touch /tmp/never'\ntR."},
            "not a CIFAR batch: it asks for os.system",
        ),
    ],
)
def test_wrong_python_batches_are_refused(spoil, sentence, tmp_path, made_up_cifar):
    path = write_tar(spoil(python_files(made_up_cifar)), tmp_path / "c.tar.gz")

    with pytest.raises(DatasetRefused, match=sentence):
        import_dataset("bad", path, tmp_path)


def test_a_binary_batch_of_broken_rows_is_refused(tmp_path, made_up_cifar):
    files = binary_files(made_up_cifar)
    files["data_batch_1.bin"] = files["data_batch_1.bin"][:-1]

    with pytest.raises(DatasetRefused, match=r"data_batch_1.bin must be rows of 3073 bytes"):
        import_dataset("bad", write_folder(files, tmp_path / "b"), tmp_path)


def test_a_truncated_archive_is_refused(tmp_path, made_up_cifar):
    path = write_tar(python_files(made_up_cifar), tmp_path / "c.tar.gz")
    path.write_bytes(path.read_bytes()[:-2000])

    with pytest.raises(DatasetRefused):
        import_dataset("bad", path, tmp_path)


@pytest.mark.parametrize(("packing", "module"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_an_archive_with_damaged_bytes_is_refused(packing, module, where, tmp_path, made_up_cifar):
    whole = write_tar(binary_files(made_up_cifar), tmp_path / "c.tar.gz").read_bytes()
    data = bytearray(module.compress(gzip.decompress(whole)))
    at = int(where * len(data))
    data[at : at + 40] = bytes(byte ^ 0x5A for byte in data[at : at + 40])
    path = tmp_path / f"c.tar.{packing}"
    path.write_bytes(data)

    with pytest.raises(DatasetRefused):
        import_dataset("bad", path, tmp_path)


def spoil_folder(folder, kind):
    file = next((folder / "train" / CLASSES[3]).iterdir())
    if kind == "deep":
        Image.fromarray(np.full((32, 32), 40_000, np.uint16)).save(file)
    elif kind == "huge":
        png = bytearray(file.read_bytes())
        png[16:24] = struct.pack(">II", 60_000, 60_000)
        png[29:33] = struct.pack(">I", zlib.crc32(bytes(png[12:29])))
        file.write_bytes(png)
    if kind == "size":
        Image.new("RGB", (30, 32)).save(file)
    elif kind == "text":
        file.write_text("no image")
    elif kind == "class":
        (folder / "test" / "extra").mkdir()
    elif kind == "part":
        (folder / "test").rename(folder / "other")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("size", "size of the first, 32 x 32; .* has 30 x 32"),
        ("text", "cannot be read as an image"),
        ("class", "same classes, 'extra' is only in one"),
        ("part", "test is missing"),
        ("deep", "8 bits per channel, got the mode 'I;16'"),
        ("huge", "cannot be read as an image: Image size"),
    ],
)
def test_wrong_folders_of_images_are_refused(kind, sentence, tmp_path, made_up_cifar):
    folder = write_images(made_up_cifar, tmp_path / "images")
    spoil_folder(folder, kind)

    with pytest.raises(DatasetRefused, match=sentence):
        import_dataset("bad", folder, tmp_path)


def test_a_damaged_npz_and_a_strange_file_are_refused(tmp_path, made_up_cifar):
    path = write_npz(tmp_path / "cut.npz", made_up_cifar)
    path.write_bytes(path.read_bytes()[:5000])
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(DatasetRefused, match=r"cut.npz must be an .npz, .* or cut off"):
        import_dataset("bad", path, tmp_path)
    with pytest.raises(DatasetRefused, match=r"must be an .npz, a CIFAR archive or a folder"):
        import_dataset("bad", tmp_path / "notes.txt", tmp_path)
    with pytest.raises(DatasetRefused, match="there is no file or folder"):
        import_dataset("bad", tmp_path / "nowhere", tmp_path)


def test_an_npz_with_a_damaged_array_is_refused(tmp_path, made_up_cifar):
    path = write_npz(tmp_path / "set.npz", made_up_cifar)
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)

    with pytest.raises(DatasetRefused, match=r"set.npz is a damaged .npz: Bad CRC"):
        import_dataset("bad", path, tmp_path)


@pytest.mark.parametrize("content", [b"hello\n", b"", b"\x93NUMPY rest"])
def test_another_file_with_the_name_of_an_npz_is_told_what_it_is_not(content, tmp_path):
    path = tmp_path / "set.npz"
    path.write_bytes(content)

    with pytest.raises(DatasetRefused, match=r"must be an \.npz, the zip archive") as caught:
        import_dataset("bad", path, tmp_path)

    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "shape"), [(2, (1, 1, 1)), (3, (5, 9, 2)), (7, (4, 4, 4)), (1000, (6, 4, 7))]
)
def test_any_size_any_channels_and_2_to_1000_classes_are_taken(classes, shape, tmp_path):
    labels = np.arange(2 * classes) % classes
    images = np.random.default_rng(0).integers(0, 256, (2 * classes, *shape), np.uint8)
    arrays = Arrays(images, labels, images[:1], labels[:1])

    info = import_dataset("mine", write_npz(tmp_path / "set.npz", arrays), tmp_path)

    assert (info.num_classes, info.shape, set(info.train_counts)) == (classes, shape, {2})


def test_more_than_1000_classes_are_refused(tmp_path):
    labels = np.arange(1001)
    arrays = Arrays(np.zeros((1001, 1, 1, 1), np.uint8), labels, np.zeros((1, 1, 1), np.uint8), [0])

    with pytest.raises(DatasetRefused, match="y_train must lie between 0 and 999, got 0 to 1000"):
        import_dataset("mine", write_npz(tmp_path / "set.npz", arrays), tmp_path)


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


def test_the_name_of_a_known_set_is_kept_for_it(tmp_path, made_up_cifar):
    path = write_npz(tmp_path / "set.npz", made_up_cifar)

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
    monkeypatch.setattr("worker.known_sets.KNOWN_SETS", known_sets)
    monkeypatch.setattr(imports, "KNOWN_SETS", known_sets)
    changes = {name: change(getattr(made_up_cifar, name)) for name, change in spoil.items()}
    path = write_npz(tmp_path / "set.npz", made_up_cifar, **changes)

    if sentence is None:
        assert import_dataset("cifar10", path, tmp_path).classes == tuple(CLASSES)
    else:
        with pytest.raises(DatasetRefused, match=sentence):
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
    monkeypatch.setattr("worker.known_sets.KNOWN_SETS", known_sets)
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
