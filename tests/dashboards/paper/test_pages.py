"""The page of the paper: its numbers stand beside ours, with links to the runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dashboards.paper.plots import curves_plot
from dashboards.paper.view import FIGURES
from sweeps.figures.colours import OPTIMIZER_COLOURS
from sweeps.paper.figures import MeanCurve
from sweeps.paper.values import paper_values
from tests.dashboards import seeding
from tests.dashboards.conftest import client_of, open_store
from tests.dashboards.page_reading import open_page
from tests.dashboards.paper.seeding import finished_paper


@pytest.fixture(scope="module")
def paper_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("paper")
    store = open_store(home)
    with seeding.stopped_clock(2000) as clock:
        finished_paper(store, clock)
    yield client_of(store, home)
    store.close()


TABLES = [table.title for table in paper_values().tables]


def test_before_any_run_the_paper_stands_alone(empty_client: TestClient) -> None:
    page = open_page(empty_client, "/paper")

    assert set(TABLES) <= set(page.tables)
    first = page.tables[TABLES[0]][1]
    assert first[0] == "SGD"
    assert first[2].startswith("4.61")
    assert first[-2:] == ["not run", "no run yet"]


def test_our_runs_stand_beside_the_paper_with_interval_verdict_and_links(
    paper_client: TestClient,
) -> None:
    page = open_page(paper_client, "/paper")

    rows = page.tables[TABLES[0]][1:]
    assert len(rows) == 6
    for row in rows:
        assert "±" in row[3]
        assert row[4] == "2"
        assert row[6].split()[0] in ("agrees", "lower", "higher")
        assert row[7] == "seed 0 , seed 1"
    runs = [address for address in page.addresses if "/trials/" in address]
    assert runs
    assert all(paper_client.get(address).status_code == 200 for address in set(runs))


def test_every_table_and_figure_submits_its_preset(paper_client: TestClient) -> None:
    page = open_page(paper_client, "/paper")

    presets = {table.preset for table in paper_values().tables} | {f.preset for f in FIGURES}
    presets |= {claim.preset for claim in paper_values().claims}
    assert {f"/presets/{name}/submit" for name in presets} <= set(page.addresses)
    assert {f"/sweeps/new?preset={name}" for name in presets} <= set(page.addresses)


def test_the_ratios_of_figure_1b_are_judged(paper_client: TestClient) -> None:
    rows = open_page(paper_client, "/paper").tables["Ratios of Figure 1 (b)"][1:]

    by_name = {row[0]: row for row in rows}
    # The made-up curves are exactly proportional to the rate.
    assert by_name["ND-Adam 0.05 over ND-Adam 0.025"][3:] == [
        "2.000 (2.000 to 2.000)",
        "100 %",
        "1.997",
        "agrees",
    ]
    assert by_name["SGD (0.1, 0.001) over SGD (0.05, 0.002)"][6] == "differs"


def test_every_layer_has_its_ratios_and_verdicts(paper_client: TestClient) -> None:
    rows = open_page(paper_client, "/paper").tables["Ratios of Figure 1 (b) by layer"]

    assert [row[0] for row in rows] == ["Layer", "conv5", "agree"]
    assert rows[1][3:] == ["2.000 agrees", "2.000 differs"]
    assert rows[2][3:] == ["1 of 1", "0 of 1"]


def test_what_the_text_says_stands_with_its_runs_or_without(paper_client: TestClient) -> None:
    page = open_page(paper_client, "/paper")
    text = paper_client.get("/paper").text

    rows = page.tables["Scales with BN-Softmax"][1:]
    # Table 1's arms without scales are this claim's; those with scales were not run.
    assert [(row[0], row[2]) for row in rows] == [
        (f"{name}, {scales}", n)
        for name in ("SGD", "Adam", "ND-Adam")
        for scales, n in (("BN with scales", "0"), ("no scales", "2"))
    ]
    assert "γ_C and depth" not in page.tables
    assert "The paper: the best γ_C &#34;varies with network depth&#34;. Not run." in text


def test_a_method_stands_beside_itself_without_scales(paper_client: TestClient) -> None:
    rows = open_page(paper_client, "/paper").tables[f"Gains, {TABLES[0]}"][1:]

    assert [row[0] for row in rows] == ["SGD", "Adam", "ND-Adam"]
    assert {row[1] for row in rows} == {"no scales, BN-Softmax − BN with scales"}


def test_no_number_of_the_page_is_a_negative_nothing(paper_client: TestClient) -> None:
    assert not re.search(r"[-−]0(\.0+)?(?![\d.])", paper_client.get("/paper").text)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_a_figure_draws_a_line_for_every_arm(paper_client: TestClient, figure) -> None:  # type: ignore[no-untyped-def]
    answer = paper_client.get(f"/paper/plots/{figure.id}.json").json()

    lines = [
        trace for trace in answer["data"] if trace["mode"].startswith("lines") and trace["name"]
    ]
    arms = {"fig1a": 1, "fig1b": 5, "fig2": 3, "fig3": 6}[figure.id]
    assert len(lines) == arms
    assert all(len(line["x"]) == 10 for line in lines)
    assert answer["layout"]["yaxis"]["title"]["text"]
    # One colour an optimizer, one stroke each of its curves.
    strokes = {(line["line"]["color"], line["line"]["dash"]) for line in lines}
    assert len(strokes) == arms
    assert {colour for colour, _ in strokes} <= set(OPTIMIZER_COLOURS.values())


def test_figure_2_shows_where_the_paper_s_curves_end(paper_client: TestClient) -> None:
    answer = paper_client.get("/paper/plots/fig2.json").json()

    ends = answer["layout"]["shapes"]
    assert [shape["y0"] for shape in ends] == [4.61, 6.14, 4.53]
    # Each in the colour of the curve that it belongs to.
    lines = [t for t in answer["data"] if t["mode"].startswith("lines") and t["name"]]
    drawn = [line["line"]["color"] for line in lines]
    assert drawn == [shape["line"]["color"] for shape in ends]
    assert len(set(drawn)) == 3


def test_a_table_s_plot_holds_the_paper_s_and_our_points(paper_client: TestClient) -> None:
    answer = paper_client.get("/paper/plots/table1-cifar10.json").json()

    paper, ours, seeds = answer["data"]
    assert sorted(paper["x"]) == sorted([4.61, 6.14, 4.53, 4.49, 5.43, 4.14])
    assert len(ours["x"]) == 6
    assert len(seeds["x"]) == 12
    csv = paper_client.get("/paper/plots/table1-cifar10.csv").text
    assert csv.splitlines()[0] == "method,part,paper,ours,low,high,seeds,verdict"


def test_a_figure_without_runs_says_which_preset_makes_them(empty_client: TestClient) -> None:
    answer = empty_client.get("/paper/plots/fig3.json").json()

    assert "paper-fig3" in answer["empty"]


def test_what_the_paper_does_not_have_is_not_found(empty_client: TestClient) -> None:
    open_page(empty_client, "/paper/plots/fig9.json", status=404)


def test_a_band_reaches_from_the_smallest_to_the_largest_seed() -> None:
    curve = MeanCurve("SGD", "sgd", (10, 20), (0.2, 0.1), (0.15, 0.05), (0.3, 0.2), 3)

    plot = curves_plot("fig2", "test_error", [curve])

    strip, line = plot.figure["data"]
    assert strip["y"] == pytest.approx([30, 20, 5, 15])
    assert line["y"] == pytest.approx([20, 10])


def test_the_end_of_a_cosine_does_not_fill_the_axis() -> None:
    fading = (1e-2, 5e-3, 1e-12)
    curve = MeanCurve("SGD", "sgd", (10, 20, 30), fading, fading, fading, 1)

    axis = curves_plot("fig1b", "effective_lr/conv5", [curve]).figure["layout"]["yaxis"]

    assert axis["range"] == pytest.approx([-4.78, -1.89], abs=0.02)


def test_new_runs_are_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path / "home")
    client = client_of(store, tmp_path / "home")
    assert open_page(client, "/paper").tables[TABLES[0]][1][4] == "0"

    with seeding.stopped_clock(2000) as clock:
        finished_paper(store, clock)

    assert open_page(client, "/paper").tables[TABLES[0]][1][4] == "2"
    store.close()
