"""Reports of sweeps and matches: one file each, with the numbers that the pages show."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from dashboards.report import sensitivity as report_sensitivity
from dashboards.report import sweep as report_sweep
from dashboards.report.blocks import Document, Picture
from dashboards.report.document import to_html, to_markdown
from dashboards.report.files import report_text
from dashboards.report.sensitivity import importance_blocks, sensitivity_blocks
from dashboards.report.sweep import report_document
from dashboards.wording.formatting import difference
from dashboards.wording.plain_text import settings
from service.cli.app import app
from sweeps.analysis.arms import analysis
from sweeps.analysis.table import Table
from sweeps.errors import SweepNotFound
from sweeps.figures.chart import Chart
from sweeps.figures.matplotlib_files import Drawing
from sweeps.figures.quantities import plain
from tests.dashboards.conftest import Seeded, open_store
from tests.dashboards.paper.paper_results import write_made_up
from tests.dashboards.seeding_match import match_result
from tests.sweeps.store_cases import SPEC, finished_trial


@pytest.fixture(scope="module")
def sweep_report(seeded: Seeded) -> Document:
    return report_document(seeded.store, seeded.sweep)


@pytest.fixture(scope="module")
def match_report(seeded: Seeded) -> Document:
    return report_document(seeded.store, seeded.match)


def tables(document: Document) -> list[Table]:
    return [block for block in document.blocks if isinstance(block, Table)]


def pictures(document: Document) -> list[str]:
    return [b.drawing.name for b in document.blocks if isinstance(b, Picture)]


def test_a_sweep_s_report_has_its_arms_with_intervals(
    seeded: Seeded, sweep_report: Document
) -> None:
    found = analysis(seeded.store, seeded.sweep)
    results = next(table for table in tables(sweep_report) if table.head[0] == "arm")
    means = sorted(100 * arm.objective.mean for arm in found.arms if arm.objective)

    assert [row[1] for row in results.rows] == [f"{mean:.2f}\u202f%" for mean in means]
    assert results.rows[0][0] in ("ndadam", "sgd", "adam")
    assert "selected, optimistic" in results.rows[0][-1]
    assert pictures(sweep_report)[:2] == ["results", "learning-curves"]
    differences = next(table for table in tables(sweep_report) if table.head[0] == "arms")
    assert len(differences.rows) == len(found.comparisons) == 3


def test_figures_with_room_for_some_arms_show_the_best_and_say_so(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch, sweep_report: Document
) -> None:
    monkeypatch.setattr(report_sweep, "MOST_CURVES", 2)
    blocks = report_document(seeded.store, seeded.sweep).blocks
    results, curves = [block for block in blocks if isinstance(block, Picture)][:2]
    rows = next(table for table in tables(sweep_report) if table.head[0] == "arm").rows

    assert "of each arm's best point," in results.caption
    assert "of the best points of the best 2 arms while training" in curves.caption
    drawn = [re.search(rf">{row[0]}<", curves.drawing.svg) is not None for row in rows]
    assert drawn == [True, True, False]


def test_a_sweep_s_report_draws_every_field_of_numbers(
    seeded: Seeded, sweep_report: Document
) -> None:
    space = seeded.store.get_sweep(seeded.sweep).spec["space"]
    drawn = [name for name in pictures(sweep_report) if name.startswith("sensitivity-")]

    assert {"sensitivity-lr", "sensitivity-alpha_v"} <= set(drawn)
    assert "sensitivity-optimizer" not in drawn
    assert {name.removeprefix("sensitivity-") for name in drawn} <= set(space)


def test_a_sensitivity_holds_the_points_that_have_the_field(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Chart] = {}

    def spy(chart: Chart) -> Drawing:
        drawn[chart.name] = chart
        return Drawing(chart.name, Figure())

    monkeypatch.setattr(report_sensitivity, "drawing", spy)
    store = seeded.store
    sweep = store.get_sweep(seeded.sweep)
    sensitivity_blocks(store, sweep, analysis(store, sweep.id))

    points = [p for p in store.all_points(sweep.id) if p.mean is not None]
    expected = [
        (p.params["alpha_v"], 100 * (p.mean or 0.0)) for p in points if "alpha_v" in p.params
    ]
    [marks] = drawn["sensitivity-alpha_v"].series
    assert marks.name == "ndadam"
    assert list(zip(marks.x, marks.y, strict=True)) == expected


def test_a_sensitivity_of_some_of_the_points_says_of_how_many(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeded.store
    sweep = store.get_sweep(seeded.sweep)
    count = sum(p.mean is not None and "alpha_v" in p.params for p in store.all_points(sweep.id))
    monkeypatch.setattr(report_sensitivity, "MOST_POINTS", count - 1)
    blocks = sensitivity_blocks(store, sweep, analysis(store, sweep.id))

    captions = {b.drawing.name: b.caption for b in blocks if isinstance(b, Picture)}
    some = f"; {count - 1} of {count} points, evenly taken."
    assert captions["sensitivity-alpha_v"].endswith(some)


def test_a_report_s_importance_is_the_stored_one_with_the_branch(seeded: Seeded) -> None:
    sweep = seeded.store.get_sweep(seeded.sweep)
    stored = {
        "branch": {"optimizer": "ndadam"},
        "points": 40,
        "method": "ped-anova",
        "quantile": 0.1,
        "fields": {"alpha_s": 0.2, "alpha_v": 0.8},
    }
    result = (sweep.result or {}) | {"importance": [stored]}
    blocks = importance_blocks(replace(sweep, result=result))

    table = next(block for block in blocks if isinstance(block, Table))
    assert table.rows == (
        ("optimizer ndadam", "αᵛ", "80 %", "40"),
        ("optimizer ndadam", "αˢ", "20 %", "40"),
    )
    assert importance_blocks(replace(sweep, result={"importance": None})) == []


def test_a_sweep_s_report_says_what_was_varied_and_where_it_ran(sweep_report: Document) -> None:
    text = to_markdown(sweep_report)

    assert "| αᵛ | alpha_v |" in text
    assert "where optimizer is ndadam" in text
    assert "## Where it ran" in text
    assert re.search(r"Trials: \d+ complete", text)


def test_where_a_sweep_ran_is_asked_of_trials_from_the_first_to_the_last(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    found = [finished_trial(seed, 0.5, "first" if seed < 500 else "last") for seed in range(600)]
    spec = SPEC | {"space": {}}
    made = store.import_sweep(spec, found, key="k", name="n", tags=(), notes="", num_trials=600)

    assert "| card | first, last |" in to_markdown(report_document(store, made.sweep.id))


def test_a_condition_on_what_is_off_is_said_in_words(seeded: Seeded) -> None:
    sweep = seeded.store.get_sweep(seeded.sweep)
    rate = {"kind": "float", "low": 0.1, "high": 1.0, "when": {"gamma_c": [None, 1000.0]}}
    spec = {**sweep.spec, "space": {"lambda_c": rate}}
    (table, *_) = report_sweep._space(replace(sweep, spec=spec))

    assert isinstance(table, Table)
    assert table.rows[0][-1] == "0.1 to 1, where gamma_c is none or 1000"


def test_a_match_s_report_begins_with_its_verdict(match_report: Document) -> None:
    verdict = match_result()["verdict"]
    assert verdict is not None
    text = to_markdown(match_report)

    assert verdict["sentence"].replace("*", "\\*") in text
    assert "least squares (chosen)" in text or "stationary (chosen)" in text
    assert pictures(match_report) == ["effective-learning-rates", "implied-rates"]
    layers = next(table for table in tables(match_report) if table.head[0] == "layer")
    assert len(layers.rows) == len(match_result()["layers"])


@pytest.mark.parametrize("which", ["sweep", "match"])
def test_a_report_is_one_well_formed_page(request: pytest.FixtureRequest, which: str) -> None:
    html = to_html(request.getfixturevalue(f"{which}_report"))
    body = html[html.index("<main>") : html.index("</main>") + len("</main>")]
    ids = re.findall(r'\bid="([^"]+)"', html)

    assert ET.fromstring(body.replace("xlink:href", "href")).tag == "main"
    assert len(ids) == len(set(ids))
    assert not re.search(r"""(?:src|href)=["'](?!#)""", html)


@pytest.mark.parametrize("which", ["queued", "running"])
def test_a_sweep_that_has_found_nothing_yet_has_a_report(seeded: Seeded, which: str) -> None:
    document = report_document(seeded.store, getattr(seeded, which))

    assert which in to_markdown(document)
    assert report_text(document, "latex").endswith("\\end{document}\n")


def test_a_sweep_that_does_not_exist_has_none(seeded: Seeded) -> None:
    with pytest.raises(SweepNotFound):
        report_document(seeded.store, "0" * 12)


def test_words_lose_their_markup_and_keep_their_indices() -> None:
    assert plain("α<sup>v</sup> &amp; <b>γ<sub>C</sub></b>") == "αᵛ & γ_C"
    params = {"optimizer": "ndadam", "alpha_v": 0.05, "gamma_c": None}
    assert settings(params, "images") == "ndadam, αᵛ = 0.05, γ_C = none"
    assert difference("test_error", -0.0123) == "−1.23"


def test_the_command_writes_each_form(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("reports")
    monkeypatch.setenv("NDSWEEP_HOME", str(seeded.home))
    monkeypatch.delenv("NDSWEEP_STORE_URL", raising=False)
    run = CliRunner().invoke
    page = run(app, ["report", seeded.sweep, "--out", str(out / "sweep.html")])
    text = run(app, ["report", seeded.match, "--format", "md"])
    tex = run(app, ["report", seeded.sweep, "-f", "latex", "-o", str(out / "sweep.tex")])

    assert page.exit_code == text.exit_code == tex.exit_code == 0, page.output
    assert (out / "sweep.html").read_text("utf-8").startswith("<!doctype html>")
    assert text.output.startswith("# Match sgd-to-ndadam")
    assert (out / "sweep-figures" / "results.pdf").exists()
    unknown = run(app, ["report", "0" * 12])
    assert unknown.exit_code == 1
    assert "there is no sweep" in unknown.output


def test_the_paper_s_report_comes_from_a_folder_and_keeps_its_runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("paper")
    write_made_up(folder / "results")
    given = ["report", "paper", "--from", str(folder / "results")]
    kept = ["--out", str(folder / "paper.md"), "--keep-runs", str(folder / "runs"), "-f", "md"]
    done = CliRunner().invoke(app, [*given, *kept, "--figures", str(folder / "figures")])

    assert done.exit_code == 0, done.output
    assert f"{folder / 'runs'}: 15 runs" in done.output
    assert "(figures/figure-2.svg)" in (folder / "paper.md").read_text("utf-8")
    assert len(list((folder / "runs").iterdir())) == 15


WRONG = [
    (["report", "0123456789ab", "--from", "."], "are for `ndsweep report paper`"),
    (["report", "paper", "--keep-runs", "runs"], "needs --from"),
    (["report", "paper", "-f", "latex"], "need --out"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=["from", "keep", "latex"])
def test_options_that_do_not_go_together_are_refused(arguments: list[str], sentence: str) -> None:
    refused = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})

    assert refused.exit_code == 2
    assert sentence in refused.output
