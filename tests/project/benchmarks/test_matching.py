"""The benchmark of matching, on a scale that a test can afford."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lockstep import TrainedRun, run_matches
from benchmarks.matching.__main__ import benchmark_predict
from benchmarks.matching.coverage import Reference, benchmark_coverage, coverage_spec
from benchmarks.matching.intervals import TOLERANCE, shares
from benchmarks.matching.nets import Cell, _crossing, benchmark_nets, points_of_curve
from benchmarks.matching.noise import NoiseRuns, benchmark_noise, noise_spec, true_rate
from benchmarks.matching.paper import benchmark_paper
from benchmarks.matching.plots import write_plots
from benchmarks.matching.rehearsal import _invented
from benchmarks.matching.table import table
from benchmarks.matching.training import StopTime, Workshop
from ndadam.theory.prediction import stationary_effective_lr
from sweeps.match.arms import setting_of
from sweeps.spec.presets import read_preset
from sweeps.spec.sweep_spec import SweepSpec


def test_the_noise_model_moves_as_both_laws_say():
    """SGD to its e*, ND-Adam to what its gain gives, each to a percent over 8 runs."""
    spec = noise_spec(0)
    rates = [true_rate(spec, rho) for rho in (0.0, 0.3)]
    configs = [spec.source_config] * 8 + [
        spec.target_config(rate) for rate in rates for _ in "1234"
    ]
    runs = NoiseRuns(configs, [0.0] * 4 + [0.3] * 4 + [0.0] * 4 + [0.3] * 4, seed=1)
    e = np.stack([runs.step() for _ in range(1500)], 1)[:, 500:]

    wanted = stationary_effective_lr(setting_of(spec.source_config))
    means = np.sqrt((e**2).mean(1)).reshape(4, 4).mean(1)
    assert means == pytest.approx([wanted] * 4, rel=0.012)
    assert runs.gains()[8:].reshape(2, 4).mean(1) == pytest.approx([1.0, 1.27 / 0.73], rel=0.05)


def test_whole_matches_run_in_lockstep_and_give_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.matching.noise.LOT", 1)
    shop = Workshop(tmp_path, tmp_path, processes=2)
    found = benchmark_noise(shop, 2, mismatches=(TOLERANCE,))
    (tmp_path / "noise.json").write_text(json.dumps(found))
    shown = table(tmp_path)

    assert abs(found["bias"]) < 0.03
    assert found["matched said at"] == {"+5 %": 0.0}
    assert "| coverage of the 95 % interval | " in shown
    assert "| “matched” at a mismatch of exactly +5 % | " in shown


def test_predictions_are_timed_for_every_target():
    assert set(benchmark_predict(1)["milliseconds"]) == {"ndadam", "adamw", "sgd", "sgdw"}


def test_every_cell_is_a_match_that_can_end():
    for network in ("digits", "mlp", "cifar-gpu"):
        for schedule, criterion in (("constant", "stationary"), ("cosine", "least_squares")):
            spec = Cell(network, schedule, 5e-4, 0.999).spec()
            assert spec.chosen_criterion() == criterion
    assert Cell("mlp", "constant", 5e-4, 0.999).spec().chosen_window() == (3500, 6000)


def test_the_grids_answer_lies_where_its_log_ratio_crosses_zero():
    gaps = [(x / 10, -0.9 * (x / 10 - 0.13)) for x in range(-4, 5)]
    assert _crossing(gaps) == pytest.approx(0.13)


def test_a_recorded_curve_becomes_points_that_a_config_takes():
    points = points_of_curve([0.01] * 5000, 2)

    assert len(points) <= 1000
    assert points[-1][0] < 10_000
    assert [value for _, value in points] == pytest.approx([0.01] * len(points))


def test_nothing_is_trained_for_no_matches():
    assert run_matches([], lambda wanted: []) == []


def test_parts_with_curves_are_tabled_and_drawn(tmp_path):
    arm = {"mean": 0.02, "sd": 0.001, "low": 0.019, "high": 0.021, "n": 10}
    found = {"difference": 0.001, "low": -0.001, "high": 0.003, "non_inferior": True}
    worth = {
        "part": "worth",
        "problem": "mlp",
        "steps": 3000,
        "margin": 0.01,
        "matched alpha_v": 0.047,
        "tuned alpha_v": 0.06,
        "curve": [{"alpha_v": a, "validation_error": 0.03} for a in (0.01, 0.1)],
        "arms": {"tuned SGD": arm, "ND-Adam, matched": arm},
        "comparisons": {"matched against tuned SGD": found},
        "seconds": {"match": 12.0},
    }
    layers = {
        name: {"sgd": [0.01, 0.02], "ndadam": [0.008, 0.01]}
        for name in ("effective_lr", "effective_lr/conv1")
    }
    paper = {
        "part": "paper",
        "steps": 80_000,
        "by hand": {
            "alpha_v": 0.05,
            "source over target": 1.2,
            "inside 5 %": 0.3,
            "rms log": 0.2,
        },
        "matched": {"alpha_v": 0.06},
        "rates": {
            "least_squares": {"predicted": 0.0503, "measured": 0.049},
            "schedule": {"predicted": 0.045, "measured": None},
        },
        "curves": layers,
        "gain": 0.95,
        "stretch": 40_000,
        "test_error": [0.045, None],
        "seconds": [10.0, 11.0],
    }
    for name, part in (("worth-mlp", worth), ("paper", paper)):
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    shown = table(tmp_path)
    paths = write_plots(tmp_path, tmp_path / "plots")

    assert "- matched against tuned SGD: +0.10 points [-0.10, +0.30], not inferior" in shown
    assert "| least squares | 0.0503 | 0.0516 | 0.0490 |" in shown
    assert "- α^v 0.05, by hand: SGD over ND-Adam 1.200, inside ±5 % for 0.30" in shown
    assert "- α^v 0.06, matched: not trained" in shown
    assert "| 0 to 4,000 | 1.25 | 1.25 to 1.25 | 1.00 | 22.3 % |" in shown
    assert "| 40,000 to 48,000 | 2.00 | 2.00 to 2.00 | 2.24 | 69.3 % |" in shown
    assert "layers ask for: conv1 0.0854." in shown
    assert "Test errors of SGD, ND-Adam by hand, matched: 4.50 %, –; seconds: 10, 11." in shown
    assert sorted(path.name for path in paths) == ["matching-paper.svg", "matching-worth-mlp.svg"]
    assert all("</svg>" in path.read_text() for path in paths)


def test_the_papers_rates_in_the_docs_are_those_of_the_kept_part(tmp_path):
    benchmarks = Path(__file__).parents[3] / "docs" / "benchmarks"
    shutil.copy(benchmarks / "matching-paper.json", tmp_path / "paper.json")
    rows = re.findall(r"^\| (least squares|equal \w+) \| (.*) \|$", table(tmp_path), re.MULTILINE)
    text = (benchmarks / "matching.md").read_text("utf-8").replace("**", "")

    assert len(rows) == 3
    for criterion, rates in rows:
        assert f"| {criterion} | {rates} |" in text


def test_the_papers_setting_is_answered_from_its_measured_curves(tmp_path):
    """SGD moves 1.2 times as fast as ND-Adam at 0.05, whose rate goes with its learning rate."""

    class Shop:
        def __init__(self):
            self.late, self.configs = False, []

        def runs(self, wanted):
            self.configs.extend(config for config, _ in wanted)
            if self.late and len(wanted) == 1:
                raise StopTime
            return [self.trained(config, measurement.every) for config, measurement in wanted]

        def trained(self, config, every):
            rate = 1.2 * 0.05 if config.optimizer == "sgd" else config.alpha_v
            steps = range(0, config.steps, every)
            values = [rate * (1 + math.cos(math.pi * t / config.steps)) / 8 for t in steps]
            series = {"effective_lr": values, "effective_lr/conv1": values}
            metrics = {"gain": 0.95, "test_error": 0.045}
            return TrainedRun(series, every, metrics, {}, 10.0)

    shop = Shop()
    part = benchmark_paper(shop, steps=8000)
    shop.late = True
    stopped = benchmark_paper(shop, steps=8000)

    assert part["rates"]["least_squares"]["measured"] == pytest.approx(0.06, rel=1e-6)
    assert part["by hand"]["source over target"] == pytest.approx(1.2)
    assert part["by hand"]["inside 5 %"] == 0
    assert part["matched"]["alpha_v"] == pytest.approx(0.06)
    assert part["matched"]["inside 5 %"] == 1
    assert len(part["seconds"]) == 3
    assert stopped["matched"] == {"alpha_v": pytest.approx(0.06)}
    of_the_figure = SweepSpec.model_validate(read_preset("paper-fig1b").spec)
    for config, point in zip(shop.configs[:2], (0, 3), strict=True):
        wanted = of_the_figure.config(of_the_figure.initial_points[point], 0).resolved()
        reported = {"steps": 8000, "report_every": 390, "test_evaluation": "end"}
        assert config == wanted.model_copy(update=reported)


# --- Many matches on a real network ---------------------------------------------------------------


def test_shares_count_what_intervals_hold_and_a_match_without_an_answer_holds_nothing():
    answers = [
        {"value": 1.0, "low": 0.9, "high": 1.1},
        {"value": 1.2, "low": 1.1, "high": 1.3},
        None,
    ]
    found = shares(answers, ["matched", "not shown", "not matchable"], [1.0, 1.0, 1.0])

    assert found["coverage"] == found["matched"] == pytest.approx(1 / 3)
    assert found["bias"] == pytest.approx(math.sqrt(1.2) - 1)


def test_a_reference_knows_the_rate_at_every_mismatch():
    """Two seeds each, targets e = 2 rate^0.9, a source at 0.1."""
    rates = [0.04, 0.05, 0.06]
    logs = [[math.log(2) + 0.9 * math.log(rate) + s for s in (-0.01, 0.01)] for rate in rates]
    found = Reference._through(rates, [[math.log(0.1)] * 2, *logs])

    assert 2 * found.rate(0.0) ** 0.9 == pytest.approx(0.1, rel=1e-5)
    assert 2 * found.rate(0.05) ** 0.9 == pytest.approx(0.105, rel=1e-5)
    assert 2 * found.rate(-0.05) ** 0.9 == pytest.approx(0.1 / 1.05, rel=1e-5)
    assert found.error == pytest.approx(0.01 / math.sqrt(3) / 0.9)


def test_matches_of_a_network_are_kept_one_by_one_and_counted(tmp_path, monkeypatch):
    """Runs are invented; the third match is still missing when time is up."""
    trained = []

    def invented(config, measurement, home, until):
        trained.append(config.seed)
        if len(trained) > 2 * 10:
            return None
        empty = {"effective_lr": [], "effective_lr/linear1": []}
        run = TrainedRun(empty, 1, {"gain": 1.0, "effective_lr/linear1": 0.01}, {}, 0.0)
        return _invented(config, measurement, run)

    def runs(self, wanted):
        empty = TrainedRun({"effective_lr": []}, 1, {}, {}, 0.0)
        return [_invented(config, measurement, empty) for config, measurement in wanted]

    monkeypatch.setattr("benchmarks.matching.coverage.train_one", invented)
    monkeypatch.setattr(Workshop, "runs", runs)
    found = benchmark_coverage("mlp", Workshop(tmp_path, tmp_path), 3)
    (tmp_path / "coverage-mlp.json").write_text(json.dumps(found))

    assert found["stopped"] == "1 of 3 matches were not begun"
    assert found["truth"] == pytest.approx(0.064, rel=0.02)
    assert found["matched said at"] == {"+1 %": 1.0, "+5 %": 0.0}
    assert len(set(trained[:10])) == 4  # three of source and verdict, one of the calibration
    assert "## The real network mlp, 2 whole matches" in table(tmp_path)
    assert coverage_spec("mlp", 1).seeds() == [10_100, 10_101, 10_102]


def test_matches_keep_their_answers_when_time_is_up_among_the_grids(tmp_path, monkeypatch):
    """The matches are complete, and of two grids the first."""
    both = [Cell("mlp", "constant", decay, 0.99) for decay in (1e-3, 5e-4)]
    asked = []

    def runs(self, wanted):
        asked.append(len(wanted))
        if len(wanted) > 50:
            raise StopTime("26 of 58 runs of this stage have ended")
        made = []
        for config, measurement in wanted:
            names = ["effective_lr", "effective_lr/linear1", "shadow_step"]
            run = TrainedRun({n: [] for n in names}, 1, {"effective_lr/linear1": 0.01}, {}, 1.0)
            made.append(_invented(config, measurement, run))
        return made

    def has(self, wanted):
        return any(config.weight_decay == 1e-3 for config, _ in wanted)

    monkeypatch.setattr("benchmarks.matching.nets.cells", lambda network, steps: both)
    monkeypatch.setattr(Workshop, "runs", runs)
    monkeypatch.setattr(Workshop, "has", has)
    found = benchmark_nets("mlp", Workshop(tmp_path, tmp_path))
    (tmp_path / "mlp.json").write_text(json.dumps(found))
    shown = table(tmp_path)
    (plot,) = write_plots(tmp_path, tmp_path / "plots")

    assert plot.name == "matching-mlp.svg"
    assert found["stopped"] == "26 of 58 runs of this stage have ended"
    assert [row["cell"] for row in found["rows"]] == [str(cell) for cell in both]
    assert abs(found["rows"][0]["match off"]) < 0.02
    assert found["rows"][1]["match"] == pytest.approx(found["rows"][0]["match"] / 2**0.5, rel=0.05)
    assert found["rows"][1]["verdict"].startswith(("Matched", "Not shown"))
    assert found["rows"][1]["match off"] is found["rows"][1]["grid"] is None
    assert max(asked) == 6 + 2 * (24 + 2)
    assert "## mlp, 6000 steps, grids of 1 of 2 cells" in shown
    assert "within 4 % in 1 of 1 cells" in shown
