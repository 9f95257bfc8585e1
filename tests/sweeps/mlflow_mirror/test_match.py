"""What a match leaves in MLflow: its verdict, both curves, tables and figures."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sweeps.figures.matplotlib_files import drawing
from sweeps.mlflow_mirror.artifacts import SweepArtifacts
from sweeps.mlflow_mirror.figures import match_charts
from sweeps.records import Sweep, SweepState
from sweeps.store.store import Store
from tests.dashboards.seeding import finished_match, stopped_clock
from tests.sweeps.mlflow_mirror.recording_client import RecordingClient
from tests.sweeps.store_cases import LEASE


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('matches') / 'store.db'}")
    store.migrate()
    yield store
    store.close()


@pytest.fixture(scope="module")
def match(matches: Store) -> Sweep:
    with stopped_clock(1600) as clock:
        return matches.get_sweep(finished_match(matches, clock))


@pytest.fixture(scope="module")
def sent(matches: Store, match: Sweep) -> RecordingClient:
    client = RecordingClient()
    SweepArtifacts(matches, page_url="http://localhost:8000/").send(client, match, "run")
    return client


def test_its_run_says_the_verdict_and_carries_the_rate(match: Sweep, sent: RecordingClient) -> None:
    assert match.result is not None
    text, verdict = sent.tags["mlflow.note.content"], match.result["verdict"]
    assert verdict["sentence"] in text
    assert "| least_squares (chosen) |" in text
    assert f"(http://localhost:8000/matches/{match.id})" in text
    chosen = next(row for row in match.result["criteria"] if row["chosen"])
    assert sent.values["alpha_v"] == verdict["rate"]
    assert sent.values["alpha_v_matched"] == chosen["measured"]["value"]
    assert sent.values["alpha_v_matched_low"] == chosen["measured"]["low"]


def test_its_parameters_are_both_sides_and_what_they_share(sent: RecordingClient) -> None:
    asked = {"dataset": "digits", "criterion": "least_squares", "level": "step"}
    sides = {"source.lr": "0.1", "target.betas": "0.9, 0.996"}

    assert sent.params.items() >= (asked | sides).items()


def test_it_leaves_tables_figures_and_the_environment(match: Sweep, sent: RecordingClient) -> None:
    assert set(sent.files) == {
        "results.md",
        "results.csv",
        "layers.csv",
        "environment.json",
        "figures/effective-learning-rates.png",
        "figures/source-over-target.png",
        "figures/rate-by-criterion.png",
        "figures/implied-rates.png",
        "figures/interactive.html",
    }
    assert match.result is not None
    rows = list(csv.DictReader(io.StringIO(sent.files["results.csv"].decode())))
    written = {row["criterion"]: row["measured"] for row in rows}
    for row in match.result["criteria"]:
        assert float(written[row["criterion"]]) == row["measured"]["value"]
    text = sent.files["results.md"].decode()
    assert match.result["warnings"][0] in text
    assert "| conv10 |" in text


def test_its_curves_go_by_step(match: Sweep, sent: RecordingClient) -> None:
    assert match.result is not None
    curves = match.result["curves"]

    assert sent.curves["effective_lr_source"] == list(
        zip(curves["steps"], curves["source"], strict=True)
    )
    assert sent.curves["effective_lr_target"][-1] == (curves["steps"][-1], curves["target"][-1])


def test_figures_hold_both_curves_and_every_interval(match: Sweep) -> None:
    rates, ratio, criteria, layers = match_charts(match)

    assert match.result is not None
    found = match.result
    source, formula, target = rates.series
    assert source.y == found["curves"]["source"]
    assert source.high[0] == pytest.approx(1.05 * source.y[0])
    assert (target.low, target.high) == (
        found["curves"]["target_low"],
        found["curves"]["target_high"],
    )
    assert formula.dash == "dot"
    assert rates.title.endswith("judged on steps 300 to 5700")
    first = found["curves"]["source"][0] / found["curves"]["target"][0]
    assert ratio.series[0].y[0] == first
    measured = criteria.series[0]
    low = [value - bar for value, bar in zip(measured.y, measured.below, strict=True)]
    assert low == pytest.approx([row["measured"]["low"] for row in found["criteria"]])
    high = {
        layer: value + bar
        for marks in layers.series
        for layer, value, bar in zip(marks.x, marks.y, marks.above, strict=True)
    }
    assert high == pytest.approx({row["layer"]: row["implied_high"] for row in found["layers"]})
    assert drawing(layers).png.startswith(b"\x89PNG")


def test_the_figure_says_how_much_of_a_ratio_it_leaves_out(match: Sweep) -> None:
    assert match.result is not None
    far = {"steps": [5, 15, 25], "source": [0.01] * 3, "target": [0.01, 0.5, 0.01]}
    result = {**match.result, "curves": {**match.result["curves"], **far}}

    ratio = match_charts(replace(match, result=result))[1]

    assert ratio.y.ends == pytest.approx((0.1, 10.0))
    assert ratio.series[0].name == "source over target, 1 of 3 values beyond the axis"


def test_one_without_a_result_has_its_environment_alone(sqlite_store: Store) -> None:
    store = sqlite_store
    store.create_sweep("match", {"source": {}, "base": {}}, name="m", num_trials=None)
    claim = store.claim("test", LEASE)
    assert claim is not None
    store.release(claim, SweepState.CANCELLED, "asked for")
    client = RecordingClient()
    SweepArtifacts(store).send(client, store.get_sweep(claim.sweep_id), "run")

    assert set(client.files) == {"environment.json"}
    assert client.values == {}
