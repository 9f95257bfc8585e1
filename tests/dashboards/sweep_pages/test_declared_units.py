"""Units that a sweep declares for its metrics: behind values, on axes, in reports, as text."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboards.report.document import to_html, to_latex, to_markdown
from dashboards.report.sweep import report_document
from dashboards.wording.formatting import difference_with_interval, interval, quantity_value
from sweeps.analysis.compared_arms import ArmRef
from sweeps.analysis.comparison import ComparisonSpec, compare
from sweeps.figures.quantities import plain, quantity
from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.store.store import Store
from tests.dashboards.conftest import client_of, open_store
from tests.sweeps.store_cases import claimed, report

#: A unit in which HTML, plotly, LaTeX and Markdown would each read something.
HOSTILE = "<b>%{x}</b>|$5_&"
SPACE = "\N{NARROW NO-BREAK SPACE}"


def _seed(store: Store, unit: str, fields: Sequence[str] = ("a", "b", "kind"), **more: Any) -> str:
    """A finished sweep of ten points that maximizes ``score``, with more of a spec; its id."""
    a, b, kind = fields
    spec = {
        "training": "games",
        "name": "own",
        "objective": {"metric": "score", "direction": "maximize"},
        "metrics": {
            "score": {"direction": "maximize", "unit": unit},
            "size": {"direction": "maximize", "unit": "MiB"},
        },
        "space": {
            a: {"kind": "float", "low": 0.0, "high": 10.0},
            b: {"kind": "float", "low": 0.0, "high": 10.0},
            kind: {"kind": "choice", "values": ["x", "y"]},
        },
        "sampler": "random",
        "replicates": 2,
        **more,
    }
    claim = claimed(store, spec=spec, name="own", num_trials=20)
    for point in range(10):
        params = {a: float(point), b: float(7 * point % 10), kind: "xy"[point % 2]}
        trials = [NewTrial(point, seed, params, params, f"key-{point}") for seed in (0, 1)]
        for trial in store.add_trials(claim, trials):
            attempt = store.start_attempt(claim, trial.number)
            score = 100.0 + point + trial.seed / 4
            for step, value in ((50, score / 2), (100, score)):
                metrics = {"score": value, "size": 64.0, "logit_rms": 1.0}
                store.record(claim, trial.number, attempt.id, [report(step, metrics=metrics)])
            store.finish_attempt(
                claim,
                trial.number,
                attempt.id,
                TrialState.COMPLETE,
                "complete",
                trial_state=TrialState.COMPLETE,
                objective=score,
            )
    store.release(claim, SweepState.COMPLETE, "all done")
    return claim.sweep_id


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, TestClient]]:
    home = tmp_path_factory.mktemp("home")
    store = open_store(home)
    with client_of(store, home) as client:
        yield store, client
    store.close()


@pytest.fixture(scope="module")
def own(served: tuple[Store, TestClient]) -> str:
    return _seed(served[0], "points/s")


@pytest.fixture(scope="module")
def hostile(served: tuple[Store, TestClient]) -> str:
    return _seed(served[0], HOSTILE)


def _text(served: tuple[Store, TestClient], address: str) -> str:
    answer = served[1].get(address)
    assert answer.status_code == 200, address
    return answer.text


def test_the_page_writes_the_unit_behind_every_value(
    served: tuple[Store, TestClient], own: str
) -> None:
    page = _text(served, f"/sweeps/{own}?columns=a&columns=size")

    assert f"109.1{SPACE}points/s" in page or f"± 1.6{SPACE}points/s" in page
    for part in ("overview", "results", "leaderboard", "trials"):
        assert f"{SPACE}points/s" in _text(served, f"/sweeps/{own}/parts/{part}"), part
    assert f"{SPACE}points/s" in _text(served, "/")
    assert f"109{SPACE}points/s" in _text(served, f"/sweeps/{own}/trials/18")


@pytest.mark.parametrize(
    "plot",
    [
        "curves",
        "sensitivity/a",
        "parallel",
        "contour",
    ],
)
def test_the_axis_of_a_plot_names_the_unit(
    served: tuple[Store, TestClient], own: str, plot: str
) -> None:
    figure = _text(served, f"/sweeps/{own}/plots/{plot}.json")

    assert "score (points/s)" in figure
    assert figure.count("points/s") > 1, "what is shown on hovering has it too"


def test_a_trial_s_plot_names_the_unit(served: tuple[Store, TestClient], own: str) -> None:
    address = f"/sweeps/{own}/trials/0/plots/metric"

    score, size = (json.loads(_text(served, f"{address}/{n}.json")) for n in ("score", "size"))

    assert score["layout"]["yaxis"]["title"]["text"] == "score (points/s)"
    assert "%{y:.4g} points/s" in score["data"][0]["hovertemplate"]
    assert size["layout"]["yaxis"]["title"]["text"] == "size (MiB)"


def test_a_comparison_has_the_unit_that_its_sweeps_share(
    served: tuple[Store, TestClient], own: str, hostile: str
) -> None:
    alike = f"arm={own}:p1&arm={own}:p2"

    assert f"{SPACE}points/s" in _text(served, f"/compare?{alike}")
    assert "score (points/s)" in _text(served, f"/compare/plots/differences.json?{alike}")
    curves = _text(served, f"/compare/plots/curves.json?metric=score&{alike}")
    assert "score (points/s)" in curves
    assert "points/s" not in _text(served, f"/compare?arm={own}:p1&arm={hostile}:p2")


def test_a_comparison_knows_which_end_of_a_declared_metric_is_better(
    served: tuple[Store, TestClient], own: str
) -> None:
    arms = [ArmRef(sweep=own, point=point) for point in (1, 2)]

    for metric in ("size", "score"):
        found = compare(served[0], ComparisonSpec(arms=arms, metric=metric))
        assert found["direction"] == "maximize", metric


def test_a_report_has_the_unit_in_every_form(served: tuple[Store, TestClient], own: str) -> None:
    document = report_document(served[0], own)

    assert f"{SPACE}points/s" in to_html(document)
    assert "points/s" in to_markdown(document, lambda _: "figure.svg")
    assert r"\,points/s" in to_latex(document, lambda _: "figure.pdf")


def test_a_unit_is_text_wherever_it_stands(served: tuple[Store, TestClient], hostile: str) -> None:
    here = f"/sweeps/{hostile}"
    document = report_document(served[0], hostile)
    escaped = "&lt;b&gt;%{x}&lt;/b&gt;|$5_&amp;"

    for address in (here, f"{here}/trials/0", "/", f"/compare?arm={hostile}:p1&arm={hostile}:p2"):
        page = _text(served, address)
        assert "<b>%{x}" not in page, address
        assert f"{SPACE}{escaped}" in page, address
    for plot in ("curves", "sensitivity/a", "parallel", "contour", "importance", "variance"):
        figure = _text(served, f"{here}/plots/{plot}.json")
        assert "<b>" not in figure, plot
        assert "%{x}" not in figure.replace("%{x}<", ""), plot
    assert "<b>%{x}" not in to_html(document)
    assert "<b>%{x}" not in to_markdown(document, lambda _: "figure.svg")
    assert r"\,<b>\%\{x\}</b>|\$5\_\&" in to_latex(document, lambda _: "figure.pdf")


def test_markup_of_a_unit_is_taken_back_for_figures_of_text() -> None:
    what = quantity("score", {"score": {"unit": HOSTILE}})

    assert "<" not in what.axis
    assert "{" not in what.axis
    assert plain(what.axis) == f"score ({HOSTILE})"


def test_values_of_images_are_written_as_before() -> None:
    assert quantity_value("train_loss", 1.5) == "1.5"
    assert quantity_value("test_error", 0.05) == f"5.00{SPACE}%"
    assert quantity("train_loss").axis == "training loss (nats)"


def test_a_declared_unit_stands_behind_ends_and_differences() -> None:
    what = quantity("score", {"score": {"unit": "points/s"}})

    assert interval(what, 1.5, 2.5) == f"1.5{SPACE}points/s to 2.5{SPACE}points/s"
    assert difference_with_interval(what, -1.0, -2.0, 0.5) == (f"−1 (−2 to 0.5){SPACE}points/s")


def test_names_with_a_fixed_meaning_are_written_alike_in_every_training() -> None:
    declared = {"validation_error": {"unit": "%"}, "train_loss": {"unit": ""}}

    assert quantity_value(quantity("validation_error", declared), 0.05) == f"5.00{SPACE}%"
    assert quantity("train_loss", declared).axis == "training loss (nats)"


#: Fields and metrics of images, by names that any training may use.
OF_IMAGES = ("lr", "depth", "bn_scale")
WORDS_OF_IMAGES = (
    "α<sub>0</sub>",
    "α₀",
    "learning rate",
    "(layers)",
    "BN scales",
    "RMS of the logits",
)


def test_fields_called_like_those_of_images_have_their_own_names(
    served: tuple[Store, TestClient],
) -> None:
    store, _ = served
    own = _seed(store, "points/s", OF_IMAGES)
    report_text = to_markdown(report_document(store, own))
    found = {
        address: [word for word in WORDS_OF_IMAGES if word.lower() in text.lower()]
        for address, text in {
            "report": report_text,
            **{
                address: _text(served, address.format(own))
                for address in (
                    "/parts/sweeps",
                    "/sweeps/{}?columns=lr&columns=logit_rms",
                    "/sweeps/{}/trials/3",
                    "/sweeps/{}/plots/curves.json",
                    "/sweeps/{}/plots/curves.json?metric=logit_rms",
                    "/sweeps/{}/plots/sensitivity/lr.json",
                    "/sweeps/{}/plots/parallel.json",
                    "/sweeps/{}/plots/variance.json",
                    "/sweeps/{}/plots/importance.json",
                    "/sweeps/{}/plots/contour.json?x=lr&y=depth",
                    "/sweeps/{}/trials/3/plots/metric/logit_rms.json",
                    "/compare?arm={0}:p1&arm={0}:p2",
                    "/compare/configs?arm={0}:t1&arm={0}:t4",
                )
            },
        }.items()
    }

    assert {address: words for address, words in found.items() if words} == {}


def test_groups_colours_and_the_brush_follow_the_declared_metrics(
    served: tuple[Store, TestClient], own: str
) -> None:
    client = served[1]
    curves = client.get(f"/sweeps/{own}/plots/curves.json?group=kind&metric=size").json()
    parallel = client.get(f"/sweeps/{own}/plots/parallel.json?where=point_mean+%3E+107").json()

    assert {t["name"] for t in curves["data"]} >= {"kind x (10 trials)", "kind y (10 trials)"}
    assert curves["layout"]["yaxis"]["title"]["text"] == "size (MiB)"
    # More is better, and the unit is as declared: no factor of 100.
    ends = next(axis for axis in parallel["brush"] if axis["field"] == "point_mean")
    assert ends["high"] > 109
    shown = {p for t in parallel["data"] if t["name"] != "left out" for p in t["meta"]["points"]}
    assert shown == {"7", "8", "9"}


def test_trials_of_several_sweeps_have_the_declared_units_that_agree(
    served: tuple[Store, TestClient], own: str, hostile: str
) -> None:
    page = _text(served, f"/trials?sweep={own},{hostile}&columns=size,a&trial_sort=-metrics.size")
    plot = _text(served, f"/trials/plots/curves.json?sweep={own},{hostile}")

    assert f"64{SPACE}MiB" in page
    assert "points/s" in page
    # Both sweeps are called "own": their ids tell them apart.
    assert f"own ({own})" in page
    assert "<b>%" not in page + plot
    assert json.loads(plot)["layout"]["yaxis"]["title"]["text"] == "score"


def test_every_objective_stands_in_the_table_of_trials_and_on_a_trial_s_page(
    served: tuple[Store, TestClient],
) -> None:
    store, _ = served
    ends = [{"metric": name, "direction": "maximize"} for name in ("score", "size")]
    several = _seed(store, "points/s", objectives=ends)

    table = _text(served, f"/sweeps/{several}/parts/trials")
    assert table.count(f"64{SPACE}MiB") == 20
    assert f"109{SPACE}points/s" in table
    trial = _text(served, f"/sweeps/{several}/trials/18/parts/overview")
    assert f"<dt>Size</dt>\n    <dd>64{SPACE}MiB" in trial
    assert f"109{SPACE}points/s" in trial
    chosen = _text(served, f"/sweeps/{several}/parts/trials?columns=a")
    assert "MiB" not in chosen
