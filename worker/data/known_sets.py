"""Properties of CIFAR-10 and CIFAR-100, by which other files are refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class KnownSet:
    """A published data set: its classes, its sizes, and its checksums."""

    classes: tuple[str, ...]
    num_train: int
    num_test: int
    shape: tuple[int, int, int]
    #: Channel means and deviations of the training images, 0..255, to a tenth.
    means: tuple[float, float, float]
    deviations: tuple[float, float, float]
    #: sha256 of the decoded arrays' bytes (uint8): x_train, y_train, x_test, y_test; None for a
    #: part that sources hold in different orders.
    sha256: tuple[str | None, ...] = ()
    #: sha256 of the test set in no order: over the sorted sha256 digests of each label and image.
    unordered_test_sha256: str | None = None
    #: md5 of the files of the archive for Python, as in torchvision.
    python_md5: Mapping[str, str] = field(default_factory=dict)


# Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), in the order of the
# official archive: batches 1 to 5, then the test batch.
CIFAR10 = KnownSet(
    classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    num_train=50_000,
    num_test=10_000,
    shape=(32, 32, 3),
    means=(125.3, 123.0, 113.9),
    deviations=(63.0, 62.1, 66.7),
    sha256=(
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
)
CIFAR100 = KnownSet(
    classes=tuple(f"class-{label}" for label in range(100)),
    num_train=50_000,
    num_test=10_000,
    shape=(32, 32, 3),
    means=(129.3, 124.1, 112.4),
    deviations=(68.2, 65.4, 70.4),
    sha256=(
        "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
        None,
        None,
    ),
    unordered_test_sha256="d3cd5d87a1b9317a0982c8ef5535fe3b86da8da90b13ce5e9b23ea06400dd5eb",
    python_md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
KNOWN_SETS = {"cifar10": CIFAR10, "cifar100": CIFAR100}
