"""The paper's report: its numbers by hand, its forms, and that it rebuilds from committed runs."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from dashboards.paper.document import paper_document
from dashboards.report.blocks import Document
from dashboards.report.document import to_html, to_latex, to_markdown
from dashboards.report.files import report_text, write_report
from ndadam.statistics.inference import t_quantile
from sweeps.analysis.table import Table
from sweeps.batch.import_results import import_results
from sweeps.batch.specs import keep_specs
from sweeps.paper.balance import balance_by_layer, balance_curve, balance_note
from sweeps.paper.comparison import compared_claims, compared_tables
from sweeps.paper.figures import law_note, measured_ratios, progress
from sweeps.paper.keep_runs import keep_runs
from sweeps.paper.runs import (
    PaperRuns,
    run_of_result,
    runs_of_folder,
    runs_of_store,
    what_was_trained,
)
from sweeps.paper.values import paper_values
from sweeps.spec.presets import read_preset
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store
from tests.dashboards.paper.paper_results import made_up_results, write_made_up

HERE = Path(__file__).parent
RESULTS = HERE.parents[2] / "docs" / "results"
MADE_UP = HERE / "paper_runs"


@pytest.fixture(scope="module")
def runs() -> PaperRuns:
    return PaperRuns(run_of_result(result) for result in made_up_results())


@pytest.fixture(scope="module")
def document(runs: PaperRuns) -> Document:
    return paper_document(runs)


def markdown_of(folder: Path) -> str:
    """As ``ndsweep report paper --from FOLDER --format md --figures figures`` writes it."""
    document = paper_document(PaperRuns(runs_of_folder(folder)))
    return to_markdown(document, lambda picture: f"figures/{picture.drawing.name}.svg")


def kept_reports() -> list[tuple[Path, Path]]:
    """(runs, report) of each report in the repository, the made-up one first."""
    found = [(path.parent / "runs", path) for path in sorted(RESULTS.glob("*/paper.md"))]
    return [(MADE_UP, HERE / "paper_report.md"), *found]


@pytest.mark.parametrize(("folder", "report"), kept_reports(), ids=lambda path: path.parent.name)
def test_a_kept_report_is_rebuilt_from_its_kept_runs(folder: Path, report: Path) -> None:
    assert markdown_of(folder) == report.read_text("utf-8")


def test_the_made_up_runs_are_those_that_the_code_makes(tmp_path: Path) -> None:
    write_made_up(tmp_path)

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in MADE_UP.iterdir()}


def test_the_papers_values_are_those_of_its_tables() -> None:
    tables = {table.id: [row.test_error for row in table.rows] for table in paper_values().tables}

    assert tables == {
        "table1-cifar10": [4.61, 6.14, 4.53, 4.49, 5.43, 4.14],
        "table1-cifar100": [20.60, 25.51, 21.45, 20.18, 22.48, 19.90],
        "table2-cifar10": [3.84, 3.70],
        "table2-cifar10-wrn28": [3.80, 3.70],
        "table2-cifar100": [19.24, 19.30],
        "table2-cifar100-wrn28": [18.48, 18.42],
    }


def test_every_value_and_ratio_names_a_point_of_its_preset(runs: PaperRuns) -> None:
    values = paper_values()

    for table in values.tables:
        points = [runs.arm(table.preset, row.params).config for row in table.rows]
        assert len(points) == len(runs.arms(table.preset))
    for ratio in values.ratios:
        assert runs.arm("paper-fig1b", ratio.over).params != ratio.under
        assert runs.arm("paper-fig1b", ratio.under)


def test_a_row_has_the_mean_the_interval_and_a_verdict(runs: PaperRuns) -> None:
    rows = {row.entry.name: row for row in compared_tables(runs)[0].rows}
    sgd = rows["SGD, BN with scales"]

    # 4.6, 4.7, 4.8: mean 4.7, deviation 0.1; the paper has 4.61 from three runs too.
    assert sgd.measured.mean == pytest.approx(4.7)
    assert sgd.measured.sd == pytest.approx(0.1)
    assert sgd.difference == pytest.approx(0.09)
    half = t_quantile(0.975, 2) * 0.1 * math.sqrt(2 / 3)
    assert (sgd.low, sgd.high) == (pytest.approx(0.09 - half), pytest.approx(0.09 + half))
    assert sgd.verdict == "agrees"
    assert rows["ND-Adam, no scales, BN-Softmax"].verdict == "higher"
    assert rows["SGD, no scales, BN-Softmax"].verdict == "one run, no interval"
    assert rows["SGD, no scales, BN-Softmax"].difference == pytest.approx(-0.49)
    assert rows["Adam, no scales, BN-Softmax"].verdict == "not run"


def test_arms_of_a_part_are_compared_with_each_other(runs: PaperRuns) -> None:
    differences = {(d.over, d.under): d for d in compared_tables(runs)[0].differences}

    assert set(differences) == {("SGD", "Adam"), ("SGD", "ND-Adam"), ("Adam", "ND-Adam")}
    assert differences["Adam", "ND-Adam"].verdict == "higher"
    assert differences["Adam", "ND-Adam"].low > 0
    assert differences["SGD", "ND-Adam"].verdict == "not shown"


def test_a_method_is_compared_with_itself_between_the_parts(runs: PaperRuns) -> None:
    """Of the five arms SGD's second has one seed and Adam's none."""
    [gain] = compared_tables(runs)[0].gains

    assert (gain.of, gain.over, gain.under) == (
        "ND-Adam",
        "no scales, BN-Softmax",
        "BN with scales",
    )
    # 5.0, 5.1, 5.2 against 4.4, 4.5, 4.6: alone in its family, so Holm leaves p as it is.
    half = t_quantile(0.975, 4) * 0.1 * math.sqrt(2 / 3)
    assert gain.difference == pytest.approx(0.6)
    assert (gain.low, gain.high) == (pytest.approx(0.6 - half), pytest.approx(0.6 + half))
    assert gain.verdict == "higher"
    assert compared_tables(runs)[2].gains == ()


def test_figure_2_is_read_at_parts_of_the_run(runs: PaperRuns) -> None:
    """Reports at four quarters; before the first of them there is only the first."""
    sgd, adam, _ = progress(runs)

    assert sgd.errors == pytest.approx((0.4, 0.4, 0.2, 0.1, 0.047))
    assert adam.errors == pytest.approx((0.4, 0.4, 0.2, 0.1, 0.062))
    assert (sgd.n, sgd.arm.params) == (3, {"optimizer": "sgd"})


def test_ratios_of_figure_1b_are_means_over_the_middle_of_the_run(runs: PaperRuns) -> None:
    overlap, decay, halved, matched = measured_ratios(runs)
    # Over steps 20,000 to 60,000 of 80,000, in logarithms.
    first = ((4 / 3) * 1 * 1) ** (1 / 3)
    second = ((4 / 3) * (5 / 4) * (40 / 28)) ** (1 / 3)

    at = overlap.at("conv5")
    assert at is not None
    assert at.ratio == pytest.approx(first)
    assert (at.least, at.most) == (pytest.approx(1), pytest.approx(4 / 3))
    assert at.fraction_inside == 0.75
    assert (overlap.verdict, at.verdict) == ("differs", "differs")
    # At conv1, where the curves run backwards, the first two are one over the middle.
    assert [row.verdict for row in overlap.layers] == ["agrees", "differs"]
    assert (overlap.num_agreeing, decay.num_agreeing) == (1, 2)
    there = decay.at("conv5")
    assert there is not None
    assert there.ratio == pytest.approx(second)
    # It is not the 2 of a proportional change, as the paper says.
    assert decay.verdict == "agrees"
    assert halved.verdict == "not run"
    assert halved.layers == ()
    assert matched.low == pytest.approx(matched.high)


def test_ratios_of_figure_1b_stand_beside_what_the_laws_give(runs: PaperRuns) -> None:
    """SGD's rate settles at sqrt(2 lr lambda / (1 + mu)); ND-Adam's is proportional to alpha^v."""
    overlap, decay, halved, matched = (found.by_law for found in measured_ratios(runs))

    assert overlap == pytest.approx(1, abs=1e-3)
    # Norms need longer to settle with less decay, hence not quite the root of 2.
    assert decay == pytest.approx(math.sqrt(2), abs=0.03)
    assert halved == pytest.approx(2, abs=5e-3)
    # In equilibrium, its geometric mean over the middle of a cosine.
    cosine = [0.5 * (1 + math.cos(math.pi * (0.25 + 0.5 * i / 999))) for i in range(1000)]
    sgd = [math.sqrt(2 * 0.1 * c * 1e-3 / 1.9) for c in cosine]
    ndadam = [0.05 * c * math.sqrt(0.1 / 1.9) for c in cosine]
    settled = math.exp(sum(math.log(a / b) for a, b in zip(sgd, ndadam, strict=True)) / 1000)
    assert matched == pytest.approx(settled, rel=0.02)
    assert "puts α^v at 0.0506 by the laws, where the paper found 0.05" in law_note(runs)


def test_the_balance_of_figure_1a_is_read_at_three_times(runs: PaperRuns) -> None:
    (row,) = balance_by_layer(runs)

    assert row.layer == "conv5"
    assert (row.start, row.end) == (pytest.approx(-0.2), pytest.approx(-0.1))
    assert row.middle == pytest.approx((-0.2 - 0.9 - 0.8) / 3)
    assert "undoes 63 % of decay's at conv5, 63 to 63 %" in balance_note(runs, [row])
    assert "Theory gives 49.9 %" in balance_note(runs, [row])


def test_steps_that_float32_rounds_away_are_no_balance() -> None:
    """A weight that does not move looks as if the gradient had undone all of its decay."""
    ends = {"effective_lr/conv5": 1e-9, "projection_ratio/conv5": -1.0}
    results = []
    for result in made_up_results():
        [group] = result.curves
        values = {k: [*v[:-1], ends.get(k, v[-1])] for k, v in group.values.items()}
        curves = [group.model_copy(update={"values": values})]
        results.append(result.model_copy(update={"curves": curves}))
    runs = PaperRuns(map(run_of_result, results))
    [arm] = runs.arms("paper-fig1a")

    curve = balance_curve(arm, "conv5", "SGD")
    assert curve is not None
    assert (curve.steps, curve.mean) == (
        (20_000, 40_000, 60_000),
        pytest.approx((-0.2, -0.9, -0.8)),
    )
    assert balance_by_layer(runs)[0].end == pytest.approx(-0.8)


def test_a_claim_shares_runs_with_the_tables(runs: PaperRuns) -> None:
    claims = {found.claim.preset: found for found in compared_claims(runs)}

    assert [arm.measured.n for arm in claims["paper-adam-l2"].arms] == [3, 0, 0, 0]
    assert claims["paper-gamma-depth"].metric == "validation_error"
    assert claims["paper-gamma-depth"].num_runs == 0


def test_another_precision_belongs_to_its_arm_but_is_never_mixed_in() -> None:
    results = made_up_results()
    sgd = [r for r in results if r.config["optimizer"] == "sgd" and r.config["lr"] == 0.1]
    table = [
        r for r in sgd if r.config["bn_scale"] == "trainable" and r.metrics["test_error"] < 0.05
    ]
    exact = [
        r.model_copy(update={"config": r.config | {"precision": "fp32"}, "seed": r.seed + 10})
        for r in table
    ]
    params = {"optimizer": "sgd", "bn_scale": "trainable"}

    def arm(found: list) -> list[str]:  # type: ignore[type-arg]
        return [
            run.precision
            for run in PaperRuns(map(run_of_result, found)).arm("paper-table1-cifar10", params).runs
        ]

    assert arm(table + exact) == ["bf16"] * 3
    assert arm(exact) == ["fp32"] * 3
    shorter = [r.model_copy(update={"config": r.config | {"steps": 70_000}}) for r in table]
    assert arm(shorter) == []


def test_the_seed_of_a_split_matters_where_something_is_split_off() -> None:
    """Errors on other held-out images are no more seeds of the same arm."""
    config = PaperRuns(()).arms("paper-gamma-depth")[0].config
    whole = PaperRuns(()).arms("paper-fig1a")[0].config

    assert what_was_trained(config) != what_was_trained(config | {"split_seed": 1})
    assert what_was_trained(whole) == what_was_trained(whole | {"split_seed": 1})


def test_the_store_gives_the_same_numbers_as_the_folder(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_made_up(results)
    for path in results.iterdir():
        text = path.read_text().replace('"spec":"made-up"', '"spec":"paper-table1-cifar10"')
        path.write_text(text)
    keep_specs(results, [SweepSpec.model_validate(read_preset("paper-table1-cifar10").spec)])
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.migrate()
    import_results(store, results)

    from_store = paper_document(PaperRuns(runs_of_store(store)))
    store.close()
    from_folder = paper_document(PaperRuns(runs_of_folder(results)))
    tables = [
        [block for block in document.blocks if isinstance(block, Table)][:-1]
        for document in (from_store, from_folder)
    ]
    assert tables[0] == tables[1]


def test_kept_runs_are_small_and_give_the_same_report(tmp_path: Path) -> None:
    assert keep_runs(MADE_UP, tmp_path) == 15
    assert not (tmp_path / "specs").exists()
    assert markdown_of(tmp_path) == markdown_of(MADE_UP)
    plain = next(r for r in made_up_results() if r.config["gamma_c"] is not None)
    kept = (tmp_path / f"{plain.config_key}-{plain.seed}.json").read_text()
    assert "effective_lr" not in kept


def test_kept_runs_have_the_specs_they_belong_to_beside_them(tmp_path: Path) -> None:
    kept = RESULTS / "cifar10" / "runs"
    keep_runs(kept, tmp_path)

    names = sorted(path.name for path in tmp_path.glob("specs/*"))
    assert names == sorted(path.name for path in kept.glob("specs/*")) != []


def test_a_report_without_runs_says_what_is_missing() -> None:
    text = to_markdown(paper_document(PaperRuns([])))

    assert "0 finished runs were found" in text
    for tried in (*paper_values().tables, *paper_values().claims):
        assert f"Not run. Its preset is {tried.preset}." in text
        assert f"- {tried.preset}: nothing of it" in text
    assert text.count("Not run. Its preset is") == 16
    assert "The paper's errors: SGD 18.48; ND-Adam 18.42." in text


def test_arms_with_too_few_seeds_are_named(document: Document) -> None:
    text = to_markdown(document)

    assert (
        "- paper-table1-cifar10: SGD, no scales, γ_C = 2.5 (1 of 3 seeds); Adam, no scales" in text
    )


def test_a_layer_has_a_verdict_and_a_claim_without_runs_a_place(document: Document) -> None:
    text = to_markdown(document)

    assert "| agree | 1 of 2 | 2 of 2 | – | 1 of 2 |" in text
    assert re.search(r"\| conv5 \| 1\.101 differs \| 1\.335 agrees \| – \| ", text)
    assert '### γ_C and depth\n\nThe paper: the best γ_C "varies with network depth". Not' in text


def test_the_readme_s_table_is_that_of_the_kept_runs() -> None:
    tables = compared_tables(PaperRuns(runs_of_folder(RESULTS / "cifar10" / "runs")))
    readme = (RESULTS.parents[1] / "README.md").read_text("utf-8")
    rows = [row for table in tables for row in table.rows if row.measured.n]

    assert len(rows) >= 8
    for row in rows:
        ours = row.measured
        assert None not in (ours.mean, ours.low, ours.high, row.difference, row.low, row.high)
        shown = (
            f"| {row.entry.test_error:.2f} | {ours.mean:.2f} [{ours.low:.2f}, {ours.high:.2f}] "
            f"| {ours.n} | {row.difference:+z.2f} [{row.low:+z.2f}, {row.high:+z.2f}] |"
        )
        assert shown.replace("-", "−") in readme
    furthest = max(abs(row.difference or 0) for row in tables[0].rows)
    within = math.ceil(100 * furthest - 1e-6) / 100
    assert f"Every mean of Table 1 is within {within:.2f} points" in readme


def test_the_page_is_one_well_formed_file_that_loads_nothing(document: Document) -> None:
    html = to_html(document)

    assert html.count("<svg ") == 4
    assert not re.search(r"""(?:src|href)=["'](?!#)""", html)
    assert "url(http" not in html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    body = html[html.index("<main>") : html.index("</main>") + len("</main>")]
    assert ET.fromstring(body.replace("xlink:href", "href")).tag == "main"
    assert "4.70" in html


def test_latex_escapes_what_it_would_read(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "paper.tex"
    written = write_report(document, "latex", out, None)
    text = out.read_text("utf-8")

    assert {path.suffix for path in written} == {".tex", ".svg", ".pdf"}
    assert r"within 0.25 points" in text
    assert r"95 \% interval" in text
    assert r"$\gamma_C$" in text
    assert "$$" not in text
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    opened: list[str] = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if verb == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    assert re.search(r"[^\x00-\x7fäöü“”]", text) is None
    for name in re.findall(r"\\includegraphics\[[^]]*\]\{([^}]+)\}", text):
        assert (tmp_path / name).read_bytes().startswith(b"%PDF")


def test_figures_beside_markdown_are_linked_and_else_inside(
    document: Document, tmp_path: Path
) -> None:
    write_report(document, "md", tmp_path / "docs" / "paper.md", tmp_path / "figures")

    assert "(../figures/figure-1a.svg)" in (tmp_path / "docs" / "paper.md").read_text("utf-8")
    assert "(data:image/svg+xml;base64," in report_text(document, "md")
    assert (tmp_path / "figures" / "figure-2.svg").read_text("utf-8").startswith("<svg ")


def test_the_same_runs_give_the_same_file(runs: PaperRuns) -> None:
    assert to_html(paper_document(runs)) == to_html(paper_document(runs))
    assert to_latex(paper_document(runs), lambda p: p.drawing.name) == to_latex(
        paper_document(runs), lambda p: p.drawing.name
    )
