"""``ndsweep match``: predicted, run, and its curves."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from service.cli.app import app
from tests.service.one_line import one_line
from worker.config.train_config import TrainConfig


def test_match_predict_answers_without_a_service():
    result = CliRunner().invoke(
        app, ["match", "predict", "lr=0.1", "momentum=0.9", "weight_decay=1e-3", "--json"]
    )

    found = json.loads(result.stdout)
    assert found["criteria"][0]["rate"] == pytest.approx(0.04496, rel=1e-3)


def test_match_predict_marks_the_usual_criterion_and_says_from_where_to_where_to_trust_it():
    setting = ["lr=0.1", "momentum=0.9", "weight_decay=1e-3"]
    drop = ["--lr-schedule", "[[0, 1], [39999, 1], [40000, 0.1]]"]
    plain, dropped, short = (
        " ".join(CliRunner().invoke(app, ["match", "predict", *setting, *more]).stdout.split())
        for more in ([], drop, ["--steps", "500"])
    )

    assert "to be trusted from step 1000 until step 80000" in plain
    assert "stationary ← 0.0450" in plain
    assert "--json" not in plain
    assert "least_squares ← 0.04" in dropped
    assert "The rate of schedule is its largest; --json prints its points." in dropped
    assert "to be trusted at no step of 500" in short


def test_a_field_that_is_given_twice_is_refused():
    result = CliRunner().invoke(app, ["match", "predict", "lr=0.1", "weight_decay=1e-3", "lr=0.2"])

    assert result.exit_code == 2
    assert "lr is given twice, at last as 'lr=0.2'" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["lr=[0", "weight_decay=1e-3"], "lr cannot be read, got '[0'"),
        (["lr=0.1", "--lr-schedule", "[[0, 1"], "--lr-schedule cannot be read, got '[[0, 1'"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(arguments, name):
    assert name in one_line(CliRunner().invoke(app, ["match", "predict", *arguments]))


def test_match_run_submits_a_match(ndsweep, tmp_path, match_spec, store, live):
    path = tmp_path / "match.yaml"
    path.write_text(yaml.safe_dump(match_spec))

    result = ndsweep("match", "run", path, "--detach")

    match = store.list_sweeps(kind="match").items[0]
    assert result.stdout == f"{match.id}  {live}/matches/{match.id}\n"


def test_match_run_takes_a_recorded_source_and_a_comparison(ndsweep, tmp_path, match_spec, store):
    path, curve = tmp_path / "match.yaml", tmp_path / "theirs.csv"
    path.write_text(yaml.safe_dump(match_spec))
    rows = "".join(f"{step},0.0103\n" for step in range(0, 20_000, 5))
    curve.write_text(f"step,effective_lr\n{rows}")
    options = ["--source-curve", curve, "--compare", "4", "--margin", "0.005", "--detach"]

    ndsweep("match", "run", path, *options)

    spec = store.list_sweeps(kind="match").items[0].spec
    assert spec["source"]["curve"]["every"] == 5
    assert len(spec["source"]["curve"]["values"]) == 4000
    assert spec["compare"] == {"margin": 0.005, "replicates": 4, "metric": "test_error"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--compare", "4"], "needs --margin"),
        (["--source-curve", "gap.csv"], "step 1 is followed by 5"),
        (["--source-trial", "abc"], "expected SWEEP/NUMBER"),
    ],
)
def test_match_run_says_what_is_wrong_with_its_options(
    tmp_path, monkeypatch, match_spec, options, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "match.yaml").write_text(yaml.safe_dump(match_spec))
    (tmp_path / "gap.csv").write_text("step,effective_lr\n0,0.01\n1,0.01\n5,0.01\n")

    result = CliRunner().invoke(app, ["match", "run", "match.yaml", *options])

    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


def test_match_curve_prints_what_a_config_follows(tmp_path):
    shown = CliRunner().invoke(
        app,
        ["match", "curve", "lr=0.1", "momentum=0.9", "weight_decay=1e-3", "--steps", "2400"],
    )
    follow = [tuple(point) for point in yaml.safe_load(shown.stdout)["follow"]]

    config = TrainConfig(follow=follow, steps=2400)
    assert config.follow[0] == (0, pytest.approx(0.01026, rel=1e-3))
    assert 100 < len(follow) <= 1000

    path = tmp_path / "curve.csv"
    path.write_text("step,effective_lr\n" + "".join(f"{i},0.02\n" for i in range(1000)))
    shown = CliRunner().invoke(app, ["match", "curve", "--csv", str(path)])
    values = {value for _, value in yaml.safe_load(shown.stdout)["follow"]}
    assert values == {0.02}


def test_match_curve_takes_what_a_match_measured(ndsweep, store, match_spec):
    match, _ = store.create_sweep("match", match_spec, name="m", tags=[], notes="", num_trials=None)
    claim = store.claim("tester")
    store.set_result(claim, {"curves": {"steps": [5, 15], "source": [0.011, 0.012]}})

    result = ndsweep("match", "curve", "--match", match.id)

    assert yaml.safe_load(result.stdout) == {"follow": [[5, 0.011], [15, 0.012]]}


def test_match_curve_of_a_formula_says_from_where_it_is_not_to_be_trusted():
    setting = ["lr=0.1", "weight_decay=1e-3", "--steps", "4000"]
    drop = ["--lr-schedule", "[[0, 1], [3999, 0.01]]"]
    falling = CliRunner().invoke(app, ["match", "curve", *setting, *drop])
    constant = CliRunner().invoke(app, ["match", "curve", *setting])

    assert "on do not trust this curve" in falling.stderr
    assert yaml.safe_load(falling.stdout)["follow"][-1][1] < 0.001
    assert constant.stderr == ""
