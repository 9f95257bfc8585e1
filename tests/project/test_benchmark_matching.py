"""The benchmark of matching, on a scale that a test can afford."""

import json

import numpy as np
import pytest

from benchmarks.lockstep import run_matches
from benchmarks.match_training import Workshop
from benchmarks.matching import benchmark_predict
from benchmarks.matching_nets import Cell, _crossing, points_of_curve
from benchmarks.matching_noise import NoiseRuns, benchmark_noise, noise_spec, true_rate
from benchmarks.matching_table import table
from ndadam.theory import stationary_effective_lr
from sweeps.match_arms import setting_of
from sweeps.match_series import Recorded
from worker.digits import prepare_digits
from worker.measurement import Measurement


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


def test_whole_matches_run_in_lockstep_and_give_a_table(tmp_path):
    found = benchmark_noise(2)
    (tmp_path / "noise.json").write_text(json.dumps(found))
    shown = table(tmp_path)

    assert abs(found["bias"]) < 0.03
    assert found["matched said at"]["+0 %"] == 1.0
    assert "| coverage of the 95 % interval | " in shown
    assert "| “matched” at a mismatch of exactly +5 % | " in shown


def test_predictions_are_timed_for_every_target():
    assert set(benchmark_predict(1)["milliseconds"]) == {"ndadam", "adamw", "sgd", "sgdw"}


def test_a_run_is_trained_once_and_read_from_its_file_after_that(tmp_path, monkeypatch):
    prepare_digits(tmp_path / "data")
    shop = Workshop(tmp_path / "out", tmp_path / "data")
    config = Cell("mlp", "constant", 1e-3, 0.99).spec().source_config
    config = config.model_copy(update={"steps": 5, "report_every": 5})
    wanted = [(config, Measurement(every=1, shadow_betas=(0.9, 0.99)))]

    first = shop.runs(wanted)
    monkeypatch.setattr("benchmarks.match_training._job", None)

    assert shop.runs(wanted) == first
    assert len(first[0].series["effective_lr"]) == len(first[0].series["shadow_step"]) == 5
    assert first[0].probe["counts"]["invariant"] > 0


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
    points = points_of_curve(Recorded(2, tuple([0.01] * 5000)))

    assert len(points) <= 1000
    assert points[-1][0] < 10_000
    assert {value for _, value in points} == {pytest.approx(0.01)}


def test_nothing_is_trained_for_no_matches():
    assert run_matches([], lambda wanted: []) == []
