"""Made-up arrays as the files that people have: archives, folders and arrays of every layout."""

import io
import pickle
import tarfile

import numpy as np
from PIL import Image

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
