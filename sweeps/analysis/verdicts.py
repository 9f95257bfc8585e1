"""Judges differences between samples: which may be compared, by which test, with Holm's correction.

The arms of one sweep and the arms of any comparison go through it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ndadam.statistics.inference import (
    Difference,
    Direction,
    detectable_difference,
    holm,
    mean_interval,
    paired,
    welch,
)

Method = Literal["welch", "paired"]

#: Metrics of images; of any other (a speed, a weight norm) the data are no part.
_ON_IMAGES = ("train_", "validation_", "test_")

#: Fields that choose which images are held out of the training set.
_SPLIT = ("split_seed", "validation_fraction")

#: Fields that make a difference of errors no matter of what is compared, unless they are.
_CAUTIONS = ("recipe", *_SPLIT, "steps", "epochs")


# Compared by identity: two samples may hold the same numbers.
@dataclass(frozen=True, eq=False)
class Sample:
    """The values of a metric over the seeds of one arm, and what they were trained with."""

    label: str
    metric: str
    #: By seed, in the order of ``seeds``.
    values: list[float]
    seeds: list[int]
    #: Field -> every value that the trials have.
    config: Mapping[str, list[Any]]
    #: Of the data, as far as they are known.
    checksums: list[str] = field(default_factory=list)

    def is_paired_with(self, other: "Sample") -> bool:
        """Whether both have the same seeds, once each."""
        return self.seeds == other.seeds and len(set(self.seeds)) == len(self.seeds)


Pair = tuple[Sample, Sample]


@dataclass(frozen=True)
class Unlike:
    """Two samples that get no verdict."""

    a: Sample
    b: Sample
    #: Other data, other images of the same data, or no spread in either.
    kind: Literal["data", "images", "spread"]
    #: In words, with the values of the fields that are the reason.
    reason: str


@dataclass(frozen=True)
class Judged:
    """Sample a minus sample b."""

    a: Sample
    b: Sample
    method: Method
    difference: Difference
    #: Corrected for all differences that were judged with it.
    p_holm: float

    @property
    def verdict(self) -> Direction:
        """Of a against b."""
        return self.difference.direction(self.p_holm)


def sorted_pairs(
    samples: Sequence[Sample], *, pairing: bool = False, baseline: Sample | None = None
) -> tuple[list[Pair], list[Unlike]]:
    """The pairs that a verdict can be given on, and the others with the reason.

    Samples of different metrics make no pair, and with a baseline only pairs with it are made.
    """
    pairs, unlike = [], []
    for a, b in itertools.combinations(samples, 2):
        if a.metric != b.metric or (baseline is not None and baseline not in (a, b)):
            continue
        # The baseline is what others are held against.
        first, second = (b, a) if a is baseline else (a, b)
        reason = not_comparable(first, second, pairing=pairing)
        if reason is None:
            pairs.append((first, second))
        else:
            unlike.append(reason)
    return pairs, unlike


def judged(pairs: Sequence[Pair], *, pairing: bool = False) -> list[Judged]:
    """The differences, seed by seed where that was declared and can be, else by Welch's t."""
    found = [_difference(a, b, pairing=pairing) for a, b in pairs]
    adjusted = holm([difference.p_value for difference, _ in found])
    return [
        Judged(a, b, method, difference, p_holm)
        for (a, b), (difference, method), p_holm in zip(pairs, found, adjusted, strict=True)
    ]


def _difference(a: Sample, b: Sample, *, pairing: bool) -> tuple[Difference, Method]:
    if pairing and a.is_paired_with(b):
        return paired(a.values, b.values), "paired"
    return welch(a.values, b.values), "welch"


def detectable(samples: Sequence[Sample], *, pairing: bool) -> float | None:
    """Difference that the fewest seeds here show with 80 % chance, at their largest deviation."""
    pairs = list(itertools.combinations(samples, 2))
    if pairing and pairs and all(a.is_paired_with(b) for a, b in pairs):
        return _detectable_paired(pairs)
    found = [mean_interval(sample.values) for sample in samples]
    spreads = [interval.sd for interval in found if interval.sd is not None]
    if not spreads:
        return None
    return detectable_difference(max(spreads), min(interval.n for interval in found))


def _detectable_paired(pairs: Sequence[Pair]) -> float | None:
    """The same seed by seed: what counts is how far the differences spread."""
    gaps = [_gaps(a, b) for a, b in pairs]
    spreads = [interval.sd for interval in map(mean_interval, gaps) if interval.sd is not None]
    return detectable_difference(max(spreads), len(gaps[0]), paired=True) if spreads else None


def _gaps(a: Sample, b: Sample) -> list[float]:
    return [left - right for left, right in zip(a.values, b.values, strict=True)]


# --- What may be compared -------------------------------------------------------------------------


def not_comparable(a: Sample, b: Sample, *, pairing: bool = False) -> Unlike | None:
    """Why a value of one sample cannot be held against the other's; None where it can."""
    if reason := _spreadless(a, b, pairing=pairing):
        return Unlike(a, b, "spread", reason)
    if not a.metric.startswith(_ON_IMAGES):
        return None
    data, images = _other_data(a, b), _other_images(a, b)
    if data or images:
        return Unlike(a, b, "data" if data else "images", "; ".join(filter(None, (data, images))))
    return None


def _other_data(a: Sample, b: Sample) -> str:
    if (told := _told("dataset", a, b)) is not None:
        return f"other data: {told}"
    if a.checksums and b.checksums and a.checksums != b.checksums:
        sums = " and ".join(", ".join(s[:12] for s in one.checksums) for one in (a, b))
        return f"other data under one name: checksums {sums}"
    return ""


def _other_images(a: Sample, b: Sample) -> str:
    if a.metric.startswith("test_"):
        return ""
    splits = [told for name in _SPLIT if (told := _told(name, a, b)) is not None]
    return f"errors on other images: {', '.join(splits)}" if splits else ""


def _spreadless(a: Sample, b: Sample, *, pairing: bool) -> str:
    """Why any difference would be certain, by an interval of no length; "" where none would."""
    if len(set(a.values)) == len(set(b.values)) == 1:
        return "neither has a spread: too few seeds, or too coarse a metric, to judge"
    if pairing and a.is_paired_with(b):
        gaps = _gaps(a, b)
        # Errors are counts over images; subtracting them rounds.
        if math.isclose(max(gaps), min(gaps), rel_tol=1e-9, abs_tol=1e-12):
            return (
                "every pair of seeds is equally far apart: too few seeds, or too coarse a metric, "
                "to judge"
            )
    return ""


def cautions(pairs: Sequence[Pair]) -> list[str]:
    """A sentence on what is not alike within comparable pairs and may itself be the difference."""
    found = []
    on_images = [pair for pair in pairs if pair[0].metric.startswith(_ON_IMAGES)]
    for name in _CAUTIONS:
        unlike = [sample for a, b in on_images if _differ(name, a, b) for sample in (a, b)]
        if unlike:
            found.append(f"{name} {_values(name, unlike)}")
    return [f"Not trained alike, which may be the difference: {', '.join(found)}."] if found else []


def _differ(name: str, a: Sample, b: Sample) -> bool:
    """Whether a field is not the same in both; the order of several values does not matter."""
    if name == "split_seed" and all(one.config.get("validation_fraction") == [0] for one in (a, b)):
        return False  # it chose nothing
    left, right = a.config.get(name, [None]), b.config.get(name, [None])
    return any(v not in right for v in left) or any(v not in left for v in right)


def _told(name: str, a: Sample, b: Sample) -> str | None:
    """A field with both values; None where they are the same or one is not known."""
    is_known = a.config.get(name) is not None and b.config.get(name) is not None
    return f"{name} {_values(name, (a, b))}" if is_known and _differ(name, a, b) else None


def _values(name: str, samples: Sequence[Sample]) -> str:
    found = dict.fromkeys(_words(sample.config.get(name)) for sample in samples)
    return " and ".join(found)


def _words(values: list[Any] | None) -> str:
    known = [str(value) for value in values or [] if value is not None]
    return ", ".join(known) or "unset"
