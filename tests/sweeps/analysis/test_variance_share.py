"""How much of the spread each field explains: known designs give known shares."""

import math
import random

import pytest

from sweeps.analysis.variance_share import LEAST_POINTS, variance_shares
from sweeps.records import Point, TrialState

SPACE = {
    "alpha_v": {"kind": "float", "low": 0.0, "high": 1.0},
    "alpha_s": {"kind": "float", "low": 0.0, "high": 1.0},
    "optimizer": {"kind": "choice", "values": ["a", "b"]},
}


def point(number: int, mean: float | None, **params: object) -> Point:
    return Point("s", number, params, mean, None, 1, TrialState.COMPLETE)


def points(count: int, seed: int = 0) -> list[Point]:
    """The mean is 2 x alpha_v, plus 1 for optimizer b; alpha_s does nothing."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        v, s, o = rng.random(), rng.random(), rng.choice("ab")
        found.append(point(number, 2 * v + (o == "b"), alpha_v=v, alpha_s=s, optimizer=o))
    return found


def test_shares_are_those_of_the_variances() -> None:
    """2 x uniform has variance 4/12, a fair coin 1/4: shares 4/7 and 3/7."""
    rows = {row.field: row for row in variance_shares(SPACE, points(4000))}

    assert rows["alpha_v"].share == pytest.approx(4 / 7, abs=0.03)
    assert rows["optimizer"].share == pytest.approx(3 / 7, abs=0.03)
    assert rows["alpha_s"].share == pytest.approx(0, abs=0.01)


def test_the_most_important_field_comes_first() -> None:
    assert next(row.field for row in variance_shares(SPACE, points(500))) == "alpha_v"


def test_intervals_cover_the_truth_and_shrink_with_points() -> None:
    # Eight bins of a uniform variable hold 1 - 1/64 of its variance.
    truth = 4 / 7 * (1 - 1 / 64)
    rows = [
        next(r for r in variance_shares(SPACE, points(400, seed)) if r.field == "alpha_v")
        for seed in range(60)
    ]
    covered = sum(row.low <= truth <= row.high for row in rows)

    few = next(r for r in variance_shares(SPACE, points(60)) if r.field == "alpha_v")
    assert covered >= 52
    assert few.high - few.low > 1.5 * math.fsum(r.high - r.low for r in rows) / len(rows)


def test_a_field_is_judged_by_the_points_that_use_it() -> None:
    some = [p if p.number % 2 else point(p.number, p.mean, optimizer="a") for p in points(400)]

    rows = {row.field: row.n for row in variance_shares(SPACE, some)}

    assert rows["alpha_v"] == 200
    assert rows["optimizer"] == 400


def test_too_few_points_and_fields_that_stand_still_say_nothing() -> None:
    assert variance_shares(SPACE, points(LEAST_POINTS - 1)) == []
    still = [point(n, float(n), alpha_v=0.5) for n in range(50)]
    assert variance_shares(SPACE, still) == []


def test_equal_means_have_no_variance_to_share() -> None:
    flat = [point(p.number, 0.5, **p.params) for p in points(50)]

    assert all(row.share == row.low == row.high == 0 for row in variance_shares(SPACE, flat))


def test_points_without_a_mean_are_left_out() -> None:
    mixed = [*points(50), point(50, None, alpha_v=0.1, alpha_s=0.1, optimizer="a")]

    assert {row.n for row in variance_shares(SPACE, mixed)} == {50}
