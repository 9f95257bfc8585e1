"""Trends over one field: where they are drawn, and what they are the mean of."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboards.plots.scales import scale_of
from dashboards.plots.sweep import sensitivity
from dashboards.sweep_pages.results import MAX_SETTINGS, settings, trend
from dashboards.sweep_pages.sweep import _sensitivity_note
from dashboards.wording.pair_note import pair_note
from sweeps.analysis.verdicts import Sample, judged, sorted_pairs
from sweeps.records import Point, Sweep, TrialState
from tests.dashboards.conftest import Seeded

LOG = {"kind": "float", "low": 0.001, "high": 1.0, "log": True}


def point(number: int, value: float | str, mean: float | None) -> Point:
    params = {"alpha_v": value}
    return Point("s", number, params, mean, 0.001, 3, TrialState.COMPLETE)


@pytest.fixture
def sweep(seeded: Seeded) -> Sweep:
    """A random sweep over alpha_v alone."""
    return with_spec(seeded.store.get_sweep(seeded.sweep), space={"alpha_v": LOG})


def with_spec(sweep: Sweep, **changes: Any) -> Sweep:
    return replace(sweep, spec={**sweep.spec, **changes})


#: Two points in each half of three decades.
SPREAD = [
    point(number, 10 ** (-3 + number / 4 + 0.12), 0.02 + 0.001 * number) for number in range(12)
]


def test_a_bin_s_mean_is_the_mean_of_its_points(sweep: Sweep) -> None:
    found = trend(sweep, SPREAD, "alpha_v")

    assert [part.n for part in found] == [2] * 6
    assert [part.mean for part in found] == pytest.approx(
        [(a.mean + b.mean) / 2 for a, b in zip(SPREAD[::2], SPREAD[1::2], strict=True)]  # type: ignore[operator]
    )
    assert found[0].value == pytest.approx(10**-2.75)
    assert all(
        part.low is not None and part.high is not None and part.low < part.mean < part.high
        for part in found
    )


@pytest.mark.parametrize(
    "changes",
    [{"sampler": "tpe"}, {"sampler": "gp"}, {"scheduler": {"kind": "asha", "min_steps": 1}}],
)
def test_a_search_that_looks_at_results_has_no_trend(sweep: Sweep, changes: dict[str, Any]) -> None:
    assert trend(with_spec(sweep, **changes), SPREAD, "alpha_v") == []


def test_a_choice_that_may_be_off_has_a_place_for_that(sweep: Sweep) -> None:
    def off_or(number: int, value: float | None) -> Point:
        return Point("s", number, {"gamma_c": value}, 0.02, 0.001, 3, TrialState.COMPLETE)

    unset = Point("s", 9, {}, 0.02, 0.001, 3, TrialState.COMPLETE)
    points = [off_or(0, None), off_or(1, 2.5), off_or(2, None), off_or(3, 1.0), unset]
    domain = {"kind": "choice", "values": [None, 1.0, 2.5]}
    choosing = with_spec(sweep, space={"gamma_c": domain})

    # A point that does not use the field at all is not one that has it switched off.
    marks = settings(choosing, points, "gamma_c")
    assert [mark.value for mark in marks] == ["none", "2.5", "none", "1"]
    assert [(part.value, part.n) for part in trend(choosing, points, "gamma_c")] == [
        ("none", 2),
        ("1", 1),
        ("2.5", 1),
    ]


def test_choices_that_differ_late_have_places_of_their_own_in_the_order_of_size(
    sweep: Sweep,
) -> None:
    values = (20000.0, 0.123451, None, 0.123452, 3000.0)
    domain = {"kind": "choice", "values": list(values)}
    points = [
        Point("s", number, {"gamma_c": value}, 0.02, 0.001, 3, TrialState.COMPLETE)
        for number, value in enumerate(values)
    ]
    marks = settings(with_spec(sweep, space={"gamma_c": domain}), points, "gamma_c")
    drawn = sensitivity("gamma_c", "test_error", marks, [], log=False, selected=None)
    order = ["none", "0.123451", "0.123452", "3000", "20000"]

    assert drawn.figure["layout"]["xaxis"]["categoryarray"] == order
    assert scale_of("gamma_c", values, log=False).words == tuple(order)


@pytest.mark.parametrize("count", [1, 5, 8])
def test_values_that_were_tried_once_have_no_line_through_them(sweep: Sweep, count: int) -> None:
    assert trend(sweep, SPREAD[:count], "alpha_v") == []


def test_a_line_through_two_means_is_not_drawn(sweep: Sweep) -> None:
    # Ten values in two bins.
    points = [point(number, 10 ** (-2.9 + number / 12), 0.02) for number in range(10)]

    assert trend(sweep, points, "alpha_v") == []


def test_choices_have_a_mean_each(sweep: Sweep) -> None:
    words = with_spec(sweep, space={"alpha_v": {"kind": "choice", "values": ["a", "b"]}})
    points = [point(0, "b", 0.04), point(1, "a", 0.01), point(2, "a", 0.03), point(3, "b", None)]
    found = trend(words, points, "alpha_v")

    assert [(part.value, part.mean, part.n) for part in found] == [
        ("a", pytest.approx(0.02), 2),
        ("b", pytest.approx(0.04), 1),
    ]
    assert found[1].low is None


def test_of_very_many_points_an_even_part_and_the_best_are_drawn(sweep: Sweep) -> None:
    many = [point(number, 0.01, 0.1) for number in range(3 * MAX_SETTINGS)]
    best = replace(sweep, best={"point": 4, "params": {}, "mean": 0.1, "sd": 0.0, "n": 3})
    drawn = settings(best, many, "alpha_v")

    assert len(drawn) <= MAX_SETTINGS + 1
    assert 4 in [setting.point for setting in drawn]


class TestPairs:
    def test_the_page_says_that_an_interval_is_its_pair_s_own_and_p_is_holm_s(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        for address in (f"/sweeps/{seeded.sweep}", f"/compare?arm={seeded.sweep}"):
            text = client.get(address).text

            assert "95 % interval of the pair" in text
            assert "p, all pairs (Holm)" in text
            assert "Each interval holds for its pair alone; p is corrected for all 3 pairs" in text

    def test_an_interval_may_exclude_zero_beside_not_shown(self) -> None:
        # Three arms of three seeds: p = 0.03 alone, 0.09 after Holm.
        arms = {"a": [1.0, 1.1, 1.2], "b": [1.3, 1.4, 1.52], "c": [1.15, 1.25, 1.33]}
        config: dict[str, list[Any]] = {}
        samples = [Sample(k, "train_loss", v, [0, 1, 2], config) for k, v in arms.items()]
        pairs, _ = sorted_pairs(samples)

        found = judged(pairs)[0]

        assert found.difference.high < 0
        assert found.verdict == "not shown"

    def test_a_single_pair_needs_no_word_on_it(self) -> None:
        assert pair_note(1) == ""


class TestSensitivityNote:
    def test_a_mean_is_promised_where_one_is_drawn(self, sweep: Sweep) -> None:
        two = with_spec(sweep, space={"alpha_v": LOG, "gamma_c": LOG})

        assert "grey is the mean" in _sensitivity_note(sweep, trends=1)
        assert "grey" not in _sensitivity_note(sweep, trends=0)
        assert "too few points yet" in _sensitivity_note(sweep, trends=0)
        assert _sensitivity_note(two, trends=1).endswith("where there are enough")

    def test_three_points_have_none(self, sweep: Sweep) -> None:
        points = [point(n, 0.001 * 3**n, 0.1) for n in range(3)]

        assert trend(sweep, points, "alpha_v") == []
