"""A match from its first source run to its verdict; the simulated trainer knows the truth."""

import json
import math

import pytest

from ndadam.theory.prediction import stationary_effective_lr, step_ratio
from sweeps.match.arms import AnyArm
from sweeps.match.proposer import MatchProposer
from sweeps.search.protocol import Finished, Wait
from tests.sweeps.match.match_simulation import World, match_spec, run


def roles(world):
    return [(trial.role, trial.seed) for trial in world.trials]


def true_alpha(spec, gain):
    """alpha^v at which ND-Adam's simulated rate is SGD's."""
    e = stationary_effective_lr(spec.source_setting)
    return e / step_ratio(0.9, gain) * (1 + e**2 / 0.02)


def test_a_match_runs_sources_calibration_and_fresh_verdicts_in_this_order():
    world = World()
    _, last = run(match_spec(), world)

    assert last == Finished("all done")
    assert roles(world) == [
        ("source", 0),
        ("source", 1),
        ("source", 2),
        ("calibration", 3),
        ("verdict", 0),
        ("verdict", 1),
        ("verdict", 2),
    ]
    assert [trial.point for trial in world.trials] == [0, 0, 0, 1, 2, 2, 2]


def test_sources_record_shadow_moments_and_every_run_its_layers():
    world = World()
    run(match_spec(), world)

    shadows = {trial.role: trial.measurement["shadow_betas"] for trial in world.trials}
    assert shadows == {"source": [0.9, 0.99], "calibration": None, "verdict": None}
    assert all(trial.measurement["per_layer"] for trial in world.trials)


def test_nothing_that_a_verdict_sees_was_used_to_choose_its_rate():
    world = World()
    run(match_spec(calibration_replicates=2), world)

    seeds = {role: {seed for r, seed in roles(world) if r == role} for role, _ in roles(world)}
    assert seeds["calibration"] == {3, 4}
    assert not seeds["calibration"] & seeds["verdict"]


def test_source_and_target_train_the_same_network_on_the_same_seeds():
    world = World()
    run(match_spec(), world)
    source, verdict = world.trials[0].config, world.trials[-1].config

    arm = {"optimizer", "lr", "momentum", "nesterov", "alpha_v", "alpha_s", "betas", "eps"}
    different = {name for name in source if source[name] != verdict[name]}
    assert different <= arm | {"weight_decay", "decay_on", "seed"}
    assert source["bn_scale"] == verdict["bn_scale"] == "trainable"


def test_waiting_names_what_is_waited_for():
    proposer = MatchProposer(match_spec(), world := World())
    for _ in range(3):
        proposer.running(world.start(proposer.next()))

    assert proposer.next() == Wait("waiting for 3 source trials")


def test_the_prediction_uses_the_measured_gain_and_the_verdict_is_matched():
    spec, world = match_spec(), World(gain=0.85)
    result = run(spec, world)[0].result()
    rows = {row["criterion"]: row for row in result["criteria"]}

    truth = true_alpha(spec, 0.85)
    assert rows["stationary"]["closed_form"] == pytest.approx(0.04496, abs=1e-5)
    assert rows["stationary"]["predicted"] == pytest.approx(truth, rel=0.02)
    assert result["verdict"]["state"] == "matched"
    assert result["verdict"]["rate"] == pytest.approx(truth, rel=0.02)
    measured = rows["stationary"]["measured"]
    assert measured["low"] < truth < measured["high"]
    assert result["verdict"]["fraction_inside"] > 0.8


def test_a_wrong_gain_is_corrected_until_a_run_is_close():
    """Shadow moments that are off by 40 % put the prediction 18 % off; the secant finds home."""
    spec, world = match_spec(), World(gain=0.9, shadow_gain=0.9 * 1.4, slope=0.85)
    result = run(spec, world)[0].result()

    assert len(result["calibration"]) == 2
    first, second = result["calibration"]
    assert first["log_ratio"] > 2 * math.log(1.05) > abs(second["log_ratio"])
    assert first["slope"] == 1.0
    assert second["slope"] == pytest.approx(0.85, abs=0.05)
    assert result["verdict"]["state"] == "matched"


def test_without_corrections_a_wrong_prediction_is_not_shown():
    world = World(gain=0.9, shadow_gain=0.9 * 1.4)
    result = run(match_spec(max_corrections=0), world)[0].result()

    assert [role for role, _ in roles(world)] == ["source"] * 3 + ["verdict"] * 3
    assert result["verdict"]["state"] == "not shown"
    assert "differ by more than the tolerance" in result["verdict"]["sentence"]
    rows = {row["criterion"]: row for row in result["criteria"]}
    truth = true_alpha(match_spec(), 0.9)
    # The runs still tell where the answer is.
    assert rows["stationary"]["measured"]["value"] == pytest.approx(truth, rel=0.02)


def test_seeds_that_differ_too_much_are_not_shown_rather_than_matched():
    result = run(match_spec(), World(seed_sd=0.06))[0].result()

    assert result["verdict"]["state"] == "not shown"
    assert result["verdict"]["interval_from"] == "seeds"


def test_a_verdict_names_criterion_tolerance_interval_and_seeds():
    sentence = run(match_spec(), World())[0].result()["verdict"]["sentence"]

    for part in ("Matched (stationary, ±5 %", "of the run", "95 % interval", "over 3 seeds"):
        assert part in sentence


def test_layers_say_what_each_alone_would_ask_for():
    result = run(match_spec(), World())[0].result()

    layers = {row["layer"]: row for row in result["layers"]}
    assert layers["conv2"]["kind"] == "invariant"
    assert layers["conv1"]["implied_rate"] == pytest.approx(result["verdict"]["rate"], rel=0.05)
    for row in layers.values():
        assert row["implied_low"] < row["implied_rate"] < row["implied_high"]
    assert result["classes"]["invariant"] == 48


def test_curves_cost_and_progress_are_reported():
    result = run(match_spec(), World())[0].result()
    curves = result["curves"]

    assert result["stage"] == "done"
    assert result["progress"] == 1.0
    assert len(curves["steps"]) == len(curves["source"]) == len(curves["target"]) <= 500
    assert len(curves["formula"]) == len(curves["steps"])
    assert all(
        low <= middle <= high
        for low, middle, high in zip(
            curves["target_low"], curves["target"], curves["target_high"], strict=True
        )
    )
    assert result["cost"] == [
        {"stage": "source", "trials": 3, "steps": 7200, "seconds": 30.0},
        {"stage": "calibration", "trials": 1, "steps": 2400, "seconds": 10.0},
        {"stage": "verdict", "trials": 3, "steps": 7200, "seconds": 30.0},
    ]


def test_every_result_on_the_way_is_plain_json_without_nan():
    spec, world = match_spec(), World()
    stages, progress = [], []
    for ended in range(8):
        proposer, _ = (
            run(spec, world, stop_after=ended)
            if ended
            else (
                MatchProposer(spec, world),
                None,
            )
        )
        result = proposer.result()
        json.dumps(result, allow_nan=False)
        stages.append(result["stage"])
        progress.append(result["progress"])

    assert stages == ["source"] * 3 + ["calibration"] + ["verdict"] * 3 + ["done"]
    assert progress == sorted(progress)
    assert progress[0] == 0.0
    assert progress[-1] == 1.0


def test_under_a_cosine_least_squares_matches_only_part_of_the_run():
    spec = match_spec(base={"lr_schedule": "cosine", "steps": 4000})
    result = run(spec, World())[0].result()

    assert result["criterion"] == "least_squares"
    assert result["verdict"]["state"] == "matched"
    assert result["verdict"]["window"] == (200, 3800)
    assert result["verdict"]["fraction_inside"] < 0.5
    assert "least squares" in result["verdict"]["sentence"]
    rows = {row["criterion"]: row for row in result["criteria"]}
    for criterion in ("least_squares", "equal_rotation", "equal_mean"):
        row = rows[criterion]
        assert row["measured"]["low"] < row["predicted"] < row["measured"]["high"] * 1.02
        # The closed form knows A = 1 only.
        assert row["closed_form"] == pytest.approx(row["predicted"] * math.sqrt(0.9), rel=0.03)
    assert rows["stationary"]["measured"] is None


def test_the_schedule_criterion_follows_the_source_all_the_way():
    spec = match_spec(
        base={"lr_schedule": "cosine", "steps": 4000}, criterion="schedule", replicates=4
    )
    world = World()
    result = run(spec, world)[0].result()
    verdict = world.trials[-1].config

    assert result["verdict"]["state"] == "matched"
    assert result["verdict"]["fraction_inside"] > 0.9
    assert verdict["lr_schedule"] == [list(point) for point in result["verdict"]["schedule"]]
    assert verdict["alpha_s_schedule"] == "cosine"
    assert len(result["verdict"]["schedule"]) <= 1000
    rates = {row["criterion"]: row["predicted"] for row in result["criteria"]}
    assert rates["schedule"] == rates["equal_rotation"]


def test_adamw_can_be_the_target():
    spec = match_spec(target=AnyArm(optimizer="adamw", weight_decay=1.0), base={"steps": 3500})
    world = World()
    result = run(spec, world)[0].result()

    assert result["rate_name"] == "lr"
    assert result["verdict"]["state"] == "matched"
    assert result["verdict"]["rate"] == pytest.approx(1e-3, rel=0.03)
    assert world.trials[0].measurement["shadow_betas"] is None


def test_short_calibration_runs_forget_as_fast_as_the_source():
    spec = match_spec(
        base={"steps": 6000},
        target={"optimizer": "ndadam", "betas": [0.9, 0.999], "alpha_s": 0.01},
        calibration_steps=1500,
    )
    world = World()
    result = run(spec, world)[0].result()
    calibration = next(trial for trial in world.trials if trial.role == "calibration").config

    assert calibration["steps"] == 1500
    assert calibration["betas"] == [0.9, pytest.approx(0.996)]
    assert world.trials[-1].config["betas"] == [0.9, 0.999]
    assert result["verdict"]["state"] == "matched"


def test_long_range_asks_the_target_for_other_steps():
    target = {"optimizer": "ndadam", "betas": [0.8, 0.99], "alpha_s": 0.01}
    step = run(match_spec(target=target, level="step"), World())[0].result()
    far = run(match_spec(target=target, level="long_range"), World())[0].result()

    ratio = far["verdict"]["rate"] / step["verdict"]["rate"]
    assert ratio == pytest.approx(math.sqrt(1.9 * 0.2 / (0.1 * 1.8)), rel=0.01)
    assert far["verdict"]["state"] == "matched"


def test_measurements_that_break_the_formulas_assumptions_are_pointed_out():
    world = World(shadow_gain=0.5)
    world.extra = {"kappa": 0.2, "balance_residual": 0.03, "gradient_memory": 0.6}
    world.probe = {
        "counts": {"invariant": 40, "neither": 10},
        "layers": {"conv1": "invariant", "conv2": "eps_limited", "linear1": "neither"},
        "limited_by_eps": ["conv2"],
    }

    warnings = " ".join(run(match_spec(max_corrections=0), world)[0].result()["warnings"])

    for part in (
        "kappa = 0.20",
        "balance law is off by 3.0 %",
        "gain A is 0.50",
        "0.60 times what the second moment remembered",
        "10 weight vectors are neither invariant nor jointly invariant, most of linear1: ",
        "not small beside what it normalises after conv2: ",
    ):
        assert part in warnings


def test_a_usual_match_comes_without_warnings():
    assert run(match_spec(), World())[0].result()["warnings"] == []
