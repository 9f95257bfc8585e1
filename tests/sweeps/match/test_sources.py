"""Sources that were recorded before, and comparisons at the matched rate."""

import math
import random
import re
from dataclasses import replace

import pytest
from pydantic import ValidationError

from ndadam.theory.along_schedule import lag_curve
from sweeps.match.match_spec import setting_of
from sweeps.match.proposer import MatchProposer
from sweeps.match.recorded_curve import RecordedCurve, read_curve_csv
from sweeps.records import TrialState
from sweeps.spec.validation_messages import explain
from tests.sweeps.match.match_simulation import World, match_spec, run


def recorded(steps=2400, every=1, size=1.0, seed=7):
    """What SGD (0.1, 0.9, 0.001) would have recorded, with noise."""
    setting = setting_of(match_spec().source_config)
    curve = lag_curve(setting, lambda step: 1.0, range(0, steps, every)).effective_lr
    draw = random.Random(seed)
    return {
        "every": every,
        "values": [size * e * math.exp(0.02 * draw.gauss(0, 1)) for e in curve],
    }


def spec_of(curve, **changes):
    return match_spec(source={"curve": curve}, **changes)


def refusal(call):
    with pytest.raises(ValidationError) as error:
        call()
    first = explain(error.value)[0]
    return first["path"], first["reason"]


# --- Recorded sources ----------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 4])
def test_a_recorded_source_is_matched_without_being_trained(every):
    world = World()
    result = run(spec_of(recorded(every=every)), world)[0].result()

    assert {trial.role for trial in world.trials} == {"calibration", "verdict"}
    assert result["verdict"]["state"] == "matched"
    # A = 0.9 in the world, and no shadow told it: calibration did.
    assert result["verdict"]["rate"] == pytest.approx(0.0450 / math.sqrt(0.9), rel=0.02)
    assert result["source"]["measured"]["low"] is None
    assert result["source"]["gain"] is None
    assert result["layers"] == []
    assert result["classes"]["invariant"] == 48
    assert len(result["curves"]["source"]) == len(result["curves"]["target"])
    assert any("one recorded run" in warning for warning in result["warnings"])


def test_the_noise_of_one_recorded_run_does_not_average_out_over_seeds():
    world = World(seed_sd=0.0, noise=1e-4)
    found = run(spec_of(recorded(), replicates=16), world)[0].result()["verdict"]["log_ratio"]

    # Its mean over 1,000 independent values of deviation 2 %, however many targets there are.
    assert found["high"] - found["value"] == pytest.approx(1.96 * 0.02 / 1000**0.5, rel=0.3)


def test_a_recorded_source_can_be_followed_by_a_schedule():
    spec = spec_of(recorded(), criterion="schedule")
    result = run(spec, World())[0].result()

    assert result["verdict"]["state"] == "matched"
    assert result["verdict"]["schedule"]


@pytest.mark.parametrize(
    ("curve", "path", "words"),
    [
        (recorded(steps=1500), "source.curve", "covers 1500 steps (1500 records, 1 apart)"),
        (recorded(size=100.0), "source.curve.values", "divide percents by 100"),
        (recorded(size=20.0), "source.curve", "20 times the 0.0103 of the source's settings"),
        (recorded(size=0.01), "source.curve", "its units are others"),
        (
            {"values": [0.01] * 50_000},
            "source.curve.values",
            "at most 20000, got 50000; keep one in 3, and make every 3 times as large",
        ),
        ({"values": [0.0] * 2400}, "source.curve.values", "half of them or more are 0"),
        ({"values": [-0.1] * 2400}, "source.curve.values.0", "greater than or equal to 0"),
        ({"values": []}, "source.curve.values", "at least 1"),
    ],
)
def test_curves_that_are_not_the_sources_are_refused(curve, path, words):
    found, reason = refusal(lambda: spec_of(curve))

    assert found == path
    assert words in reason


def test_the_beginning_of_a_longer_cosine_is_refused_as_a_source():
    cosine = {"lr_schedule": "cosine"}
    longer, whole = recorded(steps=2405), recorded(steps=2401)

    path, reason = refusal(lambda: spec_of(longer, base=cosine))

    assert path == "source.curve"
    assert "the beginning of a longer cosine is not a shorter one" in reason
    assert spec_of(whole, base=cosine).num_steps == 2400
    assert spec_of(longer).num_steps == 2400


@pytest.mark.parametrize(("size", "is_doubted"), [(1.1, False), (1.5, True), (0.6, True)])
def test_a_recorded_source_of_another_size_than_its_settings_say_is_doubted(size, is_doubted):
    result = run(spec_of(recorded(size=size)), World())[0].result()

    found = [warning for warning in result["warnings"] if "units and settings" in warning]
    assert len(found) == is_doubted
    assert all(f"{size:.2f} times the 0.0103" in warning for warning in found)


def test_at_long_range_too_a_recorded_source_is_held_against_its_own_settings():
    asked = {"source": {"momentum": 0.5}, "level": "long_range", "base": {"steps": 8600}}
    setting = match_spec(**asked).source_setting
    curve = {"values": lag_curve(setting, lambda step: 1.0, range(8600)).effective_lr}
    spec = match_spec(**asked | {"source": {"momentum": 0.5, "curve": curve}})

    found = MatchProposer(spec, World()).result()

    expected = found["source"]["effective_lr"]
    assert found["source"]["measured"]["value"] == pytest.approx(expected, rel=0.01)
    assert not any("units and settings" in warning for warning in found["warnings"])


def test_a_target_has_no_curve():
    path, _ = refusal(lambda: match_spec(target={"curve": recorded()}))
    assert path == "target.curve"


def test_a_spec_with_a_curve_survives_json():
    spec = spec_of(recorded())
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


# --- CSV -----------------------------------------------------------------------------------------


def test_a_csv_file_is_read_with_its_cadence_and_other_columns_ignored():
    text = "\ufeffstep, loss, effective_lr\r\n10,2.3,0.011\r\n20,2.1,0.012\r\n30,,0.010\r\n"

    assert read_curve_csv(text) == RecordedCurve(every=10, values=(0.011, 0.012, 0.010))


@pytest.mark.parametrize(
    "text",
    [
        "Step;Effective_LR\n0;0.01\n1;0.02\n",
        '"step"\t"effective_lr"\n0\t0.01\n1\t0.02\n',
        "step,effective_lr,\r\n0.0,0.01,\r\n1.0,0.02,\r\n\r\n",
    ],
)
def test_separators_capitals_and_empty_lines_do_not_matter(text):
    assert read_curve_csv(text).values == (0.01, 0.02)


def test_of_more_records_than_a_run_keeps_some_are_taken():
    lines = "".join(f"{step},{1e-2 + step * 1e-9}\n" for step in range(50_000))

    found = read_curve_csv(f"step,effective_lr\n{lines}")

    assert (found.every, len(found.values)) == (3, 16_667)
    assert found.values[1] == pytest.approx(1e-2 + 3e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step;effective_lr\n0;0,01\n", "got '0,01'; write decimals with a point"),
        ("step,effective_lr\n0,0.01\n0,0.01\n", "steps must increase, got 0 after 0"),
        ("step,effective_lr\n0,0.01\n1,0.01\n1,0.01\n", "steps must increase, got 1 after 1"),
        ("step,effective_lr,Effective_LR\n0,1,1\n", "effective_lr must be there once"),
        (f"step,effective_lr\n0,{'9' * 200_000}\n", "line 2: field larger than"),
        ("", "must begin with a line that names the columns step and effective_lr, got nothing"),
        ("step,lr\n0,0.1\n", "got step, lr"),
        ("step,effective_lr\n0,0.01\n", "at least two records, got 1"),
        ("step,effective_lr\n0,0.01\n1,0.01\n3,0.01\n", "a gap: step 1 is followed by 3"),
        ("step,effective_lr\n1,0.01\n0,0.01\n", "steps must increase, got 0 after 1"),
        ("step,effective_lr\n0,0.01\n1,nan\n", "line 3: effective_lr must be a finite number"),
        ("step,effective_lr\n0,0.01\n1,-0.2\n", "line 3: effective_lr must be >= 0"),
        ("step,effective_lr\n0,0.01\n1.5,0.2\n", "line 3: step must be whole, got 1.5"),
        ("step,effective_lr\n0,0.01\nx\n", "line 3: step must be a finite number, got 'x'"),
        ("step,effective_lr\n500,0.01\n501,0.01\n", "the run's beginning is missing"),
        ("step,effective_lr\n0,1.1\n1,1.0\n", "divide percents by 100"),
    ],
)
def test_files_that_are_no_curve_are_refused_with_their_line(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read_curve_csv(text)


# --- Comparison ----------------------------------------------------------------------------------


def compared(worse, **compare):
    world = World()
    world.worse = worse
    spec = match_spec(compare={"margin": 0.005, "replicates": 6, **compare})
    proposer, last = run(spec, world)
    return spec, world, proposer.result(), last


def test_both_are_trained_at_the_matched_rate_on_seeds_that_the_match_did_not_see():
    spec, world, result, last = compared(0.0)
    trials = [trial for trial in world.trials if trial.role == "comparison"]
    used = {trial.seed for trial in world.trials if trial.role != "comparison"}

    assert last.reason == "all done"
    assert [t.config["optimizer"] for t in trials] == ["sgd", "ndadam"] * 6
    assert [t.seed for t in trials] == [s for s in spec.comparison_seeds() for _ in range(2)]
    assert not used & {trial.seed for trial in trials}
    assert all(t.measurement is None for t in trials)
    assert {t.config.get("alpha_v") for t in trials} - {None} == {result["verdict"]["rate"]}
    assert result["progress"] == 1.0
    assert result["stage"] == "done"
    assert result["cost"][-1]["stage"] == "comparison"
    assert result["cost"][-1]["trials"] == 12


def test_a_comparison_that_fails_leaves_the_verdict_and_says_so():
    spec, world, result, _ = compared(0.0)
    proposer = MatchProposer(spec, world)
    for trial in world.trials:
        is_lost = trial is world.trials[-1]
        proposer.tell(replace(trial, state=TrialState.FAILED) if is_lost else trial)

    found = proposer.result()

    assert found["verdict"] == result["verdict"]
    assert found["comparison"] is None
    reason = f"comparison trial {world.trials[-1].number} failed"
    assert found["warnings"] == [
        f"There is no comparison, because {reason}. A retry trains it again."
    ]


@pytest.mark.parametrize(("worse", "shown"), [(0.0, True), (0.005, False), (0.02, False)])
def test_non_inferiority_needs_the_whole_interval_below_the_margin(worse, shown):
    _, _, result, _ = compared(worse)
    found = result["comparison"]

    assert found["non_inferior"] is shown
    assert found["difference"]["low"] < found["difference"]["value"] < found["difference"]["high"]
    assert (found["difference"]["high"] < 0.005) is shown
    assert found["target"]["value"] - found["source"]["value"] == pytest.approx(
        found["difference"]["value"]
    )
    words = "is not inferior" if shown else "is not shown to be non-inferior"
    assert words in found["sentence"]
    assert "by a margin of 0.5 points" in found["sentence"]
    assert "over 6 fresh seeds each" in found["sentence"]
    said = re.search(r"source is (\S+) points, 95 % interval (\S+) to (\S+),", found["sentence"])
    assert [float(number.replace("\N{MINUS SIGN}", "-")) for number in said.groups()] == [
        pytest.approx(100 * found["difference"][key], rel=6e-3) for key in ("value", "low", "high")
    ]
    assert all(number[0] in "+\N{MINUS SIGN}" for number in said.groups())


def test_the_comparison_is_a_stage_that_a_new_process_goes_on_with():
    world = World()
    spec = match_spec(compare={"margin": 0.005, "replicates": 2})
    first, _ = run(spec, world, stop_after=9)
    assert first.result()["stage"] == "comparison"
    assert first.result()["comparison"] is None

    second, _ = run(spec, world)

    assert second.result()["stage"] == "done"
    assert sum(trial.role == "comparison" for trial in world.trials) == 4
    assert all(trial.state is TrialState.COMPLETE for trial in world.trials)


def test_a_run_of_the_comparison_that_diverges_leaves_the_verdict_as_it_is():
    world = World()
    world.diverges = lambda trial: trial.role == "comparison" and trial.seed % 2 == 0
    proposer, last = run(match_spec(compare={"margin": 0.005, "replicates": 2}), world)
    result = proposer.result()

    assert last.reason == "all done"
    assert (result["stage"], result["verdict"]["state"]) == ("done", "matched")
    assert result["comparison"] is None
    assert "There is no comparison: trial " in result["warnings"][-1]


def test_a_run_that_diverges_names_the_layer_that_ran_away():
    world, plain = World(), World()
    for one in (world, plain):
        one.diverges = lambda trial: trial.role == "source"
    _, usual = run(match_spec(), plain)
    finish = world.finish

    def running_away(trial):
        ended = finish(trial)
        (piece,) = world.recorded[trial.number]["effective_lr/conv2"]
        away = piece.model_copy(update={"values": [*piece.values[:-1], 7 * piece.values[-1]]})
        world.recorded[trial.number]["effective_lr/conv2"] = [away]
        return ended

    world.finish = running_away
    _, last = run(match_spec(), world)

    assert "diverged at step 17" in usual.reason
    assert "first:" not in usual.reason
    assert ", conv2 first: its last step was 7" in last.reason


@pytest.mark.parametrize(
    ("compare", "path"),
    [
        ({"replicates": 3}, "compare.margin"),
        ({"margin": 0.0}, "compare.margin"),
        ({"margin": 0.01, "replicates": 1}, "compare.replicates"),
        ({"margin": 0.01, "metric": "loss"}, "compare.metric"),
    ],
)
def test_comparisons_that_could_say_nothing_are_refused(compare, path):
    assert refusal(lambda: match_spec(compare=compare))[0] == path


def test_an_error_that_no_run_measures_cannot_be_compared():
    path, reason = refusal(
        lambda: match_spec(
            base={"validation_fraction": 0.0},
            compare={"margin": 0.01, "metric": "validation_error"},
        )
    )
    assert path == "compare.metric"
    assert "validation_fraction > 0" in reason
