"""Plots of a sweep's page: grouped, coloured, filtered; and which point each value is of."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.dashboards.conftest import Seeded


def plot(client: TestClient, seeded: Seeded, name: str, **query: str) -> dict[str, Any]:
    answer = client.get(f"/sweeps/{seeded.sweep}/plots/{name}.json", params=query)
    assert answer.status_code == 200
    return dict(answer.json())


def named(figure: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in figure["data"] if trace.get("showlegend") is not False]


class TestCurves:
    def test_groups_have_a_mean_with_a_band_over_their_trials(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        figure = plot(client, seeded, "curves", group="optimizer")
        bands = [trace for trace in figure["data"] if trace.get("fill") == "toself"]

        # Two, three and five points of three seeds; those of one SGD point diverged early.
        assert sorted(named(figure)) == ["adam (6 trials)", "ndadam (15 trials)", "sgd (9 trials)"]
        assert len(bands) == 3
        lines = [trace for trace in figure["data"] if "customdata" in trace]
        assert "sd of 15 trials" in str([line["customdata"][0] for line in lines])

    @pytest.mark.parametrize("group", ["gamma_c", "seed", "alpha_v"])
    def test_any_field_makes_groups(self, client: TestClient, seeded: Seeded, group: str) -> None:
        names = named(plot(client, seeded, "curves", group=group))

        assert len(names) >= 3
        assert ("not used" in names[-1]) is (group == "alpha_v")

    def test_groups_are_drawn_over_steps_alone(self, client: TestClient, seeded: Seeded) -> None:
        figure = plot(client, seeded, "curves", group="seed", x="time")
        assert figure == {"empty": "Groups are drawn over steps: choose steps, or no group."}

    def test_curves_of_points_are_coloured_by_a_field(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        figure = plot(client, seeded, "curves", colour="optimizer")
        lines = [trace for trace in figure["data"] if "meta" in trace]
        colours: dict[str, set[str]] = {}
        for line in lines:
            colours.setdefault(line["name"].split(" · ")[1], set()).add(line["line"]["color"])

        assert all(len(some) == 1 for some in colours.values())
        assert len({next(iter(some)) for some in colours.values()}) == len(colours) > 1
        # Those of one colour are told apart by their strokes.
        assert len({(one["line"]["color"], one["line"]["dash"]) for one in lines}) == len(lines)

    def test_only_trials_that_fit_are_drawn_and_the_plot_says_so(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        figure = plot(client, seeded, "curves", where="optimizer = sgd and seed = 1")
        title = figure["layout"]["xaxis"]["title"]["text"]

        assert {name.split(" · ")[1] for name in named(figure)} == {"sgd"}
        assert title.endswith("<br>only trials that fit: optimizer = sgd and<br>seed = 1")
        assert "one seed" in str(figure["data"][-1]["customdata"][0])
        nothing = plot(client, seeded, "curves", where="seed = 7")
        assert nothing == {"empty": "No trial fits the condition."}
        wrong = plot(client, seeded, "curves", where="nope = 7")
        assert wrong["empty"].startswith("There is no field 'nope'")


class TestParallel:
    def test_points_that_do_not_fit_are_faint(self, client: TestClient, seeded: Seeded) -> None:
        figure = plot(client, seeded, "parallel", where="optimizer = sgd")
        faint = figure["data"][0]

        assert faint["name"] == "left out"
        shown = {p for trace in figure["data"][1:] for p in trace["meta"]["points"]}
        assert len(shown) == 2  # and one that diverged, which has no mean
        assert not shown & set(faint["meta"]["points"])

    def test_each_axis_says_what_a_brush_over_it_means(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        axes = {axis["field"]: axis for axis in plot(client, seeded, "parallel")["brush"]}

        assert [word for _, word in axes["optimizer"]["words"]] == ['"adam"', '"ndadam"', '"sgd"']
        assert axes["alpha_v"]["log"] is True
        assert axes["alpha_v"]["unused"] < 0
        # A fraction, as conditions take it, though the page shows percent.
        assert axes["point_mean"]["high"] < 1

    def test_lines_are_coloured_by_a_field(self, client: TestClient, seeded: Seeded) -> None:
        assert named(plot(client, seeded, "parallel", colour="optimizer")) == [
            "adam",
            "ndadam",
            "sgd",
        ]


class TestMarks:
    @pytest.mark.parametrize("name", ["curves", "sensitivity/gamma_c", "parallel", "contour"])
    def test_every_plot_says_which_point_a_value_is_of(
        self, client: TestClient, seeded: Seeded, name: str
    ) -> None:
        traces = [t for t in plot(client, seeded, name)["data"] if t.get("meta")]

        assert traces
        for trace in traces:
            points, each = trace["meta"]["points"], trace["meta"]["each"]
            assert all(point.isdecimal() for point in points)
            if each:
                assert len(trace["x"]) == len(points) * each

    def test_sensitivity_is_coloured_by_another_field(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        names = named(plot(client, seeded, "sensitivity/gamma_c", colour="lambda_c"))
        assert any(" to " in name for name in names)
