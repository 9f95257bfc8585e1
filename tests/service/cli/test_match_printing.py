"""A match on the terminal: never a number without its verdict, its doubts and its cost."""

from types import SimpleNamespace

from rich.console import Console

from service.cli.terminal.printing import print_outcome
from tests.sweeps.match.match_simulation import World, match_spec, run


def printed(result, state="complete"):
    console = Console(width=200)
    sweep = SimpleNamespace(name="mine", state=state, reason="", kind="match", result=result)
    with console.capture() as captured:
        print_outcome(console, None, sweep)
    return captured.get()


def test_verdict_notes_and_cost_stand_below_the_rates():
    world = World()
    world.probe = {
        "counts": {"invariant": 40, "neither": 10},
        "layers": {"conv1": "invariant", "linear1": "neither"},
    }

    text = printed(run(match_spec(), world)[0].result())

    assert "Matched (stationary, ±5 %" in text
    assert "note 10 weight vectors are neither" in text
    assert "most of linear1" in text
    assert "cost source 3 x 2,400 steps in" in text


def test_a_match_that_ended_without_a_verdict_says_that_no_rate_is_confirmed():
    world = World()
    proposer, _ = run(match_spec(), world, stop_after=3)
    result = proposer.result() | {"warnings": ["There is no verdict, because trial 1 failed."]}

    assert "note There is no verdict" in printed(result)


def test_where_the_points_of_a_schedule_are_is_said():
    spec = match_spec(base={"lr_schedule": "cosine"}, criterion="schedule")

    text = printed(run(spec, World())[0].result())

    assert "points, for lr_schedule of a config, are result.verdict.schedule" in text
