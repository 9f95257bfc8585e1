"""Whether a verdict on two arms can be given, and what else puts a difference in doubt."""

from collections.abc import Sequence
from typing import Any

from sweeps.comparison_arms import Arm

#: Metrics of images; of any other (a speed, a weight norm) the data are no part.
_ON_IMAGES = ("train_", "validation_", "test_")
#: Fields that choose which images are held out of the training set.
_SPLIT = ("split_seed", "validation_fraction")
#: Fields that make a difference of errors no matter of what is compared, unless they are.
_CAUTIONS = ("recipe", *_SPLIT, "steps", "epochs")
_CHECKSUM = "data checksum"


def not_comparable(a: Arm, b: Arm, metric: str) -> str:
    """Why a value of one arm cannot be held against the other's, by name; "" where it can."""
    if all(len(set(arm.values(metric))) == 1 for arm in (a, b)):
        # Any difference would be certain, by an interval of no length.
        return "neither has a spread: too few seeds, or too coarse a metric, to judge"
    if not metric.startswith(_ON_IMAGES):
        return ""
    reasons = []
    if (told := _told("dataset", a, b)) is not None:
        reasons.append(f"other data: {told}")
    elif _have_other_bytes(a, b):
        sums = " and ".join(", ".join(s[:12] for s in arm.origins[_CHECKSUM]) for arm in (a, b))
        reasons.append(f"other data under one name: checksums {sums}")
    if not metric.startswith("test_"):
        splits = [told for name in _SPLIT if (told := _told(name, a, b)) is not None]
        if splits:
            reasons.append(f"errors on other images: {', '.join(splits)}")
    return "; ".join(reasons)


def cautions(pairs: Sequence[tuple[Arm, Arm]], metric: str) -> list[str]:
    """A sentence on what is not alike within comparable pairs and may itself be the difference."""
    if not metric.startswith(_ON_IMAGES):
        return []
    found = []
    for name in _CAUTIONS:
        unlike = [
            arm for a, b in pairs if a.config.get(name) != b.config.get(name) for arm in (a, b)
        ]
        if unlike:
            found.append(f"{name} {_values(name, unlike)}")
    return [f"Not trained alike, which may be the difference: {', '.join(found)}."] if found else []


def _told(name: str, a: Arm, b: Arm) -> str | None:
    """A field with both values; None where they are the same or one is not known."""
    left, right = a.config.get(name), b.config.get(name)
    if left is None or right is None or left == right:
        return None
    return f"{name} {_values(name, (a, b))}"


def _values(name: str, arms: Sequence[Arm]) -> str:
    found = dict.fromkeys(_words(arm.config.get(name)) for arm in arms)
    return " and ".join(found)


def _words(values: list[Any] | None) -> str:
    known = [str(value) for value in values or [] if value is not None]
    return ", ".join(known) or "unset"


def _have_other_bytes(a: Arm, b: Arm) -> bool:
    left, right = a.origins.get(_CHECKSUM), b.origins.get(_CHECKSUM)
    return bool(left and right) and left != right
