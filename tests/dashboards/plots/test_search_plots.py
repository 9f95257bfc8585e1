"""Plots of a whole search, by their data: what is drawn is what was measured."""

import math
import random
from datetime import UTC, datetime, timedelta

import pytest

from dashboards.plots.contour import CELLS, contour_plot, surface
from dashboards.plots.importance import importance_plot, variance_plot
from dashboards.plots.parallel import MAX_LINES, UNUSED, parallel_plot
from dashboards.plots.scales import scale_of
from dashboards.plots.timeline import LEAST_BAR, MOST_LANES, lanes_of, timeline_plot
from dashboards.wording.importance_notes import FEWEST_POINTS, importance_notes, why_no_importance
from sweeps.analysis.variance_share import VarianceShare
from sweeps.records import Point, Sweep, TrialState
from sweeps.store.queries.timeline import Span
from tests.sweeps.sweep_cases import stored_sweep

SPACE = {
    "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]},
    "alpha_v": {"kind": "float", "low": 0.01, "high": 1.0, "log": True},
    "gamma_c": {"kind": "choice", "values": [None, 1.0, 2.5]},
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def point(number: int, mean: float | None, **params: object) -> Point:
    state = TrialState.DIVERGED if mean is None else TrialState.COMPLETE
    return Point("a", number, params, mean, 0.001, 3, state)


def varying(spec: dict[str, object]) -> Sweep:
    """A sweep of which only its spec is read."""
    return stored_sweep(spec)


def span(trial: int, start: float, end: float | None, pid: int = 1, host: str = "a") -> Span:
    finished = None if end is None else START + timedelta(minutes=end)
    state = TrialState.RUNNING if end is None else TrialState.COMPLETE
    begun = START + timedelta(minutes=start)
    return Span(trial, 1, state, begun, finished, host, str(pid), "H100")


class TestScales:
    def test_a_log_scale_puts_the_geometric_mean_in_the_middle(self) -> None:
        scale = scale_of("alpha_v", [0.01, 1.0], log=True)

        assert scale.place(0.1) == pytest.approx(0.5)
        assert scale.value(0.5) == pytest.approx(0.1)

    def test_words_have_places_of_their_own_unset_first(self) -> None:
        scale = scale_of("gamma_c", [2.5, None, 1.0], log=True)

        assert [scale.place(value) for value in (None, 1.0, 2.5)] == [1 / 6, 0.5, 5 / 6]
        assert scale.place(3.0) is None

    def test_a_single_value_lies_in_the_middle(self) -> None:
        assert scale_of("depth", [10, 10], log=False).place(10) == 0.5


class TestParallel:
    points = (
        point(0, 0.02, optimizer="ndadam", alpha_v=0.1, gamma_c=None),
        point(1, 0.01, optimizer="sgd", gamma_c=2.5),
        point(2, None, optimizer="sgd", gamma_c=1.0),
    )

    def test_each_line_passes_every_axis_and_ends_at_the_objective(self) -> None:
        plot = parallel_plot(self.points, SPACE, "validation_error", "images", maximize=False)

        best = next(t for t in plot.figure["data"] if t["name"] == "best tenth")
        assert best["x"] == [0, 1, 2, 3, None]
        assert best["y"][-2:] == [0.0, None]
        assert plot.figure["layout"]["xaxis"]["ticktext"][-1] == "validation error (%)"

    def test_the_ends_of_an_axis_are_written_as_in_the_tables(self) -> None:
        tiny = [point(n, 0.1 * n, lambda_c=1.0914e-5 * (n + 1)) for n in range(2)]
        space = {"lambda_c": {"kind": "float", "low": 1e-6, "high": 1e-4, "log": True}}
        drawn = parallel_plot(tiny, space, "validation_error", "images", maximize=False).figure

        texts = [label["text"] for label in drawn["layout"]["annotations"]]
        assert texts[:3] == ["1.09e-5", "1.54e-5", "2.18e-5"]

    def test_an_axis_of_one_value_names_it_once_where_its_lines_pass(self) -> None:
        same = [point(n, 0.1 * (n + 1), gamma_c=2.5) for n in range(2)]
        space = {"gamma_c": {"kind": "choice", "values": [2.5]}}
        drawn = parallel_plot(same, space, "validation_error", "images", maximize=False).figure

        first, *_ = drawn["layout"]["annotations"]
        assert (first["text"], first["x"], first["y"]) == ("2.5", 0, 0.5)
        assert [label["x"] for label in drawn["layout"]["annotations"]].count(0) == 1

    def test_a_field_that_is_not_used_is_passed_below_its_axis(self) -> None:
        plot = parallel_plot(self.points, SPACE, "validation_error", "images", maximize=False)

        best = next(t for t in plot.figure["data"] if t["name"] == "best tenth")
        assert best["y"][1] == UNUSED
        assert "not used" in best["text"][1]

    def test_the_table_ranks_and_leaves_out_what_has_no_mean(self) -> None:
        rows = parallel_plot(self.points, SPACE, "validation_error", "images", maximize=False).rows

        assert [(row[0], row[1]) for row in rows] == [(1, 1), (0, 2)]

    def test_maximising_turns_the_ranks(self) -> None:
        rows = parallel_plot(self.points, SPACE, "validation_error", "images", maximize=True).rows

        assert [row[0] for row in rows] == [0, 1]

    def test_of_many_points_the_best_are_all_drawn(self) -> None:
        many = [point(n, n / 1e5, alpha_v=0.01 + n / 1e5) for n in range(10_000)]

        rows = parallel_plot(many, SPACE, "validation_error", "images", maximize=False).rows

        assert len(rows) <= MAX_LINES
        assert [row[0] for row in rows[:100]] == list(range(100))

    def test_without_results_there_is_nothing_to_draw(self) -> None:
        assert parallel_plot([], SPACE, "validation_error", "images", maximize=False).rows == []


class TestContour:
    def test_the_surface_finds_a_bowl_s_bottom_where_it_is(self) -> None:
        rng = random.Random(1)
        points = []
        for number in range(800):
            x, y = 10 ** rng.uniform(-2, 0), rng.uniform(0, 1)
            mean = 0.01 + 0.02 * (math.log10(x) + 1) ** 2 + 0.05 * (y - 0.25) ** 2
            points.append(point(number, mean, alpha_v=x, momentum=y))
        sides = (
            scale_of("alpha_v", [p.params["alpha_v"] for p in points], log=True),
            scale_of("momentum", [p.params["momentum"] for p in points], log=False),
        )

        found = surface(points, sides, [p.mean or 0.0 for p in points])

        lowest = min(
            (z, row, column)
            for row, line in enumerate(found.z)
            for column, z in enumerate(line)
            if z is not None
        )
        assert found.x[lowest[2]] == pytest.approx(0.1, rel=0.35)
        assert found.y[lowest[1]] == pytest.approx(0.25, abs=0.1)

    def test_a_constant_stays_constant(self) -> None:
        points = [
            point(n, 0.02, alpha_v=0.01 * (n + 1), alpha_s=0.1 * (n % 7 + 1)) for n in range(50)
        ]

        plot = contour_plot(points, "alpha_v", "alpha_s", "validation_error", log=(True, True))

        z = [value for row in plot.figure["data"][0]["z"] for value in row if value is not None]
        assert len(plot.figure["data"][0]["z"]) == CELLS
        assert z == pytest.approx([2.0] * len(z))

    def test_nothing_is_drawn_far_from_every_point(self) -> None:
        near = [point(n, 0.02, alpha_v=0.01 * (1 + n / 500), alpha_s=0.01) for n in range(400)]
        far = point(400, 0.02, alpha_v=1.0, alpha_s=1.0)

        plot = contour_plot(
            [*near, far], "alpha_v", "alpha_s", "validation_error", log=(True, True)
        )

        z = plot.figure["data"][0]["z"]
        assert z[0][0] is not None
        assert z[CELLS // 2][CELLS // 2] is None

    def test_points_without_both_fields_or_a_mean_are_left_out(self) -> None:
        points = [
            point(0, 0.02, alpha_v=0.1, alpha_s=0.1),
            point(1, 0.02, alpha_v=0.1),
            point(2, None, alpha_v=0.1, alpha_s=0.1),
            point(3, 0.02, alpha_v=None, alpha_s=0.1),
        ]

        plot = contour_plot(points, "alpha_v", "alpha_s", "validation_error", log=(True, True))

        assert [row[0] for row in plot.rows] == [0]
        assert plot.figure["layout"]["xaxis"]["type"] == "log"

    def test_the_better_end_is_blue_and_the_worst_tenth_sets_no_colour(self) -> None:
        points = [
            point(n, n / 10, alpha_v=0.01 * (1 + n), alpha_s=0.01 * (1 + n % 3)) for n in range(11)
        ]
        fields = ("alpha_v", "alpha_s", "score")

        low = contour_plot(points, *fields, log=(False, False)).figure["data"][0]
        high = contour_plot(points, *fields, log=(False, False), maximize=True).figure["data"][0]

        assert (low["zmin"], low["zmax"]) == (0.0, 0.9)
        assert "reversescale" not in low
        assert (high["zmin"], high["zmax"], high["reversescale"]) == (0.1, 1.0, True)


class TestImportance:
    def test_the_most_important_is_on_top_with_its_interval(self) -> None:
        rows = [VarianceShare("alpha_v", 0.6, 0.5, 0.7, 40), VarianceShare("lr", 0.1, 0, 0.3, 20)]

        plot = variance_plot(rows, "validation_error", "images")

        [bars] = plot.figure["data"]
        assert bars["x"] == [10.0, 60.0]
        assert bars["error_x"]["array"] == pytest.approx([20.0, 10.0])
        assert bars["error_x"]["arrayminus"] == pytest.approx([10.0, 10.0])
        assert plot.rows[0] == ("alpha_v", 0.6, 0.5, 0.7, 40)

    def test_importance_has_bars_for_each_branch_and_the_same_order_in_all(self) -> None:
        def row(optimizer: str, **fields: float) -> dict[str, object]:
            branch = {"optimizer": optimizer}
            return {"branch": branch, "points": 40, "quantile": 0.1, "fields": fields}

        plot = importance_plot(
            [row("sgd", lr=0.9, gamma_c=0.1), row("ndadam", gamma_c=1.0)], "images"
        )

        first, second = plot.figure["data"]
        assert first["x"] == [90.0, 10.0]
        assert (second["name"], second["x"]) == ("optimizer ndadam", [100.0])
        assert plot.figure["layout"]["yaxis"]["categoryarray"][-1] == "γ<sub>C</sub> "
        assert plot.rows[-1] == ("optimizer ndadam", "gamma_c", 1.0, 40)
        assert plot.columns == ("branch", "field", "importance", "points")

    def test_a_branch_that_is_shown_alone_is_named(self) -> None:
        row = {"branch": {"optimizer": "ndadam"}, "points": 40, "quantile": 0.1}

        alone = importance_plot([row | {"fields": {"alpha_v": 0.9, "gamma_c": 0.1}}], "images")
        whole = importance_plot(
            [row | {"branch": {}, "fields": {"alpha_v": 0.9, "gamma_c": 0.1}}], "images"
        )

        assert alone.figure["data"][0]["name"] == "optimizer ndadam"
        assert alone.figure["layout"]["showlegend"]
        assert not whole.figure["layout"]["showlegend"]

    def test_notes_say_of_which_branch_it_is_and_why_a_field_has_none(self) -> None:
        def rate(optimizer: str) -> dict[str, object]:
            return {"kind": "float", "low": 0.01, "high": 1.0, "when": {"optimizer": [optimizer]}}

        optimizers = {"kind": "choice", "values": ["sgd", "ndadam"]}
        spec = {
            "space": {
                "optimizer": optimizers,
                "lr": rate("sgd"),
                "alpha_v": rate("ndadam"),
                "alpha_s": rate("ndadam"),
            }
        }
        chooses, shown, alone = importance_notes(varying(spec))

        assert "optimizer chooses the branch and has none" in chooses
        assert shown == (
            "It is of optimizer ndadam (α<sup>v</sup>, α<sup>s</sup>), from 10 finished points of "
            "the branch on."
        )
        assert alone == (
            "None of optimizer sgd (varies α<sub>0</sub>): one field has no other to be compared "
            "with."
        )

    def test_names_in_notes_are_escaped_and_many_branches_are_counted(self) -> None:
        recipes = {"kind": "choice", "values": [f"<b>{n}" for n in range(9)]}
        momentum = {"kind": "float", "low": 0.1, "high": 0.9, "when": {"recipe": ["<b>0"]}}
        depth = {"kind": "int", "low": 10, "high": 28}
        lr = {"kind": "float", "low": 0.1, "high": 0.9}
        space = {"recipe": recipes, "momentum": momentum, "depth": depth, "lr": lr}
        _, shown = importance_notes(varying({"space": space}))

        assert "<b>" not in shown
        assert "and 3 more" in shown

    def test_a_space_without_branches_needs_no_note(self) -> None:
        domain = {"kind": "float", "low": 0.01, "high": 1.0}

        assert importance_notes(varying({"space": {"lr": domain, "momentum": domain}})) == []

    def test_a_missing_plot_says_what_it_lacks(self) -> None:
        domain = {"kind": "float", "low": 0.01, "high": 1.0}
        two, one = ({"space": dict.fromkeys(names, domain)} for names in (("lr", "eps"), ("lr",)))

        assert "10 finished points" in why_no_importance(varying(two), is_computed=True)
        assert "not computed yet" in why_no_importance(varying(two), is_computed=False)
        assert "does not vary two" in why_no_importance(varying(one), is_computed=False)

    def test_notes_promise_what_the_analysis_asks_for(self) -> None:
        from sweeps.analysis.stored import importance as ped_anova

        assert FEWEST_POINTS == ped_anova.FEWEST_POINTS


class TestTimeline:
    def test_a_lane_for_each_process_and_a_bar_for_each_attempt(self) -> None:
        spans = [span(0, 0, 2, pid=7), span(1, 1, 4, pid=8), span(2, 2, None, pid=7)]

        plot = timeline_plot(spans, START + timedelta(minutes=5))

        done = next(t for t in plot.figure["data"] if t["name"] == "complete")
        running = next(t for t in plot.figure["data"] if t["name"] == "running")
        assert [data[3] for data in done["customdata"]] == [2.0, 3.0]
        assert (done["y"], done["base"], done["x"]) == (["a · 7", "a · 8"], [0.0, 1.0], [2.0, 3.0])
        assert (running["y"], running["base"], running["x"]) == (["a · 7"], [2.0], [3.0])

    def test_a_short_sweep_is_timed_in_seconds(self) -> None:
        figure = timeline_plot([span(0, 0, 0.4, pid=7)], START + timedelta(minutes=1)).figure
        [trace] = figure["data"]

        assert figure["layout"]["xaxis"]["title"]["text"] == "time since the first start (s)"
        assert trace["x"] == [24.0]
        assert "24.00" not in trace["hovertemplate"]
        assert " s for %{customdata[3]:.2f} s" in trace["hovertemplate"]

    def test_an_attempt_that_failed_at_once_can_be_seen(self) -> None:
        spans = [span(0, 0, 10, pid=7), span(1, 10, 10, pid=7)]

        [trace] = timeline_plot(spans, START + timedelta(minutes=10)).figure["data"]

        assert trace["x"] == [10.0, pytest.approx(10 * LEAST_BAR)]
        assert trace["customdata"][1][3] == 0.0

    def test_many_short_lived_processes_are_packed_into_slots(self) -> None:
        spans = [span(n, n // 2, n // 2 + 1, pid=n) for n in range(2 * MOST_LANES)]

        lanes = lanes_of(spans, START)

        assert set(lanes) == {"a · slot 1", "a · slot 2"}
