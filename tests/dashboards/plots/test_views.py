"""Curves as a reader asks for them: smoothed, on other scales, over other things than steps."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboards.plots.sweep import learning_curves
from dashboards.plots.views import Places, View, exponential_mean, time_unit
from sweeps.figures.sweep import Curve
from tests.dashboards.conftest import Seeded

CURVE = Curve("0 · ndadam", [10, 20, 30], [0.5, 0.1, 0.3], [0.1, 0.02, 0.03], [3, 3, 3])


def lines(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace.get("fill") is None]


class TestSmoothing:
    def test_it_is_an_exponential_mean_without_the_bias_of_its_start(self) -> None:
        # By hand: 4; (0.5·4 + 0.5·2·... ) as sums of weights 1/2, 1/4, … over their total.
        assert exponential_mean([4.0, 1.0, 1.0], 0.5) == [
            4.0,
            pytest.approx((0.25 * 4 + 0.5 * 1) / 0.75),
            pytest.approx((0.125 * 4 + 0.25 * 1 + 0.5 * 1) / 0.875),
        ]

    def test_a_constant_stays_and_a_gap_is_a_gap(self) -> None:
        assert exponential_mean([2.0, None, 2.0], 0.97) == [2.0, None, pytest.approx(2.0)]

    def test_no_weight_changes_nothing(self) -> None:
        assert exponential_mean([3.0, 1.0], 0.0) == [3.0, 1.0]

    def test_the_plot_states_it_and_keeps_what_was_reported(self) -> None:
        plot = learning_curves("train_loss", [CURVE], View(smooth="0.9"))
        faint, smooth = lines(plot.figure)

        assert faint["y"] == [0.5, 0.1, 0.3]
        assert faint["showlegend"] is False
        assert smooth["y"] == exponential_mean([0.5, 0.1, 0.3], 0.9)
        assert (
            "smoothed, weight 0.9; faint: as reported"
            in (plot.figure["layout"]["xaxis"]["title"]["text"])
        )
        # The table holds what was reported, whatever is drawn.
        assert plot.csv().splitlines()[1] == "0 · ndadam,10,0.5,0.1,3"


class TestScales:
    @pytest.mark.parametrize(("y", "kind"), [("linear", None), ("log", "log")])
    def test_the_y_axis_is_what_was_asked_for(self, y: Any, kind: str | None) -> None:
        wide = Curve("a", [1, 2], [0.5, 0.001], [None, None], [1, 1])

        axis = learning_curves("train_loss", [wide], View(y=y)).figure["layout"]["yaxis"]

        assert axis.get("type") == kind

    def test_steps_can_be_on_a_log_axis(self) -> None:
        layout = learning_curves("train_loss", [CURVE], View(x="log-step")).figure["layout"]

        assert layout["xaxis"]["type"] == "log"

    def test_values_lie_where_they_belong_and_those_without_a_place_are_left_out(self) -> None:
        places = Places("epochs", [lambda step: None if step == 20 else step / 10])

        plot = learning_curves("train_loss", [CURVE], View(x="epoch"), places)
        [line] = lines(plot.figure)

        assert (line["x"], line["y"]) == ([1.0, 3.0], [0.5, 0.3])
        assert plot.figure["layout"]["xaxis"]["title"]["text"] == "epochs"
        assert "epochs" in line["hovertemplate"]

    @pytest.mark.parametrize(
        ("seconds", "unit"), [(0, "s"), (24, "s"), (179, "s"), (600, "min"), (7200, "h")]
    )
    def test_times_have_the_unit_that_suits_them(self, seconds: float, unit: str) -> None:
        assert time_unit(seconds)[0] == unit


class TestPages:
    def figure(self, client: TestClient, address: str) -> dict[str, Any]:
        found = client.get(address)
        assert found.status_code == 200
        return dict(found.json())

    def test_curves_of_a_sweep_over_images_epochs_and_time(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        at = f"/sweeps/{seeded.sweep}/plots/curves.json?x="
        ends = {
            x: lines(self.figure(client, at + x))[0]["x"][-1]
            for x in ("step", "images", "epoch", "time")
        }

        # 600 steps of 64 images, 12 reports, one each epoch and 2.5 s after the other.
        assert ends == pytest.approx({"step": 600, "images": 38_400, "epoch": 12, "time": 30})

    def test_metrics_of_a_trial_too(self, client: TestClient, seeded: Seeded) -> None:
        at = f"/sweeps/{seeded.sweep}/trials/0/plots/metric/errors.json"

        assert lines(self.figure(client, f"{at}?x=time"))[0]["x"][0] == pytest.approx(2.5)
        assert lines(self.figure(client, f"{at}?x=images&smooth=0.6"))[-1]["x"] == [38_400]

    def test_what_is_no_choice_is_not_found(self, client: TestClient, seeded: Seeded) -> None:
        at = f"/sweeps/{seeded.sweep}/plots/curves.json"

        for query in ("x=wall", "y=sqrt", "smooth=2"):
            assert client.get(f"{at}?{query}").status_code == 404

    def test_the_address_of_a_page_holds_the_view(self, client: TestClient, seeded: Seeded) -> None:
        query = "curves.x=time&curves.smooth=0.9&curves.metric=train_loss&contour.x=lambda_c"
        html = client.get(f"/sweeps/{seeded.sweep}?{query}&curves.y=nonsense").text

        assert f"/sweeps/{seeded.sweep}/plots/curves.json?x=time&amp;smooth=0.9&amp;metric" in html
        assert "metric=train_loss" in html
        assert "plots/contour.json?x=lambda_c" in html
        # The form that keeps the view under a name alone has the address as it came.
        assert html.count("nonsense") == 1
