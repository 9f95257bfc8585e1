"""Whether a verdict on two arms can be given, and what else puts a difference in doubt."""

import math
from collections.abc import Sequence
from typing import Any

from sweeps.analysis.compared_arms import Arm, are_pairs

#: Metrics of images; of any other (a speed, a weight norm) the data are no part.
_ON_IMAGES = ("train_", "validation_", "test_")
#: Fields that choose which images are held out of the training set.
_SPLIT = ("split_seed", "validation_fraction")
#: Fields that make a difference of errors no matter of what is compared, unless they are.
_CAUTIONS = ("recipe", *_SPLIT, "steps", "epochs")
_CHECKSUM = "data checksum"


def not_comparable(a: Arm, b: Arm, metric: str, *, pairing: bool) -> str:
    """Why a value of one arm cannot be held against the other's, by name; "" where it can."""
    if reason := _spreadless(a, b, metric, pairing=pairing):
        return reason
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
        unlike = [arm for a, b in pairs if _differ(name, a, b) for arm in (a, b)]
        if unlike:
            found.append(f"{name} {_values(name, unlike)}")
    return [f"Not trained alike, which may be the difference: {', '.join(found)}."] if found else []


def _spreadless(a: Arm, b: Arm, metric: str, *, pairing: bool) -> str:
    """Why any difference would be certain, by an interval of no length; "" where none would."""
    x, y = a.values(metric), b.values(metric)
    if len(set(x)) == len(set(y)) == 1:
        return "neither has a spread: too few seeds, or too coarse a metric, to judge"
    if pairing and are_pairs(a, b):
        gaps = [left - right for left, right in zip(x, y, strict=True)]
        # Errors are counts over images; subtracting them rounds.
        if math.isclose(max(gaps), min(gaps), rel_tol=1e-9, abs_tol=1e-12):
            return (
                "every pair of seeds is equally far apart: too few seeds, or too coarse a metric, "
                "to judge"
            )
    return ""


def _differ(name: str, a: Arm, b: Arm) -> bool:
    """Whether a field is not the same in both; the order of several values does not matter."""
    if name == "split_seed" and all(arm.config.get("validation_fraction") == [0] for arm in (a, b)):
        return False  # it chose nothing
    left, right = a.config.get(name, [None]), b.config.get(name, [None])
    return any(v not in right for v in left) or any(v not in left for v in right)


def _told(name: str, a: Arm, b: Arm) -> str | None:
    """A field with both values; None where they are the same or one is not known."""
    is_known = a.config.get(name) is not None and b.config.get(name) is not None
    return f"{name} {_values(name, (a, b))}" if is_known and _differ(name, a, b) else None


def _values(name: str, arms: Sequence[Arm]) -> str:
    found = dict.fromkeys(_words(arm.config.get(name)) for arm in arms)
    return " and ".join(found)


def _words(values: list[Any] | None) -> str:
    known = [str(value) for value in values or [] if value is not None]
    return ", ".join(known) or "unset"


def _have_other_bytes(a: Arm, b: Arm) -> bool:
    left, right = a.origins.get(_CHECKSUM), b.origins.get(_CHECKSUM)
    return bool(left and right) and left != right
