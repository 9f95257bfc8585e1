"""The page that compares: what it is given, what it says of it, and its plots."""

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from dashboards.compare.plots import difference_plot
from dashboards.compare.view import difference, refs_of
from dashboards.wording.differing_fields import differing_fields
from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.store.store import Store
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page
from worker.report import Report


def row(**changes: object) -> dict[str, object]:
    return {
        "a": "nd",
        "b": "sgd",
        "method": "welch",
        "difference": -0.004,
        "low": -0.006,
        "high": -0.002,
        "p_holm": 0.01,
        "verdict": "lower",
        "non_inferior": None,
    } | changes


class TestReferences:
    def test_sweeps_points_and_trials_are_read_from_the_address(self) -> None:
        refs = refs_of(["abc", "abc:p3", "abc:t7"])

        assert [(r.sweep, r.point, r.trial) for r in refs] == [
            ("abc", None, None),
            ("abc", 3, None),
            ("abc", None, 7),
        ]

    @pytest.mark.parametrize("text", ["", "a b", "abc:x3", "abc:p", "abc:p-1", "../etc", "a" * 65])
    def test_what_is_none_of_them_is_left_out(self, text: str) -> None:
        assert refs_of([text]) == []

    def test_each_counts_once_and_there_is_an_end(self) -> None:
        assert len(refs_of(["abc", " abc", "abc"])) == 1 + 1
        assert len(refs_of([f"a{n}" for n in range(100)])) == 20


class TestDifferences:
    def test_a_difference_of_errors_is_in_points_of_percent(self) -> None:
        found = difference("validation_error", row())

        assert found.text == "−0.40 (−0.60 to −0.20)\N{NARROW NO-BREAK SPACE}points"
        assert (found.low, found.middle, found.high) == pytest.approx((-0.6, -0.4, -0.2))

    def test_non_inferiority_is_said_where_it_was_declared(self) -> None:
        assert (
            difference("validation_error", row(non_inferior=True)).verdict == "lower, non-inferior"
        )
        assert "not non-inferior" in difference("validation_error", row(non_inferior=False)).verdict

    def test_the_plot_holds_the_interval_and_marks_what_is_not_shown(self) -> None:
        rows = [
            difference("validation_error", row()),
            difference("validation_error", row(verdict="not shown", low=-0.01, high=0.002)),
        ]

        plot = difference_plot(rows, "validation_error")

        first, second = reversed(plot.figure["data"])
        assert first["x"] == [pytest.approx(-0.4)]
        assert first["error_x"]["array"] == [pytest.approx(0.2)]
        assert first["marker"]["symbol"] == "circle"
        assert second["marker"]["symbol"] == "circle-open"
        assert plot.figure["layout"]["xaxis"]["title"]["text"].endswith("(percentage points)")

    def test_long_names_leave_room_for_the_plot(self) -> None:
        named = replace(difference("validation_error", row()), arms=f"{'a' * 99} #1 − b #2")

        axis = difference_plot([named], "validation_error").figure["layout"]["yaxis"]

        assert axis["ticktext"] == [f"{'a' * 18}…{'a' * 6} #1 − b #2"]


def test_fields_that_differ_are_lined_up_and_seeds_are_not() -> None:
    found = differing_fields(
        {"a": {"lr": 0.1, "depth": 10, "seed": 1}, "b": {"lr": None, "depth": 10, "seed": 2}},
        "images",
    )

    assert found.names == ["a", "b"]
    assert found.rows == [("lr", ["0.1", "–"])]


class TestPage:
    def test_one_sweep_compares_its_optimizers(self, client: TestClient, seeded: Seeded) -> None:
        page = open_page(client, f"/compare?arm={seeded.sweep}")

        assert len(page.tables["Arms"]) == 1 + 3
        assert len(page.tables["Differences"]) == 1 + 3
        fields = {line[0].split()[0] for line in page.tables["Fields that differ"][1:]}
        assert {"optimizer", "alpha_v", "momentum"} <= fields

    def test_points_and_trials_stand_beside_each_other(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        sweep = seeded.sweep
        page = open_page(client, f"/compare?arm={sweep}:p0&arm={sweep}:p2&arm={sweep}:t9")

        labels = [line[0] for line in page.tables["Arms"][1:]]
        assert len(labels) == 3
        # A single seed has no interval, so only the two points are compared.
        assert len(page.tables["Differences"]) == 1 + 1

    def test_curves_follow_what_is_compared(self, client: TestClient, seeded: Seeded) -> None:
        sweep = seeded.sweep
        answer = client.get(
            f"/compare/plots/curves.json?arm={sweep}&arm={sweep}:t9&metric=train_loss"
        ).json()

        names = [t["name"] for t in answer["data"] if t.get("mode") != "lines" or t["name"]]
        assert sum("trial 9" in name for name in names) == 1
        assert len([name for name in names if "point" in name]) == 3
        assert answer["layout"]["yaxis"]["title"]["text"] == "training loss (nats)"

    def test_a_running_sweep_is_drawn_and_said_not_to_be_comparable(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        html = client.get(f"/compare?arm={seeded.running}&arm={seeded.sweep}").text
        curves = client.get(f"/compare/plots/curves.json?arm={seeded.running}").json()

        assert "not finished" in html
        assert curves["data"]

    def test_what_is_beyond_the_most_that_is_compared_is_told_of(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        whole = [f"arm={seeded.sweep}:t{number}" for number in range(20)]

        assert "left out" not in client.get(f"/compare?{'&'.join(whole)}").text
        more = client.get(f"/compare?{'&'.join([*whole, f'arm={seeded.sweep}'])}").text
        assert "at most 20 entries: only the first 20 are shown" in more

    def test_nothing_chosen_says_how_to_choose(self, client: TestClient) -> None:
        assert "Nothing selected yet" in client.get("/compare").text

    def test_what_is_not_there_is_not_found(self, client: TestClient) -> None:
        open_page(client, "/compare?arm=000000000000", status=404)

    def test_the_csv_of_differences_holds_them(self, client: TestClient, seeded: Seeded) -> None:
        text = client.get(f"/compare/plots/differences.csv?arm={seeded.sweep}").text

        assert text.startswith("arms,difference,low,high,p_holm,verdict\n")
        assert len(text.splitlines()) == 4

    def test_one_seed_each_has_no_difference_to_draw(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        arms = f"arm={seeded.sweep}:t0&arm={seeded.sweep}:t9"

        assert "empty" in client.get(f"/compare/plots/differences.json?{arms}").json()


def trained(store: Store, name: str, errors: list[float], **config: object) -> str:
    """A complete sweep of one point, with the validation error of each seed."""
    spec = {"objective": {"metric": "validation_error", "direction": "minimize"}}
    store.create_sweep("sweep", spec, name=name, num_trials=len(errors))
    claim = store.claim("test")
    assert claim is not None
    for seed, error in enumerate(errors):
        new = NewTrial(0, seed, {"lr": 0.1}, {"seed": seed, **config}, f"{name}{seed}")
        (trial,) = store.add_trials(claim, [new])
        attempt = store.start_attempt(claim, trial.number)
        report = Report(
            step=10, num_steps=10, status="complete", metrics={"validation_error": error}
        )
        store.record(claim, trial.number, attempt.id, [report])
        done = TrialState.COMPLETE
        store.finish_attempt(
            claim, trial.number, attempt.id, done, "complete", trial_state=done, objective=error
        )
    store.release(claim, SweepState.COMPLETE, "all done")
    return claim.sweep_id


def test_arms_of_other_data_get_no_verdict_and_the_page_says_why(
    empty_store: Store, empty_client: TestClient
) -> None:
    digits = trained(empty_store, "on-digits", [0.10, 0.12], dataset="digits", split_seed=0)
    again = trained(empty_store, "again", [0.11, 0.14], dataset="digits", split_seed=0)
    cifar = trained(empty_store, "on-cifar", [0.30, 0.31], dataset="cifar10", split_seed=3)

    page = open_page(empty_client, f"/compare?arm={digits}&arm={again}&arm={cifar}")

    judged, *unlike = page.tables["Differences"][1:]
    assert judged[-1] == "not shown"
    why = "Other data: dataset digits and cifar10; errors on other images: split_seed 0 and 3"
    assert [line[1:] for line in unlike] == [[why, "not comparable"]] * 2


def test_a_comparison_without_any_verdict_still_says_why(
    empty_store: Store, empty_client: TestClient
) -> None:
    one = trained(empty_store, "one", [0.10, 0.12], dataset="digits", split_seed=0)
    other = trained(empty_store, "other", [0.30, 0.31], dataset="digits", split_seed=1)

    page = open_page(empty_client, f"/compare?arm={one}&arm={other}")

    assert [line[-1] for line in page.tables["Differences"][1:]] == ["not comparable"]
    assert "differences" not in page.plots
