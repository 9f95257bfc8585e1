"""Scales and ends of axes: which part is shown, and which numbers stand on a log axis."""

import pytest

from sweeps.figures.axes import ratio_axis, readable_ends, spans_decade
from sweeps.figures.chart import Axis
from sweeps.figures.plotly_values import axis_of, log_axis


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([0.01, 0.3], "0.05"),
        ([3e-6, 6e-4], "3·10<sup>-5</sup>"),
        ([1e-9, 1e3], "10<sup>-8</sup>"),
    ],
)
def test_log_labels_are_numbers_a_reader_knows(values: list[float], label: str) -> None:
    axis = log_axis(values)

    assert label in axis["ticktext"]
    assert len(axis["tickvals"]) == len(axis["ticktext"]) <= 20


def test_a_part_of_a_decade_has_more_marks_than_its_one_round_number() -> None:
    assert log_axis([1.6, 4.0]) == {"type": "log", "tickangle": 0}


def test_a_log_axis_without_positive_values_is_still_one() -> None:
    assert log_axis([0.0]) == {"type": "log", "tickangle": 0}


def test_an_axis_that_opens_on_a_part_has_labels_there() -> None:
    """A curve that falls to 1e-9 is shown from 2e-5; every ninth decade would be one label."""
    ends = readable_ends([1e-9, 1e-2])
    axis = axis_of(Axis("‖Δw‖/‖w‖", is_log=True, ends=ends), [1e-9, 1e-2])
    low, high = (10**end for end in axis["range"])
    shown = [
        text for at, text in zip(axis["tickvals"], axis["ticktext"], strict=True) if low < at < high
    ]

    assert shown == ["10<sup>-4</sup>", "0.001", "0.01"]


@pytest.mark.parametrize("values", [[], [0.0, 5.0], [1.0, 9.0], [-1.0, 100.0]])
def test_values_within_a_decade_or_not_positive_stay_linear(values: list[float]) -> None:
    assert not spans_decade(values)


@pytest.mark.parametrize(
    ("ratios", "reach", "note"),
    [
        ([1.0, 1.5, 1 / 1.9], 2.0, ""),
        ([1.0, 1 / 4], 4.4, ""),
        ([1.0, 50.0, 1 / 20], 10.0, ", 2 of 3 values beyond the axis"),
        ([*[1.1] * 39, 8.0], 2.0, ", 1 of 40 values beyond the axis"),
    ],
)
def test_a_ratio_far_from_1_is_shown_or_counted(
    ratios: list[float], reach: float, note: str
) -> None:
    axis, found = ratio_axis(ratios, "source / target")

    assert axis.ends == pytest.approx((1 / reach, reach))
    assert found == note
    assert {0.5, 1.0, 2.0} <= set(axis.ticks)
    assert all(1 / reach <= tick <= reach for tick in axis.ticks)


@pytest.mark.parametrize("decades", [0.9, 1.3, 1.6, 2.0, 2.4, 2.8, 4.0, 6.0, 9.0])
def test_few_enough_numbers_for_a_phone_stand_within_the_values(decades: float) -> None:
    values = [2e-6, 2e-6 * 10**decades]

    axis = log_axis(values)
    within = [at for at in axis["tickvals"] if values[0] <= at <= values[1]]

    assert 2 <= len(within) <= 7
    assert axis["tickangle"] == 0
