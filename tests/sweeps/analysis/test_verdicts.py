"""What two samples have to have in common for a verdict, and which test gives it."""

from typing import Any

import pytest

from ndadam.statistics.inference import holm, paired, welch
from sweeps.analysis.verdicts import (
    Sample,
    cautions,
    detectable,
    judged,
    not_comparable,
    sorted_pairs,
)

A, B, C = [0.10, 0.12, 0.11], [0.07, 0.09, 0.10], [0.20, 0.24, 0.21]


def sample(values: list[float], metric: str = "test_error", **fields: Any) -> Sample:
    seeds = fields.pop("seeds", list(range(len(values))))
    config = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    checksums = config.pop("checksums", [])
    return Sample(str(values[0]), metric, values, seeds, config, checksums)


def test_differences_of_one_table_are_corrected_for_each_other() -> None:
    samples = [sample(values) for values in (A, B, C)]

    pairs, unlike = sorted_pairs(samples)
    found = judged(pairs)

    by_hand = [welch(A, B), welch(A, C), welch(B, C)]
    assert unlike == []
    assert [one.difference for one in found] == by_hand
    assert [one.p_holm for one in found] == holm([one.p_value for one in by_hand])
    assert [one.verdict for one in found] == ["not shown", "lower", "lower"]


def test_pairs_of_seeds_are_compared_where_that_was_declared_and_both_have_them() -> None:
    a, b = sample(A), sample(B)
    other = sample(C, seeds=[3, 4, 5])

    pairs, _ = sorted_pairs([a, b, other], pairing=True)
    found = judged(pairs, pairing=True)

    assert [one.method for one in found] == ["paired", "welch", "welch"]
    assert found[0].difference == paired(A, B)
    assert judged([(a, b)])[0].method == "welch"


def test_a_baseline_is_what_each_other_sample_is_held_against() -> None:
    a, b, c = (sample(values) for values in (A, B, C))

    pairs, _ = sorted_pairs([a, b, c], baseline=b)

    assert pairs == [(a, b), (c, b)]


def test_samples_of_different_metrics_make_no_pair() -> None:
    assert sorted_pairs([sample(A), sample(B, "validation_error")]) == ([], [])


@pytest.mark.parametrize(
    ("metric", "one", "other", "kind", "reason"),
    [
        ("test_error", {"dataset": "a"}, {"dataset": "b"}, "data", "other data: dataset a and b"),
        (
            "test_error",
            {"checksums": ["aa"]},
            {"checksums": ["bb"]},
            "data",
            "other data under one name: checksums aa and bb",
        ),
        (
            "validation_error",
            {"split_seed": 0},
            {"split_seed": 1},
            "images",
            "errors on other images: split_seed 0 and 1",
        ),
        (
            "validation_error",
            {"dataset": "a", "split_seed": 0},
            {"dataset": "b", "split_seed": 1},
            "data",
            "other data: dataset a and b; errors on other images: split_seed 0 and 1",
        ),
    ],
)
def test_errors_on_other_images_get_no_verdict(
    metric: str, one: dict[str, Any], other: dict[str, Any], kind: str, reason: str
) -> None:
    found = not_comparable(sample(A, metric, **one), sample(B, metric, **other))

    assert found is not None
    assert (found.kind, found.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("metric", "one", "other"),
    [
        # Another split does not change the test images.
        ("test_error", {"split_seed": 0}, {"split_seed": 1}),
        # A speed is of no images at all.
        ("images_per_second", {"dataset": "a"}, {"dataset": "b"}),
        # What is not known is not held against anything.
        ("test_error", {}, {"dataset": "b"}),
        # Nothing was held out by either seed.
        (
            "validation_error",
            {"split_seed": 0, "validation_fraction": 0},
            {"split_seed": 1, "validation_fraction": 0},
        ),
        # The order of several values does not matter.
        ("validation_error", {"split_seed": [0, 3]}, {"split_seed": [3, 0]}),
    ],
)
def test_what_does_not_change_the_images_stands_in_no_verdict_s_way(
    metric: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not_comparable(sample(A, metric, **one), sample(B, metric, **other)) is None


def test_without_any_spread_every_difference_would_look_certain() -> None:
    alike = sample([0.1, 0.1]), sample([0.2, 0.2])
    apart = sample([0.1, 0.2]), sample([0.3, 0.4])

    found = not_comparable(*alike)
    assert found is not None
    assert (found.kind, found.reason[:24]) == ("spread", "neither has a spread: to")
    assert not_comparable(*apart) is None
    found = not_comparable(*apart, pairing=True)
    assert found is not None
    assert found.reason.startswith("every pair of seeds is equally far apart")


def test_what_else_is_unlike_is_said() -> None:
    pair = (sample(A, recipe="x", steps=10), sample(B, recipe="y", steps=10))
    same_splits = (
        sample(A, "validation_error", split_seed=[0, 3]),
        sample(B, "validation_error", split_seed=[3, 0]),
    )

    (note,) = cautions([pair])
    assert note == "Not trained alike, which may be the difference: recipe x and y."
    assert cautions([same_splits]) == []
    assert cautions([(sample(A, "images_per_second", steps=1), sample(B, "x", steps=2))]) == []


def test_pairs_detect_what_their_differences_spread_by() -> None:
    samples = [sample([0.1, 0.2, 0.3]), sample([0.15, 0.26, 0.35])]

    independent, in_pairs = (detectable(samples, pairing=pairing) for pairing in (False, True))

    assert independent is not None
    assert in_pairs is not None
    assert in_pairs < independent
    assert detectable([], pairing=False) is None
