"""Numbers, intervals and values as text, below the pages."""

from typing import Any

import pytest

from sweeps.analysis.arms import Estimate
from sweeps.analysis.formatting import (
    BRACKETS,
    arm_name,
    estimate_text,
    figures,
    log_ratio_percent,
    metric_title,
    metric_with_unit,
    settings_words,
    signed,
    signed_figures,
    span,
    with_interval,
    word,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (figures(0.0447213), "0.04472"),
        (figures(1234.56, 3), "1.23e+03"),
        (figures(None), "–"),
        (signed(-0.126), "−0.13"),
        (signed(-0.004), "+0.00"),
        (signed(0.0), "+0.00"),
        (signed_figures(-1.5e-7), "−1.5e-07"),
        (signed_figures(-0.0), "+0"),
        (log_ratio_percent(-0.02), "−2.0 %"),
        (log_ratio_percent(-1e-6), "+0.0 %"),
    ],
)
def test_a_number_has_its_digits_and_a_difference_its_sign(text: str, wanted: str) -> None:
    assert text == wanted


def test_an_interval_stands_behind_its_number_where_there_is_one() -> None:
    assert with_interval(figures, 0.05, 0.04, 0.06) == "0.05 (0.04 to 0.06)"
    assert with_interval(signed, 0.05, -0.04, 0.06, BRACKETS) == "+0.05 [−0.04, +0.06]"
    assert with_interval(figures, 0.05, None, None) == "0.05"
    assert with_interval(figures, None, None, None) == "–"
    assert span(figures, 0.04, 0.06) == "0.04 to 0.06"
    assert span(figures, None, 0.06) == "–"


def test_an_error_is_in_percent_and_any_other_metric_in_its_own_unit() -> None:
    found = Estimate(mean=0.0414, sd=0.001, n=3, low=0.0384, high=0.0444)
    one = Estimate(mean=0.0414, sd=None, n=1, low=None, high=None)

    assert metric_title("test_error") == "test error %"
    assert estimate_text("test_error", found) == "4.14 (3.84 to 4.44)"
    assert estimate_text("test_error", one) == "4.14"
    assert estimate_text("test_error", None) == "–"
    assert metric_with_unit("test_error", 0.0414) == "4.14 %"
    assert metric_title("train_loss") == "train loss"
    assert estimate_text("train_loss", found) == "0.0414 ± 0.003"
    assert metric_with_unit("train_loss", 0.04142135) == "0.04142"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (0.0447213, "0.04472"),
        (128, "128"),
        (True, "True"),
        ("sgd", "sgd"),
        ([0.9, 0.999], "0.9 0.999"),
        ([[0, 1.0], [10, 0.0]], "0 1 10 0"),
    ],
)
def test_a_value_of_a_field_is_a_word(value: Any, text: str) -> None:
    assert word(value) == text


def test_settings_and_arms_are_named_by_their_values() -> None:
    arm = {"optimizer": "sgd", "gamma_c": None}

    assert settings_words(arm | {"lr": 0.123456}) == "optimizer sgd, gamma_c none, lr 0.1235"
    assert settings_words({"lr": 0.123456}, 6) == "lr 0.123456"
    assert arm_name(arm) == "sgd none"
    assert arm_name({}) == "all"
