"""The procedure of a measured match; the runs are made up, and the right rate is known."""

import math
import random
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from ndadam.matching.arguments import checked_plan
from ndadam.matching.plan import MatchPlan, default_run, default_window
from ndadam.matching.procedure import Procedure, RunRequest
from ndadam.theory.laws import OptimizerSetting, rate_name

SGD = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=4e-3)
NDADAM = OptimizerSetting("ndadam", betas=(0.9, 0.98))
#: Of the source, per step; and what the target moves at a learning rate of 1.
SOURCE, PER_RATE = 0.02, 0.25
STEPS = 1000


@dataclass
class MadeUpRun:
    seed: int
    values: list[float]
    gain: float | None = None
    shadow: list[float] = field(default_factory=list)
    by_layer: dict[str, list[float]] = field(default_factory=dict)

    @property
    def layers(self):
        return list(self.by_layer)

    def effective_lr(self, layer=None):
        return self.values if layer is None else self.by_layer[layer]

    def shadow_step(self):
        return self.shadow


def plan(**changes) -> MatchPlan:
    values = {
        "source": SGD,
        "target": NDADAM,
        "num_steps": STEPS,
        "lr_schedule": lambda step: 1.0,
        "criterion": "stationary",
        "level": "step",
        "tolerance": 0.05,
        "seeds": (0, 1, 2),
        "window": default_window("stationary", STEPS),
        "max_corrections": 2,
    }
    return MatchPlan(**values | changes)


def train(request: RunRequest) -> MadeUpRun:
    """The target's rate goes with its learning rate; both sides have 2 % of noise."""
    full = SOURCE if request.rate is None else PER_RATE * request.rate
    draw = random.Random(f"{request.stage} {request.seed}")
    values = [full * math.exp(draw.gauss(0, 0.02)) for _ in range(STEPS)]
    gain = 0.9 if request.stage == "source" else None
    return MadeUpRun(request.seed, values, gain, by_layer={"conv": values, "head": values})


def driven(match: Procedure, trained=train) -> list[RunRequest]:
    """Drive a match to its end; returns what it asked for."""
    asked = []
    while match.stage != "done":
        requests = match.requests()
        asked += requests
        match.record([trained(request) for request in requests])
    return asked


def test_it_finds_the_rate_on_runs_from_which_nothing_was_chosen():
    match = Procedure(plan())
    asked = driven(match)
    found = match.judge()

    assert match.gain == pytest.approx(0.9)
    assert match.rate == pytest.approx(SOURCE / PER_RATE, rel=0.01)
    assert found.finding.state == "matched"
    assert match.rate_at(found.ratio.low) < SOURCE / PER_RATE < match.rate_at(found.ratio.high)
    seeds = {s: {r.seed for r in asked if r.stage == s} for s in ("source", "calibration")}
    assert seeds["source"] == {0, 1, 2}
    assert not seeds["calibration"] & {0, 1, 2}
    assert [r.stage for r in asked[-3:]] == ["verdict"] * 3
    assert {r.rate for r in asked[-3:]} == {match.rate}


def test_another_procedure_that_is_fed_the_same_records_stands_where_the_first_stood():
    first, again = Procedure(plan()), Procedure(plan())
    for _ in range(2):
        runs = [train(request) for request in first.requests()]
        assert again.requests() == first.requests()
        first.record(runs)
        again.record(runs)

    assert again.stage == first.stage == "calibration"
    assert driven(again) == driven(first)
    assert again.judge() == first.judge()


def test_calibration_ends_when_a_run_is_close_or_no_correction_is_left():
    """The prediction is 30 % off here: the first run is far away, the second close."""
    asked = driven(Procedure(plan(max_corrections=9)))
    assert [r.rounds for r in asked if r.stage == "calibration"] == [0, 1]

    none = Procedure(plan(max_corrections=0))
    assert {r.stage for r in driven(none)} == {"source", "verdict"}
    assert none.rate == none.predicted


def test_records_that_cannot_be_judged_leave_the_stage_as_it_was():
    match = Procedure(plan())
    match.record([train(request) for request in match.requests()])
    (request,) = match.requests()

    with pytest.raises(ValueError, match="target never moved"):
        match.record([MadeUpRun(request.seed, [0.0] * STEPS)])

    assert match.stage == "calibration"
    assert match.requests() == [request]
    assert match.rounds == []


def test_a_source_that_was_recorded_before_is_not_run():
    match = Procedure(plan(recorded=[SOURCE] * STEPS))
    asked = driven(match)

    assert {r.stage for r in asked} == {"calibration", "verdict"}
    assert match.gain == 1.0
    assert match.rate == pytest.approx(SOURCE / PER_RATE, rel=0.01)
    assert match.judge().finding.state == "matched"


def test_rates_are_rounded_where_the_plan_says_so():
    match = Procedure(plan(digits=3))
    asked = driven(match)

    assert all(r.rate is None or r.rate == float(f"{r.rate:.3g}") for r in asked)


def test_a_layer_that_stands_still_with_one_seed_has_a_rate_without_an_interval():
    def trained(request):
        run = train(request)
        if request.stage == "verdict" and request.seed == 1:
            run.by_layer["conv"] = [0.0] * STEPS
        run.by_layer["frozen"] = [0.0] * STEPS
        return run

    match = Procedure(plan())
    driven(match, trained)
    layers = match.layer_rates()

    assert set(layers) == {"conv", "head"}
    assert layers["conv"].low is layers["conv"].high is None
    assert layers["conv"].rate > layers["head"].rate
    assert layers["head"].low < layers["head"].rate < layers["head"].high
    assert match.judge().finding.state == "matched"


@pytest.mark.parametrize("num_steps", [1000, 1001, 1007, 2400])
def test_default_windows_are_the_last_five_twelfths_or_leave_both_ends_out(num_steps):
    start, stop = default_window("stationary", num_steps)

    assert start * 12 >= num_steps * 7 > (start - 1) * 12
    assert stop == num_steps
    assert default_window("schedule", num_steps) == (
        round(num_steps / 20),
        round(num_steps * 19 / 20),
    )


@pytest.mark.parametrize("settled", [583, 584, 1000, 1001])
def test_a_run_of_the_length_that_a_refusal_names_has_a_late_enough_window(settled):
    enough = default_run(window_steps=100, settled=settled)

    assert default_window("stationary", enough)[0] >= settled
    assert default_window("stationary", enough - 1)[0] <= settled


def test_a_plan_takes_its_window_and_criterion_from_the_schedule():
    def of(lr_schedule):
        return checked_plan(SGD, NDADAM, STEPS, lr_schedule, None, None, 0.05, (0,), None, 2)

    constant = of(lambda step: 1.0)
    falling = of(lambda step: 1 - step / STEPS)

    assert (constant.criterion, constant.window) == ("stationary", (584, 1000))
    assert (falling.criterion, falling.window) == ("least_squares", (50, 950))


def test_the_rate_that_a_match_finds_has_the_name_that_configs_give_it():
    assert [rate_name(name) for name in ("ndadam", "adamw", "sgd")] == ["alpha_v", "lr", "lr"]


def test_the_procedure_and_its_plan_need_no_torch():
    code = (
        "import sys, ndadam.matching.procedure, ndadam.matching.arguments; "
        "sys.exit(bool({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
