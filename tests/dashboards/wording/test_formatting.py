"""How numbers, times and values look on a page."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dashboards.wording.formatting import (
    caption,
    config_value,
    difference,
    difference_with_interval,
    duration,
    estimate,
    interval,
    mean_text,
    moment,
    number,
    percent,
    quantity_value,
    ratio,
    sampled_value,
    shortened,
    symbol,
)
from sweeps.analysis.arms import Estimate
from sweeps.analysis.formatting import signed
from sweeps.figures.quantities import layer_order, quantity

THIN = "\N{NARROW NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.05"),
        (0.0447213, "0.04472"),
        (1.2e-06, "1.2e-6"),
        (123456.7, "1.235e5"),
        (48210.0, f"48{THIN}210"),
        (48210.7, f"48{THIN}211"),
        (1234.56, f"1{THIN}235"),
        (0.0, "0"),
        (-3, "-3"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_a_number_has_four_digits_and_no_noise(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.126, 2, "+0.13"),
        (-0.126, 2, "−0.13"),
        (-0.004, 2, "+0.00"),
        (-0.0004, 3, "+0.000"),
        (-0.0, 1, "+0.0"),
    ],
)
def test_a_difference_has_a_sign_unless_it_rounds_to_nothing(
    value: float, digits: int, text: str
) -> None:
    assert signed(value, digits) == text


def test_no_program_text_can_write_a_negative_nothing() -> None:
    """``z`` in a format turns −0.00 into 0.00; whoever writes a sign must have it."""
    root = Path(__file__).parents[3]
    packages = ("ndadam", "worker", "sweeps", "dashboards", "service", "benchmarks")
    files = [path for name in packages for path in (root / name).rglob("*.py")]
    files += (root / "dashboards" / "templates").rglob("*.html")
    bare = re.compile(r"\{[^{}\"]*:\+[0-9.]*[efg%]|%\+[0-9.]*[efg]")

    assert len(files) > 200
    assert [path.name for path in files if bare.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("validation_error", 0.01234, f"1.23{THIN}%"),
        ("validation_error", -0.00001, f"0.00{THIN}%"),
        ("test_error", None, "–"),
        ("train_loss", 0.01234, "0.01234"),
        ("effective_lr/conv5", 0.0102, "0.0102"),
    ],
)
def test_errors_are_percent_and_nothing_else_is(key: str, value: float | None, text: str) -> None:
    assert quantity_value(key, value) == text


@pytest.mark.parametrize(
    ("key", "mean", "low", "high", "text"),
    [
        ("validation_error", 0.0123, 0.0112, 0.0135, f"1.23 (1.12 to 1.35){THIN}%"),
        ("train_loss", 0.5, 0.4877, 0.5123, "0.5 ± 0.012"),
        ("validation_error", 0.0123, None, None, f"1.23{THIN}%"),
        ("validation_error", None, None, None, "–"),
    ],
)
def test_a_mean_carries_its_interval(
    key: str, mean: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert mean_text(key, mean, low, high) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.25, "2.2 s"),
        (42, "42 s"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18_720, "5 h 12 min"),
        (183_600, "2 d 3 h"),
        (None, "–"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (4711, "4711"),
        (600.0, "600"),
        (0.001, "0.001"),
        ([0.9, 0.999], "0.9, 0.999"),
        ("cosine", "cosine"),
        ([[0, 1.0], [10, 0.5]], "[[0, 1.0], [10, 0.5]]"),
    ],
)
def test_a_config_value_fits_in_one_line(value: Any, text: str) -> None:
    assert config_value(value) == text


def test_a_long_schedule_is_cut_short() -> None:
    assert len(config_value([[step, 0.5] for step in range(1000)])) <= 80


def test_a_moment_is_utc_and_machine_readable() -> None:
    at = datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))

    assert moment(at) == (
        '<time datetime="2026-01-02T03:04:05+00:00">2026-01-02 03:04:05 UTC</time>'
    )
    assert moment(at.astimezone(UTC)) == moment(at)


def test_progress_is_whole_percent() -> None:
    assert percent(0.314) == f"31{THIN}%"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (0.195167, "0.1952"),
        (2.0, "2"),
        (1e-7, "1e-7"),
        (True, "yes"),
        ("sgd", "sgd"),
    ],
)
def test_a_sampled_value_has_four_digits_or_a_word(value: object, text: str) -> None:
    assert sampled_value(value) == text


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert shortened("walk-optimizers sgd #0", 22) == "walk-optimizers sgd #0"
    assert shortened("a-very-long-name-of-a-sweep sgd #12", 22) == "a-very-long-na…sgd #12"


def test_the_papers_symbols_are_used_where_there_are_any() -> None:
    assert symbol("alpha_v") == "α<sup>v</sup>"
    assert symbol("gamma_c") == "γ<sub>C</sub>"
    assert caption("gamma_c") == "BN-Softmax scale γ<sub>C</sub>"
    assert caption("optimizer") == "Optimizer"


def test_a_name_that_is_not_ours_is_escaped() -> None:
    assert symbol("<script>") == "&lt;script&gt;"
    assert caption("<b>") == "&lt;b&gt;"


def test_a_quantity_of_a_layer_names_both() -> None:
    what = quantity("effective_lr/conv5")

    assert what.axis == "effective learning rate, conv5 ‖Δw‖/‖w‖ (per step)"


def test_layers_are_counted_not_spelled() -> None:
    layers = ["conv10", "conv2", "linear1", "conv1"]

    assert sorted(layers, key=layer_order) == ["conv1", "conv2", "conv10", "linear1"]


def test_an_interval_and_a_difference_have_the_unit_of_their_metric() -> None:
    found = Estimate(mean=0.0414, sd=0.001, n=3, low=0.0384, high=0.0444)

    assert estimate("test_error", found) == f"4.14 (3.84 to 4.44){THIN}%"
    assert estimate("test_error", None) == "–"
    assert interval("test_error", 0.0384, 0.0444) == f"3.84{THIN}% to 4.44{THIN}%"
    assert interval("test_error", None, None) == "–"
    assert difference("test_error", -0.0012) == "−0.12"
    assert difference("train_loss", 0.00123456) == "+0.001235"
    text = difference_with_interval("test_error", -0.0012, -0.003, 0.0006)
    assert text == f"−0.12 (−0.30 to +0.06){THIN}points"
    assert difference_with_interval("train_loss", -0.1, -0.2, 0.1) == "−0.1 (−0.2 to 0.1)"
    assert ratio(-0.02) == f"−2.0{THIN}%"
