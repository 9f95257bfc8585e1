"""Every source of images gives the same prepared set, or is refused and prepares nothing."""

import bz2
import gzip
import itertools
import lzma
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.worker.data.source_files import (
    CLASSES,
    binary100_files,
    binary_files,
    cifar100_files,
    python_files,
    write_folder,
    write_images,
    write_npz,
    write_tar,
)
from worker.data.import_set import import_dataset
from worker.data.prepared import Arrays, list_datasets, load
from worker.errors import DatasetRefused

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
        (
            {"x_train": np.zeros((60, 3, 32, 32), np.uint8)},
            r"channels last, .* got \(60, 3, 32, 32\).*: save x_train.transpose\(0, 2, 3, 1\)",
        ),
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


def too_large(file):
    png = bytearray(file.read_bytes())
    png[16:24] = struct.pack(">II", 60_000, 60_000)
    png[29:33] = struct.pack(">I", zlib.crc32(bytes(png[12:29])))
    file.write_bytes(png)


def one_folder_down(file):
    (file.parent / "more").mkdir()
    file.rename(file.parent / "more" / file.name)


def half_transparent(file):
    Image.open(file).convert("RGBA").point(lambda value: value // 2).save(file)


def animated(file):
    frames = [Image.new("L", (32, 32), shade) for shade in (0, 9)]
    frames[0].save(file.with_suffix(".gif"), save_all=True, append_images=frames[1:])


# What is done to one training image of the fourth class, and the refusal.
SPOILT = {
    "size": (
        lambda file: Image.new("RGB", (30, 32)).save(file),
        "size of the first, 32 x 32; .* has 30 x 32",
    ),
    "text": (lambda file: file.write_text("no image"), "cannot be read as an image"),
    "class": (
        lambda file: (file.parents[2] / "test" / "extra").mkdir(),
        "same classes, 'extra' is only in one",
    ),
    "part": (
        lambda file: (file.parents[2] / "test").rename(file.parents[2] / "other"),
        "test is missing",
    ),
    "deep": (
        lambda file: Image.fromarray(np.full((32, 32), 40_000, np.uint16)).save(file),
        "8 bits per channel, got the mode 'I;16'",
    ),
    "huge": (too_large, "cannot be read as an image: Image size"),
    "deeper": (one_folder_down, "train/.*/more must not be there: images lie in the folder of"),
    "empty": (
        lambda file: [one.unlink() for one in file.parent.iterdir()],
        "train/.* must hold at least one image, got none",
    ),
    "transparent": (half_transparent, "no transparent pixels, .* an opacity of 127 of 255"),
    "palette": (
        lambda file: Image.new("P", (32, 32)).save(file, transparency=0),
        "no transparent pixels, .* an opacity of 0 of 255",
    ),
    "frames": (animated, "must hold one image, got 2"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_wrong_folders_of_images_are_refused(kind, tmp_path, made_up_cifar):
    folder = write_images(made_up_cifar, tmp_path / "images")
    spoil, sentence = SPOILT[kind]
    spoil(min((folder / "train" / CLASSES[3]).iterdir()))

    with pytest.raises(DatasetRefused, match=sentence):
        import_dataset("bad", folder, tmp_path)


def test_what_systems_and_tools_leave_in_a_folder_is_no_part_of_a_set(tmp_path, made_up_cifar):
    folder = write_images(made_up_cifar, tmp_path / "images")
    info = import_dataset("clean", folder, tmp_path)
    (folder / "train" / ".ipynb_checkpoints").mkdir()
    (folder / "train" / CLASSES[0] / "._0001.png").write_bytes(b"Mac OS X")
    (folder / "test" / CLASSES[0] / "Thumbs.db").write_bytes(b"Windows")

    assert import_dataset("used", folder, tmp_path).checksum == info.checksum


@pytest.mark.parametrize(("mode", "channels"), [("RGBA", 3), ("LA", 1), ("P", 3), ("1", 1)])
def test_an_image_without_transparent_pixels_is_what_is_seen(mode, channels, tmp_path):
    seen = Image.effect_noise((6, 5), 90).convert("1" if mode == "1" else "L")
    for part, name in itertools.product(("train", "test"), "ab"):
        (tmp_path / "images" / part / name).mkdir(parents=True)
        opaque = {"transparency": bytes([255] * 256)} if mode == "P" else {}
        seen.convert(mode).save(tmp_path / "images" / part / name / "ü 1.PNG", "PNG", **opaque)

    import_dataset("mine", tmp_path / "images", tmp_path)

    found = load("mine", tmp_path).arrays.x_train
    assert found.shape == (2, 5, 6, channels)
    np.testing.assert_array_equal(
        found[1], np.asarray(seen.convert("L"))[..., None] + [0] * channels
    )


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
