"""The axis of source over target shows the curve, or says how much of it lies beyond."""

import pytest

from sweeps.match.ratio_axis import ratio_axis


@pytest.mark.parametrize(
    ("ratios", "reach", "told"),
    [
        ([1.0, 1.5, 1 / 1.9], 2.0, ""),
        ([1.0, 1 / 4], 4.4, ""),
        ([1.0, 50.0, 1 / 20], 10.0, ", 2 of 3 values beyond the axis"),
        ([*[1.1] * 39, 8.0], 2.0, ", 1 of 40 values beyond the axis"),
    ],
)
def test_a_ratio_far_from_1_is_seen_or_told_of(
    ratios: list[float], reach: float, told: str
) -> None:
    axis = ratio_axis(ratios)

    assert (axis.low, axis.high) == pytest.approx((1 / reach, reach))
    assert axis.told == told
    assert {0.5, 1.0, 2.0} <= set(axis.ticks)
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
