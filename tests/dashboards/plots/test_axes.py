"""Which marks a log axis has, and when an axis is one."""

import pytest

from dashboards.plots.figure import log_axis, readable_axis, wide_axis


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([0.01, 0.3], "0.05"),
        ([1e-6, 1e-3], "3·10<sup>-6</sup>"),
        ([1e-9, 1e3], "10<sup>-8</sup>"),
    ],
)
def test_log_labels_are_numbers_a_reader_knows(values: list[float], label: str) -> None:
    axis = log_axis(values)

    assert label in axis["ticktext"]
    assert len(axis["tickvals"]) == len(axis["ticktext"]) <= 20


def test_a_part_of_a_decade_has_more_marks_than_its_one_round_number() -> None:
    assert log_axis([1.6, 4.0]) == {"type": "log"}


def test_a_log_axis_without_positive_values_is_still_one() -> None:
    assert log_axis([0.0]) == {"type": "log"}


def test_an_axis_that_opens_on_a_part_has_labels_there() -> None:
    """A curve that falls to 1e-9 is shown from 2e-5; every ninth decade would be one label."""
    axis = readable_axis([1e-9, 1e-2])
    low, high = (10**end for end in axis["range"])
    shown = [
        text for at, text in zip(axis["tickvals"], axis["ticktext"], strict=True) if low < at < high
    ]

    assert shown == [
        "3·10<sup>-5</sup>",
        "10<sup>-4</sup>",
        "3·10<sup>-4</sup>",
        "0.001",
        "0.003",
        "0.01",
    ]


@pytest.mark.parametrize("values", [[], [0.0, 5.0], [1.0, 9.0], [-1.0, 100.0]])
def test_values_within_a_decade_or_not_positive_stay_linear(values: list[float]) -> None:
    assert wide_axis(values) == {}
