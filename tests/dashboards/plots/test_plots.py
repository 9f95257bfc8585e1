"""Plot functions, on their data."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dashboards
from dashboards.match.plots import implied_rates, match_curves
from dashboards.plots.sweep import Trend, learning_curves, sensitivity
from dashboards.plots.trial import layer_curves, metric_curves
from dashboards.sweep_pages.plots import METRIC_PLOTS, curve_labels
from sweeps.figures.colours import OPTIMIZER_COLOURS, PALETTE
from sweeps.figures.match import is_inside
from sweeps.figures.quantities import LAYER_QUANTITIES, quantity
from sweeps.figures.sweep import MOST_WITH_BARS, Curve, Setting
from sweeps.match.result import Curves
from sweeps.records import Point, TrialState
from tests.dashboards.seeding_match import match_result

CURVE = Curve("0 · ndadam", [10, 20], [0.5, 0.02], [0.1, 0.03], [3, 3])


def lines(figure: dict[str, Any]) -> list[dict[str, Any]]:
    """The traces that are no bands."""
    return [trace for trace in figure["data"] if trace.get("fill") is None]


def bands(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace.get("fill") is not None]


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, of two colours such as ``#0072B2``."""

    def luminance(colour: str) -> float:
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_lines_of_optimizers_stand_out_on_both_papers_and_no_figure_colours_its_text() -> None:
    css = (Path(dashboards.__file__).parent / "static" / "pages.css").read_text()
    light, dark = re.findall(r"--paper: (#[0-9a-f]{6});", css)

    for ink in OPTIMIZER_COLOURS.values():
        assert min(contrast(ink, light), contrast(ink, dark)) >= 3
    # The page sets the colour of all text, by its theme: marks may be darker than text may be.
    figure = json.dumps(learning_curves("validation_error", [CURVE]).figure["layout"])
    assert "color" not in figure


class TestLearningCurves:
    def test_an_error_is_drawn_in_percent_and_exported_as_a_fraction(self) -> None:
        plot = learning_curves("validation_error", [CURVE])

        assert lines(plot.figure)[0]["y"] == [50.0, 2.0]
        assert plot.figure["layout"]["yaxis"]["title"]["text"] == "validation error (%)"
        assert [row["mean"] for row in table(plot.csv())] == ["0.5", "0.02"]

    def test_symbols_of_a_label_are_text_in_the_table(self) -> None:
        named = replace(CURVE, label="12 · adam · α<sub>0</sub> 0.005")

        rows = table(learning_curves("validation_error", [named]).csv())

        assert {row["point"] for row in rows} == {"12 · adam · α₀ 0.005"}

    def test_the_band_is_one_deviation_and_stays_above_zero(self) -> None:
        [band] = bands(learning_curves("validation_error", [CURVE]).figure)

        # Along the upper edge, and back along the lower one.
        assert band["x"] == [10, 20, 20, 10]
        assert band["y"] == pytest.approx([60.0, 5.0, 0.2, 40.0])

    def test_the_band_lies_around_a_negative_curve_too(self) -> None:
        ratio = Curve("0", [10], [-0.5], [0.1], [3])

        [band] = bands(learning_curves("projection_ratio/conv5", [ratio]).figure)

        assert band["y"] == pytest.approx([-0.4, -0.6])

    def test_a_single_seed_has_no_band(self) -> None:
        single = Curve("0", [10], [0.5], [None], [1])
        plot = learning_curves("train_loss", [single])

        assert bands(plot.figure) == []
        assert table(plot.csv()) == [
            {"point": "0", "step": "10", "mean": "0.5", "sd": "", "seeds": "1"}
        ]

    def test_one_curve_of_each_optimizer_has_its_colour(self) -> None:
        names = ("sgd", "ndadam")
        each = [Curve(name, [1], [0.5], [None], [1], name) for name in names]
        two = [Curve(str(n), [1], [0.5], [None], [1], "sgd") for n in range(2)]

        inks = [t["line"]["color"] for t in lines(learning_curves("train_loss", each).figure)]
        assert inks == [OPTIMIZER_COLOURS[name] for name in names]
        same = [t["line"]["color"] for t in lines(learning_curves("train_loss", two).figure)]
        assert same == list(PALETTE[:2])

    def test_curves_beyond_the_colours_differ_in_their_dash(self) -> None:
        many = [Curve(str(n), [1], [0.5], [None], [1]) for n in range(len(PALETTE) + 1)]
        drawn = lines(learning_curves("train_loss", many).figure)

        styles = [(trace["line"]["color"], trace["line"]["dash"]) for trace in drawn]
        assert len(set(styles)) == len(many)

    def test_long_labels_make_the_figure_higher_and_not_the_plot_smaller(self) -> None:
        def height(label: str) -> int:
            curves = [Curve(f"{n} {label}", [1], [0.5], [None], [1]) for n in range(6)]
            found: int = learning_curves("train_loss", curves).figure["layout"]["height"]
            return found

        assert height("adam") == height("<sup>adam</sup>") == 380
        assert height("a name of many words " * 4) > 450


class TestSensitivity:
    SETTINGS = (
        Setting(0, 0.01, 0.04, 0.001, 3, "ndadam"),
        Setting(1, 0.1, 0.03, None, 1, "ndadam"),
        Setting(2, 0.05, 0.02, 0.002, 3, "sgd"),
    )

    def test_each_optimizer_has_its_colour_and_the_selected_point_a_star(self) -> None:
        plot = sensitivity("lr", "validation_error", self.SETTINGS, [], log=True, selected=2)

        ndadam, sgd, star = plot.figure["data"]
        assert ndadam["marker"]["color"] != sgd["marker"]["color"]
        # The legend shows what a star means, and a plain mark for each optimizer.
        assert [star["name"], star["x"], star["y"]] == ["selected", [0.05], [2.0]]
        assert star["marker"]["symbol"] == "star-open"
        assert not {"symbol"} & (ndadam["marker"].keys() | sgd["marker"].keys())
        assert ndadam["error_y"]["array"] == [0.1, 0.0]
        assert ndadam["customdata"][1] == [1, "% (one seed)"]

    def test_of_hundreds_of_points_deviations_are_in_the_hover_text_alone(self) -> None:
        many = [Setting(n, 0.01, 0.04, 0.001, 3, "ndadam") for n in range(MOST_WITH_BARS + 1)]
        few, *_ = sensitivity("lr", "test_error", many[1:], [], log=True, selected=3).figure["data"]
        drawn, star = sensitivity("lr", "test_error", many, [], log=True, selected=3).figure["data"]

        assert len(few["error_y"]["array"]) == MOST_WITH_BARS
        assert "error_y" not in drawn
        assert drawn["customdata"][0] == [0, "± 0.1 % (sd of 3 seeds)"]
        assert star["customdata"] == [[3, "± 0.1 % (sd of 3 seeds)"]]

    def test_the_marks_of_hundreds_of_points_are_small_whatever_their_optimizer(self) -> None:
        many = [
            Setting(n, 0.01, 0.04, 0.001, 3, ("adam", "sgd")[n % 2])
            for n in range(MOST_WITH_BARS + 1)
        ]
        few = sensitivity("lr", "test_error", many[1:], [], log=True, selected=None)
        drawn = sensitivity("lr", "test_error", many, [], log=True, selected=None)

        sizes = [[t["marker"]["size"] for t in plot.figure["data"]] for plot in (few, drawn)]
        assert sizes == [[8, 8], [5, 5]]

    def test_the_axis_is_logarithmic_where_the_domain_is(self) -> None:
        def axis(*, log: bool) -> dict[str, Any]:
            plot = sensitivity(
                "alpha_v", "validation_error", self.SETTINGS, [], log=log, selected=None
            )
            found: dict[str, Any] = plot.figure["layout"]["xaxis"]
            return found

        assert axis(log=True)["type"] == "log"
        assert "type" not in axis(log=False)
        assert axis(log=True)["title"]["text"] == (
            "learning rate of weight vectors α<sup>v</sup> (per step)"
        )

    def test_words_have_places_in_order_and_no_line_between_them(self) -> None:
        words = ("10", "2.5", "none", "fixed")
        points = [Setting(n, word, 0.04, 0.001, 3, "ndadam") for n, word in enumerate(words)]
        trend = [Trend(word, 0.04, 0.03, 0.05, 2) for word in words]
        plot = sensitivity("gamma_c", "test_error", points, trend, log=False, selected=None)

        axis = plot.figure["layout"]["xaxis"]
        assert axis["type"] == "category"
        assert axis["categoryarray"] == ["none", "2.5", "10", "fixed"]
        assert plot.figure["data"][0]["mode"] == "markers"

    def test_the_trend_shows_its_interval(self) -> None:
        trend = [Trend(0.01, 0.04, 0.03, 0.06, 5), Trend(0.1, 0.02, None, None, 1)]
        plot = sensitivity("lr", "test_error", self.SETTINGS, trend, log=True, selected=None)

        bars = plot.figure["data"][0]["error_y"]
        assert bars["array"] == pytest.approx([2.0, 0.0])
        assert bars["arrayminus"] == pytest.approx([1.0, 0.0])
        assert plot.figure["data"][0]["customdata"] == [[5, "(3 to 6)"], [1, ""]]

    def test_the_axis_fits_the_points_whatever_the_intervals_reach(self) -> None:
        wide = [Trend(0.01, 0.03, -5.0, 5.0, 2)]
        plot = sensitivity("lr", "test_error", self.SETTINGS, wide, log=True, selected=None)

        low, high = plot.figure["layout"]["yaxis"]["range"]
        assert 1.0 < low < 1.8
        assert 4.1 < high < 5.0

    @pytest.mark.parametrize(("log", "ends"), [(False, [0.05, 0.15]), (True, [-1.5, -0.5])])
    def test_a_single_value_lies_in_the_middle_of_its_axis(
        self, log: bool, ends: list[float]
    ) -> None:
        one = [Setting(3, 0.1, 0.02, None, 1, "sgd")]

        plot = sensitivity("lr", "test_error", one, [], log=log, selected=None)

        assert plot.figure["layout"]["xaxis"]["range"] == pytest.approx(ends)


class TestLabels:
    def test_they_say_what_tells_the_curves_apart_and_no_more(self) -> None:
        def point(number: int, **params: object) -> Point:
            return Point("s", number, params, 0.1, None, 1, TrialState.COMPLETE)

        fixed = point(1, optimizer="ndadam", bn_scale="fixed", gamma_c=2.5, depth=22)
        free = point(4, optimizer="ndadam", bn_scale="trainable", depth=22)

        assert curve_labels([fixed, free], "images") == {
            1: "1 · ndadam · BN scales fixed · γ<sub>C</sub> 2.5",
            4: "4 · ndadam · BN scales trainable",
        }

    def test_a_choice_that_is_off_and_a_tiny_rate_read_as_in_the_tables(self) -> None:
        def point(number: int, gamma_c: float | None) -> Point:
            params = {"lr": 1.23456e-5, "gamma_c": gamma_c}
            return Point("s", number, params, 0.1, None, 1, TrialState.COMPLETE)

        assert list(curve_labels([point(0, None), point(1, 2.5)], "images").values()) == [
            "0 · α<sub>0</sub> 1.23e-5 · γ<sub>C</sub> none",
            "1 · α<sub>0</sub> 1.23e-5 · γ<sub>C</sub> 2.5",
        ]


class TestTrialPlots:
    def test_metrics_of_one_unit_share_an_axis(self) -> None:
        plot = metric_curves("train_error", {"train_error": [(1, 0.4)], "test_error": [(1, 0.5)]})

        assert [trace["y"] for trace in plot.figure["data"]] == [[40.0], [50.0]]
        assert plot.figure["layout"]["yaxis"]["title"]["text"] == "error (%)"
        assert plot.figure["layout"]["showlegend"]

    def test_layers_run_from_the_stem_and_each_has_its_colour(self) -> None:
        layers = {f"conv{n}": [(1, 0.01 * n), (2, 0.001)] for n in (10, 2, 1)}
        plot = layer_curves("effective_lr", layers)

        assert [trace["name"] for trace in plot.figure["data"]] == ["conv1", "conv2", "conv10"]
        assert len({trace["line"]["color"] for trace in plot.figure["data"]}) == 3
        assert table(plot.csv())[0] == {"layer": "conv1", "step": "1", "effective_lr": "0.01"}

    def test_a_layer_that_would_flatten_the_others_gets_axes_of_its_own_as_all_do(self) -> None:
        layers = {f"conv{n}": [(1, -0.1 * n), (2, 0.1 * n)] for n in range(1, 4)}
        big = {**layers, "conv4": [(1, -60.0), (2, 60.0)]}

        apart = layer_curves("projection_ratio", big).figure
        together = layer_curves("projection_ratio", layers).figure

        assert [trace["yaxis"] for trace in apart["data"]] == ["y", "y2", "y3", "y4"]
        assert [label["text"] for label in apart["layout"]["annotations"]] == list(big)
        assert "a scale for each layer" in apart["layout"]["title"]["text"]
        assert "yaxis2" not in together["layout"]

    def test_the_reader_chooses_one_pair_of_axes_or_many(self) -> None:
        layers = {f"conv{n}": [(1, -0.1), (2, 60.0 if n == 1 else 0.1)] for n in range(1, 4)}

        assert "yaxis2" not in layer_curves("projection_ratio", layers, "together").figure["layout"]
        rates = {f"conv{n}": [(1, 0.1), (2, 0.2)] for n in range(1, 4)}
        assert "yaxis3" in layer_curves("effective_lr", rates, "apart").figure["layout"]


class TestMatchPlots:
    def plot(self, **changes: Any) -> Any:
        result = match_result()
        curves: Curves = {**result["curves"], **changes}  # type: ignore[typeddict-item]
        return match_curves(
            curves,
            tolerance=0.05,
            verdict=result["verdict"],
            source_name="sgd",
            target_name="ndadam",
        )

    def test_the_band_is_the_tolerance_around_the_source(self) -> None:
        steps = [0, 1]
        plot = self.plot(
            steps=steps,
            source=[0.01, 0.02],
            target=[0.01, 0.01],
            target_low=[0.01, 0.01],
            target_high=[0.01, 0.01],
            formula=[],
        )
        band = bands(plot.figure)[0]

        assert band["y"] == pytest.approx([0.0105, 0.021, 0.02 / 1.05, 0.01 / 1.05])

    def test_a_curve_that_falls_to_nothing_opens_on_its_larger_part(self) -> None:
        """The axis begins at 1.2 times below a five-hundredth of the largest value."""
        plot = self.plot(
            steps=[0, 1],
            source=[0.012, 1e-9],
            target=[0.01, 1e-9],
            target_low=[0.01, 1e-9],
            target_high=[0.01, 1e-9],
            formula=[],
        )
        axis = plot.figure["layout"]["yaxis"]

        assert axis["range"] == pytest.approx([math.log10(2e-5), math.log10(0.0156)])
        assert "0.001" in axis["ticktext"]

    def test_the_ratio_is_drawn_thick_exactly_where_it_is_inside(self) -> None:
        plot = self.plot()
        result = match_result()
        curves = result["curves"]
        assert curves is not None
        [thick] = [t for t in plot.figure["data"] if t.get("name") == "within ±5 %"]
        expected = [
            is_inside(s, t, 0.05) for s, t in zip(curves["source"], curves["target"], strict=True)
        ]

        assert [value is not None for value in thick["y"]] == expected
        assert 0 < sum(expected) < len(expected)

    def test_the_window_of_the_verdict_is_shaded(self) -> None:
        [shape] = self.plot().figure["layout"]["shapes"]

        assert (shape["x0"], shape["x1"]) == (300, 5700)

    def test_before_the_target_has_run_only_the_source_is_drawn(self) -> None:
        plot = self.plot(target=[], target_low=[], target_high=[])

        names = [trace["name"] for trace in plot.figure["data"]]
        assert names == ["sgd ± 5 %", "source: sgd", "closed form with lag"]
        # And has all of the plot, until there is a ratio to draw below it.
        assert plot.figure["layout"]["yaxis"]["domain"] == [0, 1]
        assert "yaxis2" not in plot.figure["layout"]
        assert self.plot().figure["layout"]["yaxis2"]["domain"][1] < 0.36
        assert table(plot.csv())[0]["target"] == ""

    @pytest.mark.parametrize(
        ("source", "target", "inside"),
        [(1.049, 1.0, True), (1.0, 1.049, True), (1.06, 1.0, False), (0.0, 1.0, False)],
    )
    def test_inside_is_a_ratio_both_ways(self, source: float, target: float, inside: bool) -> None:
        assert is_inside(source, target, 0.05) is inside

    def test_each_layer_shows_its_rate_class_and_the_rate_of_the_match(self) -> None:
        plot = implied_rates(match_result()["layers"], rate_name="alpha_v", rate=0.0492)

        assert {trace["name"] for trace in plot.figure["data"]} == {
            "invariant",
            "jointly invariant",
            "neither",
            "eps limited",
        }
        assert plot.figure["layout"]["xaxis"]["categoryarray"][-1] == "conv10"
        assert plot.figure["layout"]["shapes"][0]["y0"] == 0.0492
        [row, *_] = table(plot.csv())
        assert float(row["low"]) < float(row["implied_alpha_v"]) < float(row["high"])
        bars = plot.figure["data"][0]["error_y"]
        assert bars["array"][0] == float(row["high"]) - float(row["implied_alpha_v"])

    def test_a_layer_of_one_seed_has_no_interval(self) -> None:
        rows = [
            {**row, "implied_low": None, "implied_high": None} for row in match_result()["layers"]
        ]
        plot = implied_rates(rows, rate_name="alpha_v", rate=None)  # type: ignore[arg-type]

        assert {row["low"] for row in table(plot.csv())} == {""}
        assert not any(plot.figure["data"][0]["error_y"]["array"])


def test_every_metric_that_is_drawn_has_words_of_its_own() -> None:
    drawn = [name for _, names in METRIC_PLOTS.values() for name in names]

    for key in [*drawn, *LAYER_QUANTITIES]:
        assert quantity(key).axis != key.replace("_", " ") or not quantity(key).unit, key
        assert quantity(key).name, key


def test_no_figure_holds_a_number_that_json_has_no_word_for() -> None:
    result = match_result()
    plot = implied_rates(result["layers"], rate_name="alpha_v", rate=None)

    assert all(math.isfinite(v) for trace in plot.figure["data"] for v in trace["y"])
